package module

import (
	"fmt"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/fault"
)

// Guarded is what to do to a tree so that a module cannot choose its backend.
type Guarded struct {
	Exclude []string // files and directories to leave out, relative to the root module
	Notes   []string // what was done, for people
}

// Guard decides what of a root module has to go for the stack's own backend to
// count. Engines let an override file replace the backend, and of several the
// last by name; tofu reads backend_override.tofu instead of our file; a
// committed .terraform directory remembers a backend and a workspace, and a
// committed state is copied into the new backend by init. A module that says
// such things on purpose, along with others, is refused rather than changed
// behind its author's back. Plain backend and cloud blocks are replaced
// without a word, as they always were.
func Guard(r Root, b Backend) (Guarded, error) {
	var g Guarded
	if r.DataDir {
		g.exclude(".terraform", "a committed .terraform directory is not used: it remembers a backend, a workspace and provider binaries of elsewhere")
	}
	if _, ok := b.(Unset); ok {
		return g, nil
	}
	for _, name := range r.LocalState {
		g.exclude(name, "the committed "+name+" is not used: the state of the stack is kept elsewhere")
	}
	for _, o := range r.overrides {
		if err := g.override(o); err != nil {
			return Guarded{}, fault.New(fault.Denied, "BackendOverridden", err)
		}
	}
	slices.Sort(g.Exclude)
	return g, nil
}

func (g *Guarded) exclude(name, note string) {
	g.Exclude = append(g.Exclude, name)
	g.Notes = append(g.Notes, note)
}

func (g *Guarded) override(o overrideFile) error {
	base := strings.TrimSuffix(BackendPath, ".tf")
	shadows := o.name == base+".tofu"
	switch {
	case o.name == BackendPath:
		g.Notes = append(g.Notes, o.name+" of the module is replaced by the stack's own")
		return nil
	case o.backend == nil && !shadows:
		return nil
	case o.backend != nil && o.only:
		g.exclude(o.name, fmt.Sprintf("%s is not used: it only chooses a backend, and the stack has its own", o.name))
		return nil
	case shadows:
		return fmt.Errorf("%s: the file takes the place of the stack's own %s; give it another name", o.name, BackendPath)
	case strings.Compare(o.name, BackendPath) < 0:
		return nil // Terrier's file comes later and wins
	default:
		return fmt.Errorf("%s:%d: an override file must not hold a %s block, since the stack has its own; remove the block",
			o.name, o.backend.Line, o.backend.Kind)
	}
}
