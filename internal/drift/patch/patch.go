// Package patch changes the configuration of a module so that it says what is really there: it
// edits the text of HCL files in place, so that comments, order and formatting stay. It edits
// literals. A value that comes from elsewhere is followed through variables and locals to a
// literal, or else the place is named that has it. It reads texts and writes none.
//
// Start reading at Propose.
package patch

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/drift"
	"github.com/terrier-iac/terrier/internal/fault"
)

// Module is the configuration of a stack.
type Module struct {
	Files map[string][]byte // texts by their paths in the source
	Root  string            // the directory of the root module in the source; "." for its root

	// Where the variables of the root module get their values from, the strongest first: fields
	// of the object, by variable, and files of the source.
	Fields   map[string]string // spec.vars, Secret NAME key KEY
	VarFiles []string          // paths in the source, the strongest first
}

// Wish is what a user wants to be accepted.
type Wish struct {
	Resources     []drift.Resource // see drift.Choose
	IgnoreChanges bool             // the attributes are to be ignored from now on, and keep their configured values
}

// Edit is one change of the configuration.
type Edit struct {
	Address   string `json:"address"`
	Attribute string `json:"attribute,omitempty"` // empty if it is of the whole resource
	File      string `json:"file"`
	Line      int    `json:"line"` // before the edit
	What      string `json:"what"` // a clause: size = 3 becomes size = 5
}

// Open is what no edit accepts, and why.
type Open struct {
	Address   string `json:"address"`
	Attribute string `json:"attribute,omitempty"`
	Where     string `json:"where,omitempty"` // main.tf:12, or spec.vars of the stack
	Why       string `json:"why"`             // a sentence, with the way out
}

// Proposal is a change of the configuration.
type Proposal struct {
	Files map[string][]byte `json:"-"` // the texts that change, by path
	Edits []Edit            `json:"edits"`
	Open  []Open            `json:"open"`
}

// Propose changes a module so that its plan does not change these resources. What cannot be
// edited is in Open. A file that cannot be parsed is Invalid.
func Propose(m Module, w Wish) (Proposal, error) {
	if m.Root == "" {
		m.Root = "."
	}
	p := &proposer{Module: m, wish: w, out: Proposal{Edits: []Edit{}, Open: []Open{}}, parsed: map[string]*text{}}
	for _, r := range w.Resources {
		if err := p.resource(r); err != nil {
			return Proposal{}, err
		}
	}
	p.out.Files = map[string][]byte{}
	for name, t := range p.parsed {
		after, err := t.edited()
		if err != nil {
			return Proposal{}, err
		}
		if !bytes.Equal(after, m.Files[name]) {
			p.out.Files[name] = after
		}
	}
	return p.out, nil
}

type proposer struct {
	Module
	wish   Wish
	out    Proposal
	parsed map[string]*text
}

func (p *proposer) open(r drift.Resource, attribute, where, format string, args ...any) {
	p.out.Open = append(p.out.Open, Open{Address: r.Address, Attribute: attribute, Where: where, Why: fmt.Sprintf(format, args...)})
}

// resource accepts what one resource is.
func (p *proposer) resource(r drift.Resource) error {
	if r.How == drift.Other {
		p.open(r, "", "", "The plan would %s it, which is no drift of an attribute. Approve the plan, or edit the configuration.", r.Action)
		return nil
	}
	s, why, err := p.scope(r.Module)
	if err != nil {
		return err
	}
	if why != "" {
		p.open(r, "", "", "%s", why)
		return nil
	}
	b, err := s.resource(r.Type, r.Name)
	if err != nil {
		return err
	}
	if b == nil {
		p.open(r, "", s.dir, "No file of this module has the block resource %q %q.", r.Type, r.Name)
		return nil
	}
	if (r.Keyed || s.repeated) && !p.wish.IgnoreChanges {
		what := "It is one of several instances: a literal in its block is of all of them. Edit the values of count or for_each, or use --ignore-changes."
		p.open(r, "", b.place(), "%s", what)
		return nil
	}
	switch {
	case r.How == drift.Absent && p.wish.IgnoreChanges:
		p.open(r, "", b.place(), "It is not there, and ignore_changes is for attributes. Accept it without --ignore-changes, which removes its block.")
	case r.How == drift.Absent:
		return p.remove(r, s, b)
	case p.wish.IgnoreChanges:
		p.ignore(r, b)
	default:
		return p.attributes(r, s, b)
	}
	return nil
}

// remove takes the block of a resource that is gone out of the configuration, unless something
// else refers to it.
func (p *proposer) remove(r drift.Resource, s *scope, b *block) error {
	users, err := s.referrers(r.Type, r.Name, b)
	if err != nil {
		return err
	}
	if len(users) > 0 {
		p.open(r, "", strings.Join(users, ", "), "Something else refers to it, so that its block is not removed. Remove these references as well, and then the block at %s.", b.place())
		return nil
	}
	b.file.removeLines(b.syntax.Range())
	p.out.Edits = append(p.out.Edits, Edit{Address: r.Address, File: b.file.name, Line: b.syntax.Range().Start.Line,
		What: "its block is removed: the resource is gone, so that the next plan takes it out of the state and destroys nothing. A removed block is not needed"})
	return nil
}

// attributes has the configuration say what is there.
func (p *proposer) attributes(r drift.Resource, s *scope, b *block) error {
	for _, group := range grouped(r.Attributes, b) {
		if group.sensitive {
			p.open(r, group.path, b.place(), "Its value is sensitive, and is not written into a configuration. Change the Secret that has it, or use --ignore-changes.")
			continue
		}
		where, why, err := p.value(r, s, b, group)
		if err != nil {
			return err
		}
		if why != "" {
			p.open(r, group.path, where, "%s", why)
		}
	}
	return nil
}

// change is one attribute, or several that come or go together: all of what is in rule[1].
type change struct {
	path             string
	steps            []step
	configured, real any
	sensitive        bool
}

// grouped joins attributes in one element that is not configured at all, or not there at all: a
// block or an entry that something else added or removed. So it does with the entries of a map
// that the block does not set.
func grouped(list []drift.Attribute, b *block) []change {
	var all []change
	for _, a := range list {
		steps, ok := parsePath(a.Path)
		all = append(all, change{path: a.Path, steps: steps, configured: a.Configured, real: a.Real, sensitive: a.Sensitive || !ok || holdsMask(a.Real)})
	}
	var out []change
	done := map[string]bool{}
	for _, c := range all {
		n := len(c.steps)
		if i := lastIndex(c.steps); i > 0 && i == n-2 {
			n = i + 1
		} else if n == 2 && c.steps[1].number < 0 && !c.steps[1].json && c.configured == nil && b.syntax.Body.Attributes[c.steps[0].name] == nil && len(b.nested(c.steps[0].name)) == 0 {
			n = 1
		}
		if n == len(c.steps) {
			out = append(out, c)
			continue
		}
		prefix := pathOf(c.steps[:n])
		one, whole := joined(all, c.steps[:n])
		switch {
		case !whole:
			out = append(out, c)
		case !done[prefix]:
			done[prefix] = true
			out = append(out, one)
		}
	}
	return out
}

// joined is one element with all attributes in it, and whether nothing of it is configured, or
// nothing of it is there.
func joined(all []change, steps []step) (change, bool) {
	out := change{path: pathOf(steps), steps: steps}
	is, was := map[string]any{}, map[string]any{}
	for _, c := range all {
		if len(c.steps) <= len(steps) || !slices.Equal(c.steps[:len(steps)], steps) {
			continue
		}
		name := c.steps[len(steps)]
		if len(c.steps) != len(steps)+1 || name.number >= 0 || name.json {
			return out, false
		}
		out.sensitive = out.sensitive || c.sensitive
		if c.real != nil {
			is[name.name] = c.real
		}
		if c.configured != nil {
			was[name.name] = c.configured
		}
	}
	switch {
	case len(was) == 0:
		out.real = is
	case len(is) == 0:
		out.configured = was
	default:
		return out, false
	}
	return out, true
}

// inDir reports whether a file is in a directory, and not below it.
func inDir(name, dir string) bool { return path.Dir(name) == path.Clean(dir) }

func invalidFile(name string, err error) error {
	return fault.New(fault.Invalid, "ModuleInvalid", fmt.Errorf("%s: %w", name, err))
}
