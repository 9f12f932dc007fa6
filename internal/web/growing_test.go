package web

import (
	"io"
	"strings"

	"github.com/terrier-iac/terrier/internal/runner"
)

// growing is a run whose log has always more to read.
type growing struct{ line string }

func newGrowing() growing { return growing{strings.Repeat("x", 4095) + "\n"} }

func (growing) Current(string) (*runner.Report, error) {
	return &runner.Report{ID: "plan-1", Phase: runner.Planning}, nil
}

func (g growing) Open(string, string, string) (io.ReadCloser, error) { return io.NopCloser(g), nil }

func (g growing) Read(p []byte) (int, error) { return copy(p, g.line), nil }
