// A goroutine that calls C, which runs on the scheduler's stack.
package main

/*
static unsigned long burn(unsigned long n)
{
	volatile unsigned long x = 1;

	for (unsigned long i = 0; i < n; i++)
		x = x * 3 + i;
	return x;
}
*/
import "C"

import (
	"fmt"
	"time"
)

func main() {
	var sum C.ulong
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		sum += C.burn(1000000)
	}
	fmt.Println(sum)
}
