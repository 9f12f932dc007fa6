package runner_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/script"
	"github.com/terrier-iac/terrier/internal/runner/sealer"
	"github.com/terrier-iac/terrier/internal/sandbox"
)

// TestMain makes the test binary its own supervisor program, and the checker
// that a supervisor starts.
func TestMain(m *testing.M) {
	endsWithItsParent()
	beAnother()
	sandbox.Main()
	script.Main()
	sealer.Main()
	if len(os.Args) > 1 && (os.Args[1] == "supervise" || os.Args[1] == "health") {
		if err := runner.Program(os.Args[1:], "test"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}
