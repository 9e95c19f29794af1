// Tallyman-runner is the runner alone: what works one attempt, as a process of
// a machine or as the first one of a Pod. It is started by a server and is of
// no use by hand.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/harness"
	"github.com/tallyman-dev/tallyman/internal/runner"
)

func main() {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "runner":
			os.Exit(runner.Main(tallyman.Version, os.Stderr))
		case "pod":
			os.Exit(runner.Pod(tallyman.Version, os.Args[2:], os.Stdout, os.Stderr))
		case "install":
			os.Exit(runner.Install(os.Args[2:], os.Stderr))
		case "script":
			os.Exit(harness.Script(context.Background(), os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
		}
	}
	fmt.Fprintln(os.Stderr, "tallyman-runner: it is started by a tallyman server, as: tallyman-runner runner")
	os.Exit(2)
}
