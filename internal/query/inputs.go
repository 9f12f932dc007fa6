package query

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/input"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// InputInfo is one thing that goes into the runs of a stack: what it is called
// there and where it comes from. The value is set only for variables whose value
// is in the object itself, which a user who may see the stack may see.
type InputInfo struct {
	Name      string    `json:"name,omitempty"` // of the variable, or of what Kind says; empty for all keys of the origin
	Kind      InputKind `json:"kind"`
	Origin    string    `json:"origin"` // spec.vars, or Secret NAME key KEY
	Sensitive bool      `json:"sensitive,omitempty"`
	Missing   bool      `json:"missing,omitempty"`  // its origin does not exist, or does not have it
	Optional  bool      `json:"optional,omitempty"` // and that is no failure
	Replaced  bool      `json:"replaced,omitempty"` // by one of the same name that is further down

	Value json.RawMessage `json:"value,omitempty"` // as spec.vars has it; not if the module, or its name, says that it is sensitive
}

// InputKind is what an input becomes.
type InputKind string

// The kinds of input.
const (
	InputVariable    InputKind = "variable"
	InputOutputs     InputKind = "outputs"     // of another stack, for templates in values; its name is the one they know it by
	InputEnvironment InputKind = "environment" // of the engine
	InputFile        InputKind = "file"        // in the run's directory, or in its home
	InputBackend     InputKind = "backend"     // a setting that completes the backend
)

// Inputs implements StackDetails. They are in the order in which they count:
// of two variables of one name the later one wins.
func (d *Details) Inputs(ctx context.Context, key Key) ([]InputInfo, error) {
	o, err := d.stacks.Read(ctx, key)
	if err != nil {
		return nil, err
	}
	if o.Invalid != nil {
		return nil, o.Invalid // it names the field
	}
	p := o.Configuration
	in := &inputsOf{ctx: ctx, details: d, stack: key, namespace: key.Namespace, read: map[string]holding{}, environment: o.View.Environment}
	for _, f := range p.VarFiles {
		in.add(InputInfo{Name: f, Kind: InputFile, Origin: "spec.tfVarsFiles"})
	}
	for _, i := range p.Inputs {
		in.whole(InputInfo{Name: i.As, Kind: InputOutputs}, "Secret", i.Secret)
	}
	if len(p.Values) > 0 {
		in.add(InputInfo{Name: "values", Kind: InputVariable, Origin: "spec.values"})
	}
	for _, v := range p.Vars {
		in.variable(v)
	}
	for _, f := range p.VarsFrom {
		in.from(f)
	}
	for _, f := range p.EnvFrom {
		in.each(InputInfo{Kind: InputEnvironment, Optional: f.Optional}, f.Kind, f.Name, f.Prefix)
	}
	for _, v := range p.Env {
		in.single(InputInfo{Name: v.Name, Kind: InputEnvironment}, o.Spec.Words.Environment, v.Secret, v.Config, v.Field)
	}
	in.files(p)
	return in.result()
}

// variable is one of spec.vars.
func (in *inputsOf) variable(v stack.Var) {
	i := InputInfo{Name: v.Name, Kind: InputVariable}
	if v.Secret == nil && v.Config == nil && v.Field == "" {
		if i.Sensitive = in.hides(v.Name); !i.Sensitive {
			i.Value, i.Sensitive = legible(v.Value)
		}
	}
	in.single(i, "spec.vars", v.Secret, v.Config, v.Field)
}

// legible is a value without what its names say is secret. It is sensitive if that
// cannot be found out.
func legible(value json.RawMessage) (shown json.RawMessage, sensitive bool) {
	if len(value) == 0 {
		return nil, false
	}
	var v any
	if json.Unmarshal(value, &v) != nil {
		return nil, true
	}
	masked, n := plan.MaskNamed(v)
	if n == 0 {
		return value, false
	}
	b, err := json.Marshal(masked)
	if err != nil {
		return nil, true
	}
	return b, false
}

// hides reports whether the value of a variable must not be shown: its name says so, or
// the module as the kept plan has it. If there is no such plan yet, or if it cannot be
// read now, no value is shown.
func (in *inputsOf) hides(name string) bool {
	if in.module == nil {
		in.module = func(string) bool { return true }
		if doc, err := in.details.stacks.Plan(in.ctx, in.stack, ""); err == nil {
			if p, err := plan.ParseDocument(doc.Document); err == nil {
				in.module = p.Hides
			}
		}
	}
	return plan.Telling(name) || in.module(name)
}

// inputsOf collects the inputs of one stack. Each object is read once.
type inputsOf struct {
	ctx         context.Context
	details     *Details
	stack       Key
	namespace   string
	environment []string // names of variables that runs were given
	read        map[string]holding
	module      func(variable string) bool // whether it is sensitive; nil until it is asked for
	out         []InputInfo
	err         error
}

// holding is which keys an object holds, and which of them are no secrets. The
// values are forgotten as soon as they were read.
type holding struct {
	keys   []string
	public []string
	absent bool
}

func (in *inputsOf) add(i InputInfo) { in.out = append(in.out, i) }

// result says which inputs are replaced by later ones.
func (in *inputsOf) result() ([]InputInfo, error) {
	if in.err != nil {
		return nil, in.err
	}
	later := map[[2]string]bool{}
	for i := len(in.out) - 1; i >= 0; i-- {
		x := &in.out[i]
		name := [2]string{string(x.Kind), x.Name}
		if x.Kind != InputVariable && x.Kind != InputEnvironment || x.Name == "" || x.Missing {
			continue
		}
		x.Replaced, later[name] = later[name], true
	}
	return in.out, nil
}

// holdingOf reads which keys an object holds.
func (in *inputsOf) holdingOf(kind, name string) holding {
	id := kind + " " + name
	if h, known := in.read[id]; known || in.err != nil {
		return h
	}
	var h holding
	v, err := input.Read(in.ctx, kube.Objects{Client: in.details.stacks.Kube}, stack.Ref{Kind: kind, Namespace: in.namespace, Name: name})
	h.public = v.Public
	if fault.Of(err) == fault.Missing {
		h.absent, err = true, nil
	}
	if err != nil {
		in.err = fmt.Errorf("looking at the %s %s: %w", kind, name, err)
	}
	h.keys = slices.Sorted(maps.Keys(v.Data))
	in.read[id] = h
	return h
}

// single is one input that may come from anywhere.
func (in *inputsOf) single(i InputInfo, field string, secret, config *stack.KeyRef, of string) {
	switch {
	case secret != nil:
		in.key(i, "Secret", *secret)
	case config != nil:
		in.key(i, "ConfigMap", *config)
	case of != "":
		i.Origin = "field " + of
		in.add(i)
	default:
		i.Origin = field
		in.add(i)
	}
}

// key is an input that is one key of an object.
func (in *inputsOf) key(i InputInfo, kind string, ref stack.KeyRef) {
	h := in.holdingOf(kind, ref.Name)
	i.Origin = fmt.Sprintf("%s %s key %s", kind, ref.Name, ref.Key)
	i.Missing = !slices.Contains(h.keys, ref.Key)
	i.Optional = i.Optional || ref.Optional
	i.Sensitive = input.HoldsSecrets(kind) && !slices.Contains(h.public, ref.Key)
	in.add(i)
}

// whole is an input that is all of an object, under one name. It is sensitive if
// anything in it is; the types of outputs that stand beside them are not.
func (in *inputsOf) whole(i InputInfo, kind, name string) {
	h := in.holdingOf(kind, name)
	i.Origin, i.Missing = kind+" "+name, h.absent
	i.Sensitive = input.HoldsSecrets(kind) && (h.absent || slices.ContainsFunc(h.keys, func(k string) bool {
		return !slices.Contains(h.public, strings.TrimSuffix(k, workdir.OutputType))
	}))
	in.add(i)
}

// each makes an input of every key of an object; of one that is not there, one
// without a name.
func (in *inputsOf) each(i InputInfo, kind, name, prefix string) {
	h := in.holdingOf(kind, name)
	if h.absent {
		in.whole(i, kind, name)
		return
	}
	for _, key := range h.keys {
		i.Name = prefix + key
		in.key(i, kind, stack.KeyRef{Name: name, Key: key})
	}
}

// from are variables out of an object. What a Secret holds may have become
// environment instead: that was decided by what the module declares, and is in
// the status.
func (in *inputsOf) from(f stack.VarsFrom) {
	start := len(in.out)
	if len(f.Keys) == 0 {
		in.each(InputInfo{Kind: InputVariable, Optional: f.Optional}, f.Kind, f.Name, "")
	}
	for _, k := range f.Keys {
		from, to, renamed := strings.Cut(k, ":")
		if !renamed {
			to = from
		}
		in.key(InputInfo{Name: to, Kind: InputVariable, Optional: f.Optional}, f.Kind, stack.KeyRef{Name: f.Name, Key: from})
	}
	for i := range in.out[start:] {
		if x := &in.out[start+i]; input.HoldsSecrets(f.Kind) && slices.Contains(in.environment, x.Name) {
			x.Kind = InputEnvironment
		}
	}
}

// files are inputs that become files, and settings of the backend.
func (in *inputsOf) files(p stack.Configuration) {
	for _, f := range p.Files {
		i := InputInfo{Name: f.Path, Kind: InputFile}
		if f.Home {
			i.Name = "~/" + f.Path
		}
		in.key(i, "Secret", f.Secret)
	}
	cli := InputInfo{Name: "configuration of the command line", Kind: InputFile}
	switch r := p.CLIConfig; {
	case r == nil:
	case r.Namespace != "" && r.Namespace != in.namespace:
		cli.Origin, cli.Sensitive, cli.Missing = "Secret "+r.Namespace+"/"+r.Name, true, true // it is not read from there
		in.add(cli)
	default:
		in.whole(cli, "Secret", r.Name)
	}
	for _, c := range p.Completes {
		i := InputInfo{Kind: InputBackend, Optional: c.Optional}
		if len(c.Keys) == 0 {
			in.each(i, c.Kind, c.Name, "")
		}
		for _, key := range c.Keys {
			i.Name = key
			in.key(i, c.Kind, stack.KeyRef{Name: c.Name, Key: key})
		}
	}
}
