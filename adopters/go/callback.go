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

var questions, answers = make(chan int), make(chan int)
var sum int

//export step
func step() {
	questions <- sum
	sum = <-answers
}

func main() {
	n := rounds("callback ROUNDS", 1)
	go func() {
		for n := range questions {
			answers <- n + 1
		}
	}()
	measure(func() int {
		C.loop(C.int(n))
		return sum
	})
}
