// Command terrier, this one, is the command line alone, as cluster images have
// it: it brings no control plane with it. It refuses nothing of its own. The
// commands are in internal/cli; start reading there.
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/terrier-iac/terrier/internal/cli"
)

// version is set by the linker.
var version = "v0.0.0-dev"

func main() {
	dir, err := os.Getwd()
	if err != nil {
		fmt.Fprintln(os.Stderr, "terrier:", err)
		os.Exit(1)
	}
	os.Exit(cli.Main(cli.Env{
		Args: os.Args[1:], Environ: os.Environ(), Dir: dir, Now: time.Now, Version: version,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
	}))
}
