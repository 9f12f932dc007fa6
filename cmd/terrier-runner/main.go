// Terrier-runner supervises one run: it reads a job from its standard input,
// drives the engine through it in a sandbox, and leaves everything about it in the
// run's directory. It is small because it is started for every run.
//
// It is started by terrier and not by people; `terrier-runner version` is for
// them.
package main

import (
	"fmt"
	"os"

	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/sandbox"
)

// version is set by the linker.
var version = "dev"

func main() {
	sandbox.Main()
	if err := runner.Program(os.Args[1:], version); err != nil {
		fmt.Fprintln(os.Stderr, "terrier-runner:", err)
		os.Exit(1)
	}
}
