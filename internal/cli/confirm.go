package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/terrier-iac/terrier/internal/fault"
)

// confirmations is the rule that all commands follow, as the help has it.
const confirmations = `Commands that destroy something, or that cannot be undone, ask for a confirmation on a
terminal. Without a terminal they change nothing and exit with 2, unless --yes is given.
They are: approve of a plan that destroys resources, repair, cancel, state push, state
rollback, state accept, retained forget, rollout undo, rows --allow, module retract and
provider retract of a version that stacks use, and break-glass with a command that
changes the state. approve of another plan asks on a terminal only. A
command that names the plan or the lock that it is about does not ask. All other
commands never ask.`

// IsTerminal reports whether a user can answer questions at f.
func IsTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// errNoAnswer is the error of a question without an answer. A script
// that does not know of the question must not take that for success.
var errNoAnswer = fault.New(fault.Invalid, "NoAnswer", errors.New("the question was not answered, so nothing was changed: answer y, or use --yes"))

// agreed asks a question on standard error, unless the user has agreed before, and
// reads the answer. Every answer but yes is a no; the end of input is neither. Without
// a terminal nothing is asked: what a script has on its standard input is no answer.
func (p *printer) agreed(before bool, question string, args ...any) (bool, error) {
	if before {
		return true, nil
	}
	if !p.Terminal {
		return false, fault.New(fault.Invalid, "NoAnswer", fmt.Errorf(question+" There is no terminal to ask this on, so nothing was changed: use --yes", args...))
	}
	p.note(question+" [y/N] ", args...)
	line, err := bufio.NewReader(io.LimitReader(p.Stdin, 100)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("reading the answer: %w", err)
	}
	if errors.Is(err, io.EOF) {
		p.note("\n")
		if line == "" {
			return false, errNoAnswer
		}
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true, nil
	default:
		return false, nil
	}
}
