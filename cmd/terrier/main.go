// Command terrier, this one, is terrier without a control plane inside, as cluster
// images have it: the command line, the controller of a cluster, and the registry. It refuses
// nothing of its own. The commands are in internal/cli and internal/app; start
// reading there.
package main

import (
	"errors"
	"fmt"
	"os"
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
	dir, err := os.Getwd()
	if err != nil {
		fmt.Fprintln(os.Stderr, "terrier:", err)
		os.Exit(1)
	}
	controller, err := app.Controller(os.Args[0], version, os.Getenv, time.Now)
	registry, also := registryserver.Command(os.Args[0], version, os.Getenv, time.Now)
	if err := errors.Join(err, also); err != nil {
		fmt.Fprintln(os.Stderr, "terrier:", err)
		os.Exit(2)
	}
	os.Exit(cli.Main(cli.Env{
		Args: os.Args[1:], Environ: os.Environ(), Dir: dir, Now: time.Now, Version: version,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Terminal: cli.IsTerminal(os.Stdin),
	}, controller, registry))
}
