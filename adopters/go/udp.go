// SPDX-License-Identifier: MIT

// udp ROUNDS: a server of packets. Two goroutines, both locked to their threads, have a socket
// each, and send back what they receive. A process of its own sends a packet to each of them,
// and waits for both answers.
package main

import (
	"net"
	"os"
	"os/exec"
	"syscall"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func serve(socket *net.UDPConn, rounds int, done chan<- int) {
	lock(true)
	buffer := make([]byte, 100)
	for i := 0; i <= rounds; i++ {
		n, peer, err := socket.ReadFromUDPAddrPort(buffer)
		must(err)
		_, err = socket.WriteToUDPAddrPort(buffer[:n], peer)
		must(err)
		if i == 0 { // the sockets work, and the other process runs
			done <- 0
		}
	}
	done <- rounds
}

// In the other process, where the sockets block.
func ask(rounds int) {
	packet := make([]byte, 64)
	for i := 0; i <= rounds; i++ {
		for _, call := range []func(int, []byte) (int, error){syscall.Write, syscall.Read} {
			for fd := 3; fd < 5; fd++ {
				_, err := call(fd, packet)
				must(err)
			}
		}
	}
}

func main() {
	n := rounds("udp ROUNDS", 1)
	if os.Getenv("ASK") != "" {
		ask(n)
		return
	}
	asker := exec.Command("/proc/self/exe", os.Args[1])
	asker.Env = append(os.Environ(), "ASK=yes")
	asker.Stderr = os.Stderr
	done := make(chan int)
	for i := 0; i < 2; i++ {
		socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		must(err)
		other, err := net.DialUDP("udp4", nil, socket.LocalAddr().(*net.UDPAddr))
		must(err)
		file, err := other.File()
		must(err)
		asker.ExtraFiles = append(asker.ExtraFiles, file)
		go serve(socket, n, done)
	}
	must(asker.Start())
	total := <-done + <-done
	measure(func() int { return total + <-done + <-done })
	must(asker.Wait())
}
