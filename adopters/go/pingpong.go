// SPDX-License-Identifier: MIT

// pingpong KIND ROUNDS: two goroutines take turns, or many of them.
//
//	channel, mutex, cond             one of the two is locked to its thread
//	channel-both, mutex-both, cond-both  both are
//	pool     a locked goroutine gives work to others, which compute
//	free     none is locked, by channel
//	many     a hundred such pairs
package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
)

// turns returns what hands the turn from side 0 or 1 to the other, and what waits for it.
func turns(kind string) (give, take func(side int)) {
	switch kind {
	case "mutex":
		var turn [2]sync.Mutex
		turn[0].Lock()
		turn[1].Lock()
		return func(side int) { turn[1-side].Unlock() }, func(side int) { turn[side].Lock() }
	case "cond":
		var mutex sync.Mutex
		cond, turn := sync.NewCond(&mutex), -1
		return func(side int) {
				mutex.Lock()
				turn = 1 - side
				cond.Signal()
				mutex.Unlock()
			}, func(side int) {
				mutex.Lock()
				for turn != side {
					cond.Wait()
				}
				turn = -1
				mutex.Unlock()
			}
	}
	turn := [2]chan int{make(chan int), make(chan int)}
	return func(side int) { turn[1-side] <- 0 }, func(side int) { <-turn[side] }
}

// pair returns how often the second side had its turn.
func pair(kind string, rounds int, locked, bothLocked bool) (count int) {
	give, take := turns(kind)
	done := make(chan bool)
	go func() {
		lock(bothLocked)
		for i := 0; i < rounds; i++ {
			take(1)
			count++
			give(1)
		}
		done <- true
	}()
	lock(locked)
	for i := 0; i < rounds; i++ {
		give(0)
		take(0)
	}
	<-done
	return count
}

func compute(n int) int {
	for i := 0; i < 100000; i++ {
		n = n*1103515245 + 12345
	}
	return n & 1
}

func pool(rounds int) (sum int) {
	work, results := make(chan int), make(chan int)
	lock(true)
	for i := 0; i < 4; i++ {
		go func() {
			for n := range work {
				results <- compute(n)
			}
		}()
	}
	for sent, got := 0, 0; got < rounds; {
		next := work
		if sent == rounds {
			next = nil
		}
		select {
		case next <- sent:
			sent++
		case n := <-results:
			sum += n
			got++
		}
	}
	return sum
}

func many(rounds int) (count int) {
	counts := make(chan int)
	for i := 0; i < 100; i++ {
		go func() { counts <- pair("channel", rounds/100, false, false) }()
	}
	for i := 0; i < 100; i++ {
		count += <-counts
	}
	return count
}

func main() {
	n := rounds("pingpong KIND ROUNDS", 2)
	kind := strings.TrimSuffix(os.Args[1], "-both")
	both := kind != os.Args[1]
	measure(func() int {
		switch kind {
		case "channel", "mutex", "cond":
			return pair(kind, n, true, both)
		case "free":
			return pair("channel", n, false, false)
		case "pool":
			return pool(n)
		case "many":
			return many(n)
		}
		fmt.Fprintln(os.Stderr, "pingpong: wanted a kind, found", kind)
		os.Exit(2)
		return 0
	})
}
