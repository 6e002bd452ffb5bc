// SPDX-License-Identifier: MIT

// A goroutine for each connection. server.h says how a server begins, request.h what it reads.
package main

import (
	"encoding/binary"
	"fmt"
	"log"
	"math"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
)

// request.h and server.h have these, too.
const (
	readCold  = math.MaxUint32
	coldPage  = 4096
	coldPages = 4096
)

var (
	cold     *os.File
	coldOnce sync.Once
	nextPage atomic.Uint32
)

func readPage() {
	coldOnce.Do(func() {
		var err error
		if cold, err = os.Open(os.Getenv("COLD_FILE")); err != nil {
			log.Fatal(err)
		}
	})
	at := int64(nextPage.Add(1)%coldPages) * coldPage
	const dontNeed = 4
	if _, _, e := syscall.Syscall6(syscall.SYS_FADVISE64, cold.Fd(), uintptr(at), coldPage, dontNeed, 0, 0); e != 0 {
		log.Fatal(e)
	}
	if _, err := cold.ReadAt(make([]byte, coldPage), at); err != nil {
		log.Fatal(err)
	}
}

func serve(connection net.Conn) {
	defer connection.Close()
	buffer := make([]byte, 512)
	for {
		n, err := connection.Read(buffer)
		if err != nil {
			return
		}
		// A system call that blocks. time.Sleep would only park the goroutine.
		if us := binary.LittleEndian.Uint32(buffer); us == readCold {
			readPage()
		} else if us != 0 {
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
