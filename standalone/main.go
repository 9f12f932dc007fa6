// Command terrier, this one, is terrier with a Kubernetes control plane inside,
// so that a machine needs nothing else. It refuses nothing of its own: commands
// are in internal/cli and internal/app, the control plane is in kubeapi. Start
// reading at main.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
	_ "time/tzdata" // windows of policies have time zones, and images have none

	"github.com/terrier-iac/terrier/internal/app"
	"github.com/terrier-iac/terrier/internal/app/registryserver"
	"github.com/terrier-iac/terrier/internal/cli"
	"github.com/terrier-iac/terrier/internal/review/rego/worker"
	"github.com/terrier-iac/terrier/internal/sandbox"
)

// version is set by the linker.
var version = "v0.0.0-dev"

func main() {
	sandbox.Main() // this binary finds out how well it can sandbox runs
	worker.Main()  // and evaluates policies in processes of their own
	if len(os.Args) > 1 && os.Args[1] == "control-plane" {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
		stop()
		os.Exit(code)
	}
	os.Exit(commands())
}

// commands runs the command line.
func commands() int {
	dir, err := os.Getwd()
	if err != nil {
		fmt.Fprintln(os.Stderr, "terrier:", err)
		return 1
	}
	up, err := app.Up(plane{}, os.Args[0], version, os.Getenv, time.Now)
	controller, also := app.Controller(os.Args[0], version, os.Getenv, time.Now)
	registry, too := registryserver.Command(os.Args[0], version, os.Getenv, time.Now)
	if err := errors.Join(err, also, too); err != nil {
		fmt.Fprintln(os.Stderr, "terrier:", err)
		return 2
	}
	return cli.Main(cli.Env{
		Args: os.Args[1:], Environ: os.Environ(), Dir: dir, Now: time.Now, Version: version,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Terminal: cli.IsTerminal(os.Stdin),
	}, up, controller, registry)
}
