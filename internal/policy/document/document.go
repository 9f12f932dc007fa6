// Package document makes what policies in Rego see of a plan: their input. It is made
// from the masked document of the plan, so no sensitive value is in it, and says nothing
// that is not known: a value that only the apply will show is absent, and listed.
//
// Start reading at Facts and Make. docs/policy-rego.md describes every field.
package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/policy"
)

// Facts are what policies are told beside the plan. What is not known is the zero value.
type Facts struct {
	Stack     Stack      `json:"stack"`
	Tenant    *Tenant    `json:"tenant,omitempty"`
	Source    Source     `json:"source"`
	Modules   []Module   `json:"modules"`
	Providers []Provider `json:"providers"`
	// Incomplete says why Modules and Providers are not complete. A policy about modules
	// holds such a plan.
	Incomplete []string  `json:"incomplete"`
	Engine     string    `json:"engine,omitempty"` // tofu 1.12.6
	Run        Run       `json:"run"`
	Requester  string    `json:"requester,omitempty"` // the user who asked for the change, as the API server stamped it
	Previous   *Previous `json:"previous,omitempty"`  // what was applied last
	Now        time.Time `json:"now,omitzero"`        // when the plan is judged; time.now_ns() is the same
}

// Stack is the object whose plan it is.
type Stack struct {
	Kind        string            `json:"kind"`
	Namespace   string            `json:"namespace"`
	Name        string            `json:"name"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	Environment string            `json:"environment,omitempty"`
	Tenant      string            `json:"tenant,omitempty"`
	Mode        string            `json:"mode,omitempty"`
	Workspace   string            `json:"workspace,omitempty"`
	Path        string            `json:"path,omitempty"`
}

// Tenant is the row that the stack was made for.
type Tenant struct {
	Name     string            `json:"name"`
	Registry string            `json:"registry,omitempty"`
	Template string            `json:"template,omitempty"`
	ID       string            `json:"id,omitempty"`
	Labels   map[string]string `json:"labels"`
}

// Source is where the module of the stack comes from.
type Source struct {
	Kind     string `json:"kind,omitempty"` // GitRepository, OCIRepository, Bucket; empty of an inline module
	URL      string `json:"url,omitempty"`  // without credentials
	Revision string `json:"revision,omitempty"`
	Digest   string `json:"digest,omitempty"`
	Tag      string `json:"tag,omitempty"`
	Range    string `json:"range,omitempty"` // the versions of which the newest is taken
	Branch   string `json:"branch,omitempty"`
	Pinned   bool   `json:"pinned"`        // the object names a digest or a commit, so that nothing else is taken
	Age      int64  `json:"age,omitempty"` // seconds since the revision was first seen
	Signed   bool   `json:"signed"`        // a signature was verified
	Signer   string `json:"signer,omitempty"`

	Signature policy.Signature `json:"signature"`
	Besides   []string         `json:"besides,omitempty"` // fields by which the runs have code that is not in the source
}

// Module is one call of a module, also of those that modules call.
type Module struct {
	Path       string `json:"path"`   // module.network.module.subnets
	Parent     string `json:"parent"` // the path of the module that calls; empty for the root module
	Declared   string `json:"declared,omitempty"`
	Constraint string `json:"constraint,omitempty"`
	Source     string `json:"source,omitempty"`    // as init resolved it
	Kind       string `json:"kind,omitempty"`      // registry, git, oci, archive or local
	Address    string `json:"address,omitempty"`   // host/namespace/name/system, or a URL without credentials
	Directory  string `json:"directory,omitempty"` // below the address
	Version    string `json:"version,omitempty"`
	Commit     string `json:"commit,omitempty"`
}

// Provider is one provider of the configuration.
type Provider struct {
	Source      string   `json:"source"` // registry.opentofu.org/hashicorp/aws
	Version     string   `json:"version,omitempty"`
	Constraints []string `json:"constraints"`
}

// Run is the run that made the plan.
type Run struct {
	Kind     string `json:"kind,omitempty"`
	Cause    string `json:"cause,omitempty"`
	Deletion bool   `json:"deletion"` // the object is being deleted
}

// Previous is the plan that was applied last.
type Previous struct {
	Name      string         `json:"name,omitempty"`
	Digest    string         `json:"digest,omitempty"`
	AppliedAt time.Time      `json:"appliedAt,omitzero"`
	Counts    map[string]int `json:"counts"`
}

// Make returns the input of policies as JSON values, with numbers as json.Number. Masked is
// the masked document of the plan, as it is recorded.
func Make(masked []byte, f Facts) (map[string]any, error) {
	doc, err := plan.ParseDocument(masked)
	if err != nil {
		return nil, err
	}
	decoded, err := decode(masked)
	if err != nil {
		return nil, err
	}
	f.Source.URL, _ = plan.MaskURLs(f.Source.URL)
	f.Stack.Annotations = annotations(f.Stack.Annotations)
	if f.Modules == nil {
		f.Modules = declared(decoded)
		if slices.ContainsFunc(f.Modules, func(m Module) bool { return m.Kind != local }) {
			f.Incomplete = append(slices.Clone(f.Incomplete), "how modules were resolved is not recorded")
		}
	}
	for i := range f.Modules {
		m := &f.Modules[i]
		for _, text := range []*string{&m.Declared, &m.Source, &m.Address} {
			*text, _ = plan.MaskURLs(*text)
		}
	}
	out, err := object(f)
	if err != nil {
		return nil, err
	}
	for _, key := range []string{"modules", "providers", "incomplete"} {
		if out[key] == nil {
			out[key] = []any{}
		}
	}
	changes := changesOf(doc.Items(), decoded["resource_changes"])
	out["plan"] = decoded
	out["changes"] = changes
	out["drift"] = changesOf(doc.Drift(), decoded["resource_drift"])
	out["counts"] = Counts(doc)
	return out, nil
}

// Early returns the part of the input that is known of a stack before it has a plan.
func Early(f Facts) (map[string]any, error) {
	f.Source.URL, _ = plan.MaskURLs(f.Source.URL)
	f.Stack.Annotations = annotations(f.Stack.Annotations)
	return object(f)
}

// Counts says how many resources a plan does what with. Each resource counts once, by its
// kind of change.
func Counts(doc *plan.Document) map[string]any {
	counts := map[string]any{}
	for _, a := range []plan.Action{plan.Create, plan.Update, plan.Replace, plan.Delete, plan.Forget, plan.Import, plan.Move, plan.Read} {
		counts[string(a)] = 0
	}
	for _, c := range doc.Items() {
		k := kindOf(c)
		n, _ := counts[k].(int)
		counts[k] = n + 1
	}
	counts["outputs"] = len(doc.Outputs())
	return counts
}

// kindOf is the kind of a change. A resource that is forgotten and created again is
// replaced: what it was is not there any more.
func kindOf(c plan.Change) string {
	if c.Action == plan.ForgetCreate {
		return string(plan.Replace)
	}
	return string(c.Action)
}

// changesOf are changes as policies see them. Items are those of the document; raw are all
// entries of the section, with the same subtrees that the plan has.
func changesOf(items []plan.Change, raw any) []any {
	type key struct{ address, deposed string }
	byKey := map[key]map[string]any{}
	entries, _ := raw.([]any)
	for _, e := range entries {
		if m, ok := e.(map[string]any); ok {
			address, _ := m["address"].(string)
			deposed, _ := m["deposed"].(string)
			byKey[key{address, deposed}] = m
		}
	}
	out := []any{}
	for _, c := range items {
		entry := byKey[key{c.Address, c.Deposed}]
		change, _ := entry["change"].(map[string]any)
		one := map[string]any{
			"address": c.Address, "module": c.Module, "mode": c.Mode, "type": c.Type, "name": c.Name, "provider": c.Provider,
			"actions": list(change["actions"]), "kind": kindOf(c),
			"before": change["before"], "after": change["after"],
			"unknown":    paths(change["after_unknown"]),
			"sensitive":  either(change["before_sensitive"], change["after_sensitive"]),
			"attributes": changed(c),
		}
		for name, value := range map[string]string{"previous": c.Previous, "deposed": c.Deposed, "reason": c.Reason, "importing": c.Import} {
			if value != "" {
				one[name] = value
			}
		}
		out = append(out, one)
	}
	return out
}

func list(v any) []any {
	if l, ok := v.([]any); ok {
		return l
	}
	return []any{}
}

// changed are the paths of the attributes that a change is about.
func changed(c plan.Change) []any {
	out := []any{}
	for _, d := range c.Diffs {
		out = append(out, d.Path)
	}
	return out
}

// pathsMost bounds the paths of one change.
const pathsMost = 1000

// paths are the places that a tree of marks marks: tags.Name, rule[0].port.
func paths(marks any) []any {
	out := []any{}
	marked("", marks, &out)
	return out
}

func either(a, b any) []any {
	out := paths(a)
	for _, p := range paths(b) {
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

func marked(at string, marks any, out *[]any) {
	if len(*out) >= pathsMost {
		return
	}
	switch m := marks.(type) {
	case bool:
		if m {
			*out = append(*out, at)
		}
	case map[string]any:
		names := make([]string, 0, len(m))
		for name := range m {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			marked(below(at, name), m[name], out)
		}
	case []any:
		for i, item := range m {
			marked(fmt.Sprintf("%s[%d]", at, i), item, out)
		}
	}
}

// below is the path of a member, as plan.Diff writes it.
func below(at, name string) string {
	plain := name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return r != '_' && r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
	switch {
	case !plain:
		return fmt.Sprintf("%s[%q]", at, name)
	case at == "":
		return name
	default:
		return at + "." + name
	}
}

// annotations are those that a policy may see: not those of Terrier, and not what kubectl
// keeps for itself, which is the whole object.
func annotations(all map[string]string) map[string]string {
	out := map[string]string{}
	for name, value := range all {
		if !strings.HasPrefix(name, "kubectl.kubernetes.io/") && !strings.HasPrefix(name, "terrier.dev/") {
			out[name] = value
		}
	}
	return out
}

// local is the kind of a module in a directory beside the module that calls it.
const local = "local"

// declared are the calls of modules as the configuration has them, when it is not known
// how they were resolved.
func declared(doc map[string]any) []Module {
	config, _ := doc["configuration"].(map[string]any)
	root, _ := config["root_module"].(map[string]any)
	var out []Module
	calls("", root, &out)
	slices.SortFunc(out, func(a, b Module) int { return strings.Compare(a.Path, b.Path) })
	return out
}

func calls(parent string, module map[string]any, out *[]Module) {
	all, _ := module["module_calls"].(map[string]any)
	for name, c := range all {
		call, _ := c.(map[string]any)
		m := Module{Path: strings.TrimPrefix(parent+".module."+name, "."), Parent: parent}
		m.Declared, _ = call["source"].(string)
		m.Constraint, _ = call["version_constraint"].(string)
		if strings.HasPrefix(m.Declared, "./") || strings.HasPrefix(m.Declared, "../") {
			m.Kind = local
		}
		*out = append(*out, m)
		inner, _ := call["module"].(map[string]any)
		calls(m.Path, inner, out)
	}
}

// object is a value as JSON values.
func object(v any) (map[string]any, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encoding the input of policies: %w", err)
	}
	return decode(b)
}

func decode(b []byte) (map[string]any, error) {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var out map[string]any
	err := dec.Decode(&out)
	if err == nil && out == nil {
		err = errors.New("it is no object")
	}
	if err != nil {
		return nil, fault.New(fault.Invalid, "PlanUnreadable", fmt.Errorf("reading the document of the plan: %w", err))
	}
	return out, nil
}
