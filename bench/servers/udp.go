// SPDX-License-Identifier: MIT

// A goroutine for each CPU, with a socket of its own, as tools/packet-server has it.
//
// usage: udp [locked]	(each goroutine on a thread of its own)
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"runtime"
	"syscall"
)

// In syscall of Linux for x86 it has no name.
const soReusePort = 15

func serve(connection *net.UDPConn, locked bool) {
	if locked {
		runtime.LockOSThread()
	}
	buffer := make([]byte, 2048)
	for {
		n, peer, err := connection.ReadFromUDPAddrPort(buffer)
		if err != nil {
			log.Fatal(err)
		}
		if _, err := connection.WriteToUDPAddrPort(buffer[:n], peer); err != nil {
			log.Fatal(err)
		}
	}
}

func main() {
	locked := len(os.Args) > 1 && os.Args[1] == "locked"
	config := net.ListenConfig{Control: func(network, address string, c syscall.RawConn) error {
		var fault error
		err := c.Control(func(fd uintptr) {
			fault = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, soReusePort, 1)
			syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUFFORCE, 4<<20)
		})
		if err != nil {
			return err
		}
		return fault
	}}
	address := "127.0.0.1:0"
	for i := 0; i < runtime.NumCPU(); i++ {
		connection, err := config.ListenPacket(context.Background(), "udp4", address)
		if err != nil {
			log.Fatal(err)
		}
		if i == 0 {
			address = connection.LocalAddr().String()
		}
		go serve(connection.(*net.UDPConn), locked)
	}
	fmt.Println("listening on", address)
	select {}
}
