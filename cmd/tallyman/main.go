// Tallyman runs AI agents' work on one machine: the command line, and the
// server that it needs.
package main

import (
	"context"
	"os"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/cli"
)

func main() {
	os.Exit(cli.Main(context.Background(), cli.Program{Name: "tallyman", Version: tallyman.Version}, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
