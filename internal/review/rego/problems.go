package rego

import (
	"errors"
	"fmt"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Problem is one thing that is wrong with a policy.
type Problem struct {
	File    string `json:"file,omitempty"` // below the directory of the policy; empty if no file is to blame
	Line    int    `json:"line,omitempty"`
	Message string `json:"message"`
}

// At is where it is: FILE:LINE.
func (p Problem) At() string {
	if p.File == "" {
		return ""
	}
	return fmt.Sprintf("%s:%d", p.File, p.Line)
}

// Problems are what an error of Read, Compile or RunTests is about, one for each place.
func Problems(err error) []Problem {
	errs, ok := errors.AsType[ast.Errors](err)
	if !ok {
		return []Problem{{Message: err.Error()}}
	}
	var out []Problem
	for _, e := range errs {
		p := Problem{Message: e.Message}
		if e.Location != nil {
			p.File, p.Line = e.Location.File, e.Location.Row
		}
		out = append(out, p)
	}
	return out
}
