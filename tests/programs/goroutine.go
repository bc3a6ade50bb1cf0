// Runs for as many seconds as its argument says:
// main.outer < main.mid < main.burn in a goroutine, beside others that make garbage for the collector.
package main

import (
	"os"
	"time"
)

var sink int
var kept [][]byte

//go:noinline
func burn(end time.Time) {
	for i := 0; ; i++ {
		sink += i * i
		if i%100000 == 0 && time.Now().After(end) {
			return
		}
	}
}

//go:noinline
func mid(end time.Time) { burn(end); sink++ }

//go:noinline
func outer(end time.Time, done chan bool) { mid(end); done <- true }

//go:noinline
func litter(end time.Time, done chan bool) {
	for time.Now().Before(end) {
		kept = kept[:0]
		for i := 0; i < 1000; i++ {
			kept = append(kept, make([]byte, 1000))
		}
	}
	done <- true
}

func main() {
	done := make(chan bool)
	length, err := time.ParseDuration(os.Args[1] + "s")
	if err != nil {
		panic(err)
	}
	end := time.Now().Add(length)
	go outer(end, done)
	go litter(end, done)
	<-done
	<-done
}
