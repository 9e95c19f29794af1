// Stamp prints when it began, in nanoseconds, and ends after as many seconds
// as it is told.
package main

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

func main() {
	fmt.Println("began", time.Now().UnixNano())
	if len(os.Args) > 1 {
		if n, err := strconv.Atoi(os.Args[1]); err == nil {
			time.Sleep(time.Duration(n) * time.Second)
		}
	}
}
