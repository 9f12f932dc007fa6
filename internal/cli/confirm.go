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

// errNoAnswer is the error of a question without an answer. A script
// that does not know of the question must not take that for success.
var errNoAnswer = fault.New(fault.Invalid, "NoAnswer", errors.New("the question was not answered, so nothing was changed: answer y, or use --yes"))

// interactive reports whether a person can answer at a terminal.
func (p *printer) interactive() bool {
	f, ok := p.Stdin.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// agreed asks a question on standard error, unless the user has agreed before, and
// reads the answer. Every answer but yes is a no; the end of input is neither.
func (p *printer) agreed(before bool, question string, args ...any) (bool, error) {
	if before {
		return true, nil
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
