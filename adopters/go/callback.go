// SPDX-License-Identifier: MIT

// callback ROUNDS: a C function calls a Go function in a loop, as a library calls a program
// for each event. The Go function asks another goroutine, and waits for the answer.
package main

/*
extern void step(void);

static inline void loop(int rounds)
{
	while (rounds--)
		step();
}
*/
import "C"

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

var questions, answers = make(chan int), make(chan int)
var sum int

//export step
func step() {
	questions <- sum
	sum = <-answers
}

func now() (time.Time, time.Duration) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Now(), time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: callback ROUNDS")
		os.Exit(2)
	}
	rounds, err := strconv.Atoi(os.Args[1])
	if err != nil || rounds < 1 {
		fmt.Fprintln(os.Stderr, "callback: wanted a number of rounds, found", os.Args[1])
		os.Exit(2)
	}
	go func() {
		for n := range questions {
			answers <- n + 1
		}
	}()
	start, cpu := now()
	C.loop(C.int(rounds))
	end, cpuEnd := now()
	fmt.Printf("measured %.6f s, CPU %.6f s\n", end.Sub(start).Seconds(), (cpuEnd - cpu).Seconds())
	fmt.Println("result", sum)
}
