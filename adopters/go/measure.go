// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// The last of the arguments that usage names is a number of rounds.
func rounds(usage string, arguments int) int {
	if len(os.Args) != 1+arguments {
		fmt.Fprintln(os.Stderr, "usage:", usage)
		os.Exit(2)
	}
	n, err := strconv.Atoi(os.Args[arguments])
	if err != nil || n < 1 {
		fmt.Fprintf(os.Stderr, "%s: wanted a number of rounds, found %s\n", usage, os.Args[arguments])
		os.Exit(2)
	}
	return n
}

// With LOCK=no in the environment, nobody is locked to a thread.
func lock(locked bool) {
	if locked && os.Getenv("LOCK") != "no" {
		runtime.LockOSThread()
	}
}

func now() (time.Time, time.Duration) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Now(), time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// For adopters/measure.py.
func measure(run func() int) {
	start, cpu := now()
	result := run()
	end, cpuEnd := now()
	fmt.Printf("measured %.6f s, CPU %.6f s\n", end.Sub(start).Seconds(), (cpuEnd - cpu).Seconds())
	fmt.Println("result", result)
}
