package query

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/drift"
	"github.com/terrier-iac/terrier/internal/drift/patch"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/source"
	"github.com/terrier-iac/terrier/internal/stack"
)

// DriftDetail is how resources differ from what was applied.
type DriftDetail struct {
	Since       time.Time     `json:"since"`            // when this difference was first seen
	Changes     stack.Changes `json:"changes"`          // that would remediate it
	Name        string        `json:"name,omitempty"`   // of the plan that would
	Digest      string        `json:"digest,omitempty"` // of that plan; empty if it is no longer kept
	Drifted     []plan.Change `json:"drifted"`          // what was changed outside, from what was applied to what is there now
	Remediation []plan.Change `json:"remediation"`      // the changes of that plan
	Mending     []plan.Change `json:"mending"`          // Remediation, under its name of the release before

	// Report has what drifted by resource and attribute: the configured value and the real one.
	Report []drift.Resource `json:"report"`
}

// DriftDetails implements StackDetails. A stack without drift is Missing it.
// A change that no plan would remediate, such as one that the module ignores, can be
// in Drifted and not in Remediation.
func (d *Details) DriftDetails(ctx context.Context, key Key) (DriftDetail, error) {
	st, err := d.stacks.Get(ctx, key)
	if err != nil {
		return DriftDetail{}, err
	}
	if st.Drift == nil {
		return DriftDetail{}, fault.New(fault.Missing, ReasonNoDrift, fmt.Errorf("no drift of the stack %s is known. To check it now: terrier replan", key))
	}
	out := DriftDetail{Since: st.Drift.At, Changes: st.Drift.Changes, Drifted: []plan.Change{}, Remediation: []plan.Change{}, Mending: []plan.Change{}, Report: []drift.Resource{}}
	if st.Plan == nil || !st.Plan.Drift {
		return out, nil
	}
	doc, err := d.stacks.Document(ctx, st.ID(), *st.Plan)
	if fault.Of(err) == fault.Missing {
		return out, nil // what is known without it is shown
	}
	if err != nil {
		return DriftDetail{}, err
	}
	p, err := plan.ParseDocument(doc.Document)
	if err != nil {
		return DriftDetail{}, fmt.Errorf("reading the plan %s: %w", st.Plan.Name, err)
	}
	out.Name, out.Digest = st.Plan.Name, st.Plan.Digest
	out.Drifted, out.Remediation = append(out.Drifted, p.Drift()...), append(out.Remediation, p.Items()...)
	out.Mending, out.Report = out.Remediation, drift.Report(p)
	return out, nil
}

func (d *Details) CheckedAt(ctx context.Context, key Key) (time.Time, error) {
	st, err := d.stacks.Get(ctx, key)
	if err != nil {
		return time.Time{}, err
	}
	return d.records.CheckedAt(ctx, st.ID())
}

// CheckedAt implements DetailRecords. A record that cannot be read counts as unknown:
// the next drift check writes it again.
func (b *Blobs) CheckedAt(ctx context.Context, id StackID) (time.Time, error) {
	if err := CheckID(id, "any"); err != nil {
		return time.Time{}, err
	}
	text, err := b.store.Get(ctx, record.Checked(id.UID).Key)
	if fault.Of(err) == fault.Missing {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("reading the last drift check of %s: %w", id.Key, err)
	}
	kept, err := record.Checked(id.UID).Decode(text)
	if err != nil {
		return time.Time{}, nil
	}
	return kept.At, nil
}

// Besides says which attributes the plan resets although a rule lets them drift, and which rules
// have ended: sentences for the readers of the plan.
func (p PlanInfo) Besides() []string {
	t := p.Tolerated
	if t == nil {
		return nil
	}
	var out []string
	if t.Attributes > 0 {
		text := "The plan also resets " + t.String() + ", which rules let drift: "
		for i, a := range t.Of {
			if i > 0 {
				text += "; "
			}
			text += a.String()
		}
		if more := t.Attributes - len(t.Of); more > 0 {
			text += fmt.Sprintf("; and %d more", more)
		}
		out = append(out, text+".")
	}
	for _, a := range t.Ended {
		out = append(out, "A rule has ended, so that this is drift: "+a.String()+".")
	}
	return out
}

// DriftOrder says which drift a user wants to accept: all of it if nothing is named.
type DriftOrder struct {
	Addresses     []string `json:"addresses,omitempty"`
	Attributes    []string `json:"attributes,omitempty"`    // paths: size, tags["a"]
	IgnoreChanges bool     `json:"ignoreChanges,omitempty"` // have the engine ignore the attributes in place of setting them
}

// DriftPatch is a change of the configuration after which its plan has no changes.
type DriftPatch struct {
	Name   string       `json:"name"`   // of the plan that would enforce the configuration
	Digest string       `json:"digest"` // of that plan: which drift this is
	Of     string       `json:"of"`     // what the patch is for, for people: GitRepository/net at main@sha1:…
	Patch  string       `json:"patch"`  // a unified diff, as "git apply" takes it; empty if nothing can be edited
	Edits  []patch.Edit `json:"edits"`
	Open   []patch.Open `json:"open"` // what no edit accepts
}

// ReasonNoSource is of a source whose files are not kept.
const ReasonNoSource = "SourceNotKept"

// DriftRecords change configurations that are kept.
type DriftRecords interface {
	// ProposeDrift edits the configuration that a stack was planned from. The server knows it:
	// over HTTP only the order counts.
	ProposeDrift(ctx context.Context, id StackID, of Configured, o DriftOrder) (DriftPatch, error)
	// NextCheck says when drift was checked last, and when it is next. It is Missing of a stack
	// that was never checked.
	NextCheck(ctx context.Context, id StackID) (DriftCheck, error)
}

// DriftCheck is when drift of a stack is checked.
type DriftCheck struct {
	Last    time.Time `json:"last,omitzero"`    // zero if the first check is still to come
	Drifted time.Time `json:"drifted,omitzero"` // the last check that found drift
	Next    time.Time `json:"next,omitzero"`    // zero if that is not known, or the stack is suspended
	Why     string    `json:"why,omitempty"`    // why it is then; empty if it is the interval of the stack
}

// NextCheck says when drift of a stack is checked. What the record says of the interval is as of the
// last check: a plan or an apply since then begins another interval.
func (s *Stacks) NextCheck(ctx context.Context, key Key) (DriftCheck, error) {
	o, err := s.Read(ctx, key)
	if err != nil {
		return DriftCheck{}, err
	}
	return s.nextCheck(ctx, o)
}

func (s *Stacks) nextCheck(ctx context.Context, o *Object) (DriftCheck, error) {
	c, err := s.Records.NextCheck(ctx, o.ID())
	if err != nil {
		return DriftCheck{}, err
	}
	m := o.Status
	if o.Spec.Suspended || c.Why == "" && (m.PlannedAt.After(c.Last) || m.AppliedAt.After(c.Last)) {
		c.Next, c.Why = time.Time{}, ""
	}
	return c, nil
}

// NextCheck implements DriftRecords.
func (b *Blobs) NextCheck(ctx context.Context, id StackID) (DriftCheck, error) {
	if err := CheckID(id, "any"); err != nil {
		return DriftCheck{}, err
	}
	text, err := b.store.Get(ctx, record.Checked(id.UID).Key)
	if err != nil && fault.Of(err) != fault.Missing {
		return DriftCheck{}, fmt.Errorf("reading the last drift check of %s: %w", id.Key, err)
	}
	if err == nil {
		if k, err := record.Checked(id.UID).Decode(text); err == nil && !(k.At.IsZero() && k.Next.IsZero()) {
			return DriftCheck{k.At, k.Drifted, k.Next, k.Why}, nil
		}
	}
	return DriftCheck{}, fault.New(fault.Missing, "NotChecked", fmt.Errorf("no drift check of the stack %s is known", id.Key)) // the next one writes it
}

// Configured is the drift of a stack, and its configuration.
type Configured struct {
	Plan   PlanInfo
	Source string // digest of the module tree
	Of     string // what that is, for people
	Inline string // the text of the module, if it is in the object
	Module patch.Module
}

// ConfiguredOf is what the object of a stack says of its configuration.
func ConfiguredOf(o *Object) Configured {
	c := o.Configuration
	out := Configured{Inline: c.Inline, Module: patch.Module{Root: path.Clean("./" + c.Path), Fields: map[string]string{}}}
	if p := o.Status.Pending; p != nil {
		out.Plan, out.Source = *PlanInfoOf(p), p.PlanInputs.Source
	}
	if out.Of = View(o).Source + " at " + out.Plan.Revision; c.Inline != "" {
		out.Of, out.Module.Root = "the module in the object, as main.tf", "."
	}
	for _, v := range c.Vars {
		switch {
		case v.Secret != nil:
			out.Module.Fields[v.Name] = "Secret " + v.Secret.Name + " key " + v.Secret.Key
		case v.Config != nil:
			out.Module.Fields[v.Name] = "ConfigMap " + v.Config.Name + " key " + v.Config.Key
		default:
			out.Module.Fields[v.Name] = "spec.vars of the stack"
		}
	}
	if len(c.Values) > 0 {
		out.Module.Fields["values"] = "spec.values of the stack"
	}
	for _, f := range slices.Backward(c.VarFiles) {
		out.Module.VarFiles = append(out.Module.VarFiles, path.Clean("./"+f))
	}
	return out
}

// DriftIn returns the drift that an order names, from the document of the plan that would enforce
// the configuration. A name that is in none of it is Invalid.
func DriftIn(document []byte, o DriftOrder) ([]drift.Resource, error) {
	p, err := plan.ParseDocument(document)
	if err != nil {
		return nil, err
	}
	chosen, unknown := drift.Choose(drift.Report(p), o.Addresses, o.Attributes)
	if len(unknown) > 0 {
		return nil, fault.New(fault.Invalid, "NotDrifted", fmt.Errorf("no drift of this stack is in %s: terrier drift show lists what drifted", strings.Join(unknown, ", ")))
	}
	return chosen, nil
}

// ProposeDrift returns a change of the configuration that accepts drift. A stack without drift is
// Missing it.
func (s *Stacks) ProposeDrift(ctx context.Context, key Key, order DriftOrder) (DriftPatch, error) {
	o, err := s.Read(ctx, key)
	if err != nil {
		return DriftPatch{}, err
	}
	if o.Invalid != nil {
		return DriftPatch{}, o.Invalid
	}
	if p := o.Status.Pending; p == nil || o.Status.Drift == nil {
		return DriftPatch{}, fault.New(fault.Missing, ReasonNoDrift, fmt.Errorf("no drift of the stack %s is known. To check it now: terrier replan", key))
	}
	return s.Records.ProposeDrift(ctx, View(o).ID(), ConfiguredOf(o), order)
}

// ProposeDrift implements DriftRecords.
func (b *Blobs) ProposeDrift(ctx context.Context, id StackID, of Configured, o DriftOrder) (DriftPatch, error) {
	r, err := b.Plan(ctx, id, of.Plan.Digest)
	if err != nil {
		return DriftPatch{}, err
	}
	document, err := io.ReadAll(io.LimitReader(r, record.MaxBytes))
	if err = errors.Join(err, r.Close()); err != nil {
		return DriftPatch{}, fmt.Errorf("reading the plan %s: %w", of.Plan.Name, err)
	}
	drifted, err := DriftIn(document, o)
	if err != nil {
		return DriftPatch{}, err
	}
	if of.Module.Files, err = configuration(ctx, b, id, of); err != nil {
		return DriftPatch{}, err
	}
	return PatchOf(of, drifted, o)
}

// PatchOf edits a configuration whose files are known.
func PatchOf(of Configured, drifted []drift.Resource, o DriftOrder) (DriftPatch, error) {
	p, err := patch.Propose(of.Module, patch.Wish{Resources: drifted, IgnoreChanges: o.IgnoreChanges})
	if err != nil {
		return DriftPatch{}, err
	}
	text, err := source.Patch(of.Module.Files, p.Files)
	return DriftPatch{Name: of.Plan.Name, Digest: of.Plan.Digest, Of: of.Of, Patch: string(text), Edits: p.Edits, Open: p.Open}, err
}

// configuration reads the files that an edit may be of.
func configuration(ctx context.Context, b *Blobs, id StackID, of Configured) (map[string][]byte, error) {
	if of.Inline != "" {
		return map[string][]byte{"main.tf": []byte(of.Inline)}, nil
	}
	content, err := b.store.Get(ctx, record.Tree(of.Source))
	if fault.Of(err) == fault.Missing {
		content, err = b.store.Get(ctx, record.SweptTree(record.Tree(of.Source)))
	}
	if fault.Of(err) == fault.Missing {
		return nil, fault.New(fault.Missing, ReasonNoSource, fmt.Errorf("the source that %s was planned from is not kept: use --branch, which reads it from git", id.Key))
	}
	if err != nil {
		return nil, fmt.Errorf("reading the source of %s: %w", id.Key, err)
	}
	files, left := map[string]*bytes.Buffer{}, int64(maxConfiguration)
	_, _, err = archive.Read(bytes.NewReader(content), int64(len(content)), archive.Limits{}, func(name string, size int64) io.Writer {
		if name = path.Clean(name); !IsConfiguration(name) || size > left {
			return nil
		}
		left -= size
		files[name] = &bytes.Buffer{}
		return files[name]
	})
	if err != nil {
		return nil, fmt.Errorf("reading the source of %s: %w", id.Key, err)
	}
	out := map[string][]byte{}
	for name, text := range files {
		out[name] = text.Bytes()
	}
	return out, nil
}

// maxConfiguration bounds the files of a source that are read to be edited, in bytes together.
const maxConfiguration = 64 << 20

// IsConfiguration reports whether a file of a source may have a value of a stack.
func IsConfiguration(name string) bool {
	switch path.Ext(name) {
	case ".tf", ".tofu", ".tfvars":
		return true
	default:
		return strings.HasSuffix(name, ".tfvars.json")
	}
}
