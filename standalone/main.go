// Command terrier, this one, is terrier with a Kubernetes control plane inside,
// so that a machine needs nothing else. It refuses nothing of its own: commands
// are in internal/cli, the control plane in kubeapi. Start reading at main.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// version is set by the linker.
var version = "v0.0.0-dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
