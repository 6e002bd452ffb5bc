// SPDX-License-Identifier: MIT

// A goroutine for each connection. server.h says how a server begins, request.h what it reads.
package main

import (
	"encoding/binary"
	"fmt"
	"log"
	"net"
	"os"
	"syscall"
)

func serve(connection net.Conn) {
	defer connection.Close()
	buffer := make([]byte, 512)
	for {
		n, err := connection.Read(buffer)
		if err != nil {
			return
		}
		// A system call that blocks. time.Sleep would only park the goroutine.
		if us := binary.LittleEndian.Uint32(buffer); us != 0 {
			left := syscall.NsecToTimespec(int64(us) * 1000)
			for syscall.Nanosleep(&left, &left) == syscall.EINTR {
			}
		}
		if _, err := connection.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func main() {
	listener, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("go")
	for {
		connection, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go serve(connection)
	}
}
