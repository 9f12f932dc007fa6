package policies

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/terrier-iac/terrier/internal/review/rego"
	"github.com/terrier-iac/terrier/policies"
)

// Tested is what came of the unit tests of one policy. The names of files in it begin with
// its directory, as the user named it.
type Tested struct {
	Policy string `json:"policy"` // its directory
	rego.Tests
	Problems []rego.Problem `json:"problems,omitempty"` // why its tests could not run
}

// OK reports whether all tests passed.
func (t Tested) OK() bool { return len(t.Problems) == 0 && t.Tests.OK() }

// Test runs the unit tests of a directory of policies, each in a scope of its own. Shown is
// how the user named the directory. The filter is a regular expression for names of tests;
// empty for all. A policy that cannot be read or compiled has Problems, and the others are
// tested nevertheless.
func Test(ctx context.Context, where, shown string, o Options, filter string) ([]Tested, error) {
	var dir fs.FS
	info, err := os.Stat(where)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		named, ok := policies.Named(filepath.Base(where))
		if !ok {
			return nil, unknown(filepath.Base(where))
		}
		dir = named
	case err != nil:
		return nil, err
	case !info.IsDir():
		return nil, invalid("%s is a file: name the directory of a policy, or one of several policies", shown)
	default:
		dir = os.DirFS(where)
	}
	options := o.read()
	options.Tests = true
	names, err := rego.Library(dir, options.Format)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		names = []string{"."}
	}
	var out []Tested
	for _, name := range names {
		below, err := fs.Sub(dir, name)
		if err != nil {
			return nil, err
		}
		t := Tested{Policy: path.Join(filepath.ToSlash(shown), name)}
		parts, err := rego.Read(below, options)
		if err == nil {
			t.Tests, err = rego.RunTests(ctx, parts[0].Source, filter)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			t.Problems = rego.Problems(err)
		}
		out = append(out, t.below(t.Policy))
	}
	if filter != "" { // a policy of a library may have no test of that name
		if some := slices.DeleteFunc(slices.Clone(out), func(t Tested) bool { return len(t.Results)+len(t.Problems) == 0 }); len(some) > 0 {
			return some, nil
		}
	}
	return out, nil
}

// below puts a directory in front of all names of files.
func (t Tested) below(dir string) Tested {
	for i := range t.Results {
		r := &t.Results[i]
		for _, at := range []*string{&r.At, &r.Failed} {
			if *at != "" {
				*at = path.Join(dir, *at)
			}
		}
	}
	for i := range t.Files {
		t.Files[i].File = path.Join(dir, t.Files[i].File)
	}
	for i := range t.Problems {
		if t.Problems[i].File != "" {
			t.Problems[i].File = path.Join(dir, t.Problems[i].File)
		}
	}
	return t
}

// TestResult is what came of one unit test.
type TestResult = rego.TestResult

// RuleTrace is what came of one rule of a policy.
type RuleTrace = rego.RuleTrace

// The outcomes of a unit test; any other is that it failed.
const (
	Passed  = rego.Passed
	Errored = rego.Errored
	Skipped = rego.Skipped
)
