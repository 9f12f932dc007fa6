// Terrier-runner supervises one run: it reads a job from its standard input,
// drives the engine through it in a sandbox, and leaves everything about it in the
// run's directory. It is small because it is started for every run. In a pod it is the
// agent as well, which gets the job from the controller and starts the supervisor. It fills
// the cache of providers on a volume, too, and copies the code for the build of a Dockerfile. In the sandbox of a script it is terraform and
// tofu.
//
// It is started by terrier and not by people; `terrier-runner version` is for
// them.
package main

import (
	"fmt"
	"os"

	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/agent"
	"github.com/terrier-iac/terrier/internal/runner/dockerfile"
	"github.com/terrier-iac/terrier/internal/runner/filler"
	"github.com/terrier-iac/terrier/internal/runner/script"
	"github.com/terrier-iac/terrier/internal/runner/sealer"
	"github.com/terrier-iac/terrier/internal/sandbox"
)

// version is set by the linker.
var version = "dev"

func main() {
	sandbox.Main()
	script.Main()
	sealer.Main()
	if len(os.Args) == 2 && os.Args[1] == agent.Argument {
		os.Exit(agent.Program(os.Stderr))
	}
	if len(os.Args) == 2 && os.Args[1] == filler.Argument {
		os.Exit(filler.Program(os.Stderr))
	}
	if len(os.Args) > 1 && (os.Args[1] == dockerfile.ArgumentContext || os.Args[1] == dockerfile.ArgumentResult) {
		os.Exit(dockerfile.Program(os.Args[1:], os.Stderr))
	}
	if err := runner.Program(os.Args[1:], version); err != nil {
		fmt.Fprintln(os.Stderr, "terrier-runner:", err)
		os.Exit(1)
	}
}
