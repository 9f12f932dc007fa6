package remote_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/agent"
	"github.com/terrier-iac/terrier/internal/runner/remote/remotetest"
	"github.com/terrier-iac/terrier/internal/runner/script"
	"github.com/terrier-iac/terrier/internal/runner/sealer"
	"github.com/terrier-iac/terrier/internal/sandbox"
)

// TestMain makes the test binary what terrier-runner is in a pod.
func TestMain(m *testing.M) {
	sandbox.Main()
	script.Main()
	sealer.Main()
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case agent.Argument:
			remotetest.Exit(agent.Program(os.Stderr))
		case argController:
			if err := controllerProgram(os.Args[2], os.Args[3]); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		case "supervise", "health":
			if err := runner.Program(os.Args[1:], "test"); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	goleak.VerifyTestMain(m)
}
