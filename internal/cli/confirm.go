package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// confirm asks a question on standard error and reads the answer. Whatever is
// not a yes is a no, and so is the end of input: a script that does not know of
// the question changes nothing.
func (p *program) confirm(question string) (bool, error) {
	if _, err := fmt.Fprintf(p.Stderr, "%s [y/N] ", question); err != nil {
		return false, err
	}
	line, err := bufio.NewReader(io.LimitReader(p.Stdin, 100)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("reading the answer: %w", err)
	}
	if errors.Is(err, io.EOF) {
		if _, err := fmt.Fprintln(p.Stderr); err != nil {
			return false, err
		}
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true, nil
	default:
		return false, nil
	}
}
