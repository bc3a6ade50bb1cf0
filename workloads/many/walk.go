// Goroutines, interfaces, closures, defer and recover, maps, stacks that grow and move.
package main

import (
	"fmt"
	"sort"
	"strings"
	"sync"
)

type shape interface{ area(depth int) float64 }
type square float64
type group []shape

func (s square) area(depth int) float64 {
	if depth == 0 {
		return 0
	}
	return s.area(depth-1) + float64(s*s)
}

func (g group) area(depth int) (sum float64) {
	for _, s := range g {
		sum += s.area(depth)
	}
	return sum
}

//go:noinline
func grow(n int) int {
	var here [64]int
	here[n%64] = n
	if n == 0 {
		return here[0]
	}
	return grow(n-1) + here[n%64]
}

func recovered(n int) (length int) {
	defer func() { length = len(fmt.Sprint(recover())) }()
	var numbers []int
	return numbers[n]
}

func main() {
	var wait sync.WaitGroup
	results := make(chan int, 4)
	for g := 0; g < 4; g++ {
		wait.Add(1)
		go func() {
			defer wait.Done()
			results <- grow(40*(g+1)) + recovered(g)
		}()
	}
	wait.Wait()
	total := 0
	for i := 0; i < 4; i++ {
		total += <-results
	}
	counts := map[string]int{}
	for i := 0; i < 60; i++ {
		counts[strings.Repeat("k", i*37%23)] += i
	}
	keys := make([]string, 0, len(counts))
	for key := range counts {
		keys = append(keys, key)
	}
	sort.Slice(keys, func(a, b int) bool { return counts[keys[a]] > counts[keys[b]] })
	fmt.Println(total, keys[0], group{square(1), square(2), group{square(3)}}.area(6))
}
