// Terrier-backend is the program of the backends that Terrier knows: it makes buckets and
// tables for states, and says how the engine is configured for them. It reads one request
// from its standard input and writes one reply to its standard output. The supervisor of a
// run starts it, in the sandbox of the run.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/terrier-iac/terrier/internal/backend"
	"github.com/terrier-iac/terrier/internal/provision"
)

// version is set by the linker.
var version = "dev"

func main() {
	if len(os.Args) == 2 && os.Args[1] == "version" {
		fmt.Println("terrier-backend", version)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := backend.Serve(ctx, os.Stdin, os.Stdout, provision.Plugins{Environ: os.Getenv, Now: time.Now}.Find)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "terrier-backend:", err)
		os.Exit(1)
	}
}
