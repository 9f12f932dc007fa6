// Package aftersteps makes the steps of a run out of those that a stack asks for after its
// applies, finds whether the files that they use are others, and writes what no run may write:
// the targets of a monitoring, and the hosts in a git repository. It runs nothing.
//
// Start reading at Job, then at Files.Digest.
package aftersteps

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/afterapply"
	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Job are the steps of a run. Those that succeeded before the last run of the same died are
// not run again.
func Job(steps []afterapply.Step, outputs map[string]kube.Output, before []stack.StepResult, tree Tree) []runner.AfterStep {
	values := valuesOf(outputs)
	var all []runner.AfterStep
	for _, s := range steps {
		g, err := s.Given(values)
		step := runner.AfterStep{Name: s.Name, Argv: g.Argv, Outputs: g.Outputs, Hosts: g.Hosts, SSH: g.SSH, Said: g.Said, Timeout: g.Timeout, Retries: s.Retries, Pause: g.Pause}
		if err != nil {
			if step.Broken = err.Error(); outputs == nil {
				step.Broken += ". No outputs are known: if the module has any, the next plan reads them (terrier replan)"
			}
		} else if s.Inventory != nil {
			step.Said, step.Broken = tree.inventory(*s.Inventory, g.Written)
		}
		for _, f := range g.Files {
			step.Files = append(step.Files, runner.StepFile{Name: f.Name, Content: f.Content})
		}
		if i := slices.IndexFunc(before, func(r stack.StepResult) bool { return r.Name == s.Name && r.State == stack.StepSucceeded }); i >= 0 {
			step.Done = &before[i]
		}
		all = append(all, step)
	}
	return all
}

func valuesOf(outputs map[string]kube.Output) map[string]afterapply.Output {
	values := map[string]afterapply.Output{}
	for name, o := range outputs {
		values[name] = afterapply.Output{Value: o.Value, Sensitive: o.Sensitive}
	}
	return values
}

// filesKept is how many digests are remembered.
const filesKept = 4096

// Files knows the digests of files in archives. Its zero value is ready.
type Files struct {
	known cache.Map[string, string]
}

// Digest is the digest of the files and directories that steps use, in the archive of a
// source with a root module at a path. It is empty if they use none, or there is no archive.
func (f *Files) Digest(file, digest, module string, steps []afterapply.Step) (string, error) {
	uses := Used(module, steps)
	if file == "" || len(uses) == 0 {
		return "", nil
	}
	f.known.Size = filesKept
	key := digest + " " + stack.Digest(uses)
	if known, ok := f.known.Get(key); ok {
		return known, nil
	}
	found, err := digestOf(file, uses)
	if err == nil {
		f.known.Put(key, found)
	}
	return found, err
}

// Used are the files and directories that steps use, from the root of the source, which is the
// empty path. A change of them runs the steps again.
func Used(module string, steps []afterapply.Step) []string {
	return paths(module, steps, afterapply.Step.Uses)
}

// Beside are the directories that steps may read beside what they use, likewise.
func Beside(module string, steps []afterapply.Step) []string {
	return paths(module, steps, afterapply.Step.Beside)
}

func paths(module string, steps []afterapply.Step, of func(afterapply.Step) []string) []string {
	var all []string
	for _, s := range steps {
		for _, p := range of(s) {
			all = append(all, path.Join("/", module, p)[1:]) // as far up as the root
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func digestOf(file string, uses []string) (string, error) {
	in, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return "", err
	}
	contents := map[string]hash.Hash{}
	if _, _, err := archive.Read(in, info.Size(), archive.Limits{}, func(name string, _ int64) io.Writer {
		name = path.Clean(name)
		if !slices.ContainsFunc(uses, func(u string) bool { return u == "" || name == u || strings.HasPrefix(name, u+"/") }) {
			return nil
		}
		contents[name] = sha256.New()
		return contents[name]
	}); err != nil {
		return "", fmt.Errorf("reading the source: %w", err)
	}
	sums := map[string]string{}
	for name, h := range contents {
		sums[name] = hex.EncodeToString(h.Sum(nil))
	}
	return stack.Digest(sums), nil
}
