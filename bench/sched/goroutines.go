// SPDX-License-Identifier: MIT

// The rows of sched-bench (rows.h) for goroutines: on one P, and once more with each goroutine
// locked to a thread, as tasks are. Go has no row for park: its runtime keeps that to itself.
//
// usage: sched-go ITERATIONS
//
// Prints a line of JSON for each row: ns for an iteration, which under -icount is instructions.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"
)

// As warm_turns in rows.h.
const warmTurns = 200

// Short rows get as many iterations as fibers do.
const factor = 10

type result struct {
	Row    string  `json:"row"`
	Locked bool    `json:"locked"`
	Ns     float64 `json:"ns"`
	Go     string  `json:"go"`
}

// A program that has measured something else than it says has no result.
func checkCount(row, what string, found, wanted int) {
	if found != wanted {
		fmt.Fprintf(os.Stderr, "sched-go: %s: %d %s, wanted %d\n", row, found, what, wanted)
		os.Exit(1)
	}
}

// The ns for as many turns.
func repeat(turns int, turn func()) float64 {
	begin := time.Now()
	for i := 0; i < turns; i++ {
		turn()
	}
	return float64(time.Since(begin))
}

// The ns for one of them, after a warm-up.
func measure(turns int, turn func()) float64 {
	repeat(warmTurns, turn)
	return repeat(turns, turn) / float64(turns)
}

// Whose turn it is. Gosched need not switch: now and then the scheduler takes the caller again. So
// the changes are counted, and an iteration is one change.
type owner struct {
	last    bool
	changes int
}

func (o *owner) is(partner bool) {
	if o.last != partner {
		o.changes++
		o.last = partner
	}
}

// The ns for one change, in turns of two.
func (o *owner) measure(row string, iterations int, turn func()) float64 {
	repeat(warmTurns, turn)
	o.changes = 0
	ns := repeat(iterations/2, turn)
	if o.changes < iterations*9/10 {
		checkCount(row, "changes", o.changes, iterations)
	}
	return ns / float64(o.changes)
}

// Starts f, in a thread of its own if locked. The channel is closed when f has returned.
func start(locked bool, f func()) chan struct{} {
	done := make(chan struct{})
	go func() {
		if locked {
			runtime.LockOSThread()
		}
		f()
		close(done)
	}()
	return done
}

func yields(iterations int, locked bool) float64 {
	var owner owner
	stop := false
	partner := start(locked, func() {
		for !stop {
			owner.is(true)
			runtime.Gosched()
		}
	})
	ns := owner.measure("yield", iterations, func() {
		owner.is(false)
		runtime.Gosched()
	})
	stop = true
	<-partner
	return ns
}

func mutex(iterations int, _ bool) float64 {
	var mutex sync.Mutex
	return measure(iterations, func() {
		mutex.Lock()
		mutex.Unlock()
	})
}

// As in rows.h: a goroutine that has unlocked a mutex could lock it again at once.
func handOver(iterations int, locked bool) float64 {
	var mutex sync.Mutex
	var owner owner
	stop := false
	turn := func(partner bool) {
		mutex.Lock()
		owner.is(partner)
		runtime.Gosched()
		mutex.Unlock()
		runtime.Gosched()
	}
	partner := start(locked, func() {
		for !stop {
			turn(true)
		}
	})
	ns := owner.measure("hand-over", iterations, func() { turn(false) })
	stop = true
	<-partner
	return ns
}

func spawn(iterations int, _ bool) float64 {
	var group sync.WaitGroup
	runs := 0
	ns := measure(iterations, func() {
		group.Add(1)
		go func() {
			runs++
			group.Done()
		}()
		group.Wait()
	})
	checkCount("spawn", "runs", runs, warmTurns+iterations)
	return ns
}

func channel(capacity int) func(int, bool) float64 {
	return func(iterations int, locked bool) float64 {
		items := make(chan int, capacity)
		received, inOrder := 0, 0
		partner := start(locked, func() {
			for item := range items {
				if item == received {
					inOrder++
				}
				received++
			}
		})
		item := 0
		ns := measure(iterations, func() {
			items <- item
			item++
		})
		close(items)
		<-partner
		checkCount("channel", "items", received, item)
		checkCount("channel", "items in order", inOrder, item)
		return ns
	}
}

func main() {
	rows := []struct {
		name    string
		locks   bool // is another row if locked
		measure func(iterations int, locked bool) float64
	}{
		{"Yield", true, yields},
		{"Mutex", false, mutex},
		{"HandOver", true, handOver},
		{"Spawn", false, spawn},
		{"Channel0", true, channel(0)},
		{"Channel64", true, channel(64)},
	}
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: sched-go ITERATIONS")
		os.Exit(2)
	}
	iterations, err := strconv.Atoi(os.Args[1])
	if err != nil || iterations < 1 || iterations > 1000000000 {
		fmt.Fprintf(os.Stderr, "sched-go: wanted 1 to 1000000000, found '%s'\n", os.Args[1])
		os.Exit(2)
	}

	runtime.GOMAXPROCS(1)
	for _, row := range rows {
		for _, locked := range []bool{false, true} {
			if locked && !row.locks {
				continue
			}
			n, ns := iterations, 0.0
			if !locked {
				n *= factor
			}
			<-start(locked, func() { ns = row.measure(n, locked) })
			json.NewEncoder(os.Stdout).Encode(result{row.name, locked, ns, runtime.Version()})
		}
	}
}
