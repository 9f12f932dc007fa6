package controller

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/source"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
	"github.com/terrier-iac/terrier/internal/workdir/module"
	"github.com/terrier-iac/terrier/internal/workdir/rendering"
)

// inputs are what a plan is made from, found and resolved.
type inputs struct {
	archive  string // path of the module's archive; empty if it is inline
	engine   string
	module   module.Root
	template string // the text of the module's main.tf.tpl; empty if it has none
	main     []byte // what it was rendered to
	resolved workdir.Resolved
	env      []workdir.Setting // environment of runs
	placed   placed
	mask     []string // values that must not be shown
	public   []string // values that may be, although a Secret holds them
	imports  *workdir.File
}

// findSource resolves the source to an archive on disk.
func (c *Stacks) findSource(ctx context.Context, p *pass) *stack.Blocked {
	ref := p.st.Configuration.Source
	if ref == nil {
		p.o.PlanInputs.Source = stack.Digest(p.st.Configuration.Inline)
		p.o.PlanInputs.Revision = p.o.PlanInputs.Source
		return nil
	}
	key := c.keyOf(*ref, p.obj)
	if key.Namespace != p.obj.GetNamespace() && !c.Config.CrossNamespace {
		return &stack.Blocked{Kind: fault.Denied, Reason: stack.SourceDenied,
			Message: fmt.Sprintf("sourceRef: %s %s is in another namespace, which this platform does not allow", ref.Kind, key)}
	}
	artifact, err := c.artifact(ctx, ref.Kind, key)
	if err != nil {
		return blockedBy(err, stack.SourceNotReady)
	}
	if p.in.archive, err = c.Artifacts.Get(ctx, artifact); err != nil {
		return blockedBy(fmt.Errorf("fetching the artifact of %s %s: %w", ref.Kind, key, err), stack.SourceFailed)
	}
	p.o.PlanInputs.Source, p.o.PlanInputs.Revision = artifact.Digest, artifact.Revision
	return nil
}

// sourceObject is what all kinds of sources have in common.
type sourceObject interface {
	client.Object
	sourcev1.Source
}

// newSource returns an empty source object of a kind.
func newSource(kind string) (sourceObject, error) {
	switch kind {
	case sourcev1.GitRepositoryKind:
		return &sourcev1.GitRepository{}, nil
	case sourcev1.OCIRepositoryKind:
		return &sourcev1.OCIRepository{}, nil
	case sourcev1.BucketKind:
		return &sourcev1.Bucket{}, nil
	default:
		return nil, fault.New(fault.Invalid, "", fmt.Errorf("sourceRef.kind: %q is none of GitRepository, OCIRepository and Bucket", kind))
	}
}

// artifact reads where a source's archive is.
func (c *Stacks) artifact(ctx context.Context, kind string, key types.NamespacedName) (source.Artifact, error) {
	obj, err := newSource(kind)
	if err != nil {
		return source.Artifact{}, err
	}
	if err := c.Client.Get(ctx, key, obj); err != nil {
		if client.IgnoreNotFound(err) == nil {
			err = fault.New(fault.Missing, "", fmt.Errorf("source not found: %s %s does not exist", kind, key))
		}
		return source.Artifact{}, err
	}
	a := obj.GetArtifact()
	if a == nil {
		//lint:ignore ST1005 clients know the message by this beginning
		return source.Artifact{}, fault.New(fault.Missing, "", fmt.Errorf("Source is not ready, artifact not found: %s %s%s", kind, key, notReady(obj)))
	}
	out := source.Artifact{URL: a.URL, Revision: a.Revision, Digest: a.Digest}
	if a.Size != nil {
		out.Size = *a.Size
	}
	return out, nil
}

// sourceSays is how much of what a source says of itself goes into a message.
const sourceSays = 400

// loginInURL is a name and a password in front of a host.
var loginInURL = regexp.MustCompile(`://[^/?#\s"']*@`)

// notReady is what a source says of why it is not ready, as the end of a
// sentence. While it only says that it is at it, that is nothing: the message
// must be the same however often it is made.
func notReady(obj sourceObject) string {
	holder, ok := obj.(interface{ GetConditions() []metav1.Condition })
	if !ok {
		return ""
	}
	r := meta.FindStatusCondition(holder.GetConditions(), "Ready")
	if r == nil || r.Status != metav1.ConditionFalse {
		return ""
	}
	said := loginInURL.ReplaceAllString(strings.Join(strings.Fields(r.Message), " "), "://***@")
	if runes := []rune(said); len(runes) > sourceSays {
		said = string(runes[:sourceSays]) + "…"
	}
	return ": " + r.Reason + ": " + said
}

func (c *Stacks) findEngine(ctx context.Context, p *pass) *stack.Blocked {
	e, err := c.Engine(ctx, p.st.Configuration.Engine)
	if err != nil {
		return blockedBy(err, stack.EngineMissing)
	}
	p.in.engine, p.o.PlanInputs.Engine = e.Path, e.String()
	return nil
}

// findModule reads what the root module declares.
func (c *Stacks) findModule(_ context.Context, p *pass) *stack.Blocked {
	var err error
	if p.st.Configuration.Source == nil {
		p.in.module, err = c.Modules.Inline(p.st.Configuration.Inline, nil)
	} else {
		p.in.module, p.in.template, err = c.Modules.Archive(p.in.archive, p.o.PlanInputs.Source, p.st.Configuration.Path, nil)
	}
	if err != nil {
		return blockedBy(err, stack.ModuleInvalid)
	}
	return nil
}

// findInputs resolves variables, credentials and files.
func (c *Stacks) findInputs(ctx context.Context, p *pass) *stack.Blocked {
	in, err := c.gather(ctx, p)
	if err == nil {
		p.in.placed, err = c.place(ctx, p)
	}
	if err == nil {
		p.in.resolved, err = in.Resolve(p.in.module.Variables)
	}
	if err == nil {
		err = c.complete(p, in)
	}
	var settings []workdir.Setting
	if err == nil {
		settings, err = c.settings(ctx, p)
	}
	if err == nil {
		p.in.env = append(credentials(p.in.resolved.Environment), settings...)
		p.in.resolved.Environment, err = workdir.Environ(p.in.env)
	}
	p.in.mask = append(p.in.mask, p.in.resolved.Secrets...)
	// What another stack published without marking it sensitive stays readable.
	p.in.mask = slices.DeleteFunc(p.in.mask, func(s string) bool { return slices.Contains(p.in.public, s) })
	if err != nil {
		b := blockedBy(err, stack.InputsFailed)
		b.Message = plan.NewRedactor(p.in.mask).String(b.Message) // a template may have said a value
		return b
	}
	p.o.PlanInputs.Inputs = c.keyed([]any{p.in.resolved.Vars, workdir.Lasting(p.in.env), p.in.placed.lasting()})
	return nil
}

// credentials are settings that came out of Secrets, in order.
func credentials(env map[string]string) []workdir.Setting {
	var all []workdir.Setting
	for _, name := range slices.Sorted(maps.Keys(env)) {
		all = append(all, workdir.Setting{Name: name, Value: env[name], Secret: true})
	}
	return all
}

// complete looks at the module again with the configuration that is not in its
// source: main.tf, if it is a template, and files that the stack brings.
func (c *Stacks) complete(p *pass, in workdir.Inputs) error {
	extra := map[string][]byte{}
	for _, f := range p.in.placed.work {
		if workdir.IsConfiguration(f.Path) {
			extra[f.Path] = f.Content
		}
	}
	if p.in.template != "" {
		var err error
		if p.in.main, err = rendering.Main(p.in.template, p.in.data(in, p.st.Configuration)); err != nil {
			return err
		}
		extra[workdir.InlinePath] = p.in.main
	}
	if len(extra) == 0 {
		return nil
	}
	var err error
	if p.st.Configuration.Source == nil {
		if extra[workdir.InlinePath] != nil {
			return fault.New(fault.Invalid, "", errors.New("fileMappings: main.tf is the module of the stack itself"))
		}
		p.in.module, err = c.Modules.Inline(p.st.Configuration.Inline, extra)
	} else {
		p.in.module, _, err = c.Modules.Archive(p.in.archive, p.o.PlanInputs.Source, p.st.Configuration.Path, extra)
	}
	if err == nil { // what is declared in there decides what is a variable
		p.in.resolved, err = in.Resolve(p.in.module.Variables)
	}
	return err
}

// data are the variables that a template sees: all of them, and what else comes
// from where they come from.
func (in *inputs) data(all workdir.Inputs, prog stack.Configuration) map[string]rendering.Datum {
	data := map[string]rendering.Datum{}
	for name, value := range in.resolved.Environment {
		text, _ := json.Marshal(value) // a string always encodes
		data[name] = rendering.Datum{Value: text, Foreign: true}
	}
	foreign := map[string]bool{}
	for _, v := range prog.Vars {
		foreign[v.Name] = v.Secret != nil || v.Config != nil
	}
	for _, f := range all.From {
		for name := range f.Data {
			foreign[name] = true
		}
	}
	for name, value := range in.resolved.Vars {
		data[name] = rendering.Datum{Value: value, Foreign: foreign[name]}
	}
	if _, replaced := foreign["values"]; !replaced && len(prog.Inputs) > 0 && len(prog.Values) > 0 {
		data["values"] = rendering.Datum{Value: in.resolved.Vars["values"], Source: prog.Values}
	}
	return data
}

const keyedPrefix = "hmac-sha256:"

// keyed hashes resolved inputs under the platform's key: the digest stands in
// the status, and must not let anybody try passwords against it.
func (c *Stacks) keyed(what any) string {
	b, err := json.Marshal(what)
	if err != nil {
		panic("controller: hashing inputs: " + err.Error()) // JSON values and strings
	}
	mac := hmac.New(sha256.New, []byte(c.Key.Reveal()))
	mac.Write(b)
	return keyedPrefix + hex.EncodeToString(mac.Sum(nil))
}

// gather reads every Secret and ConfigMap that the stack names.
func (c *Stacks) gather(ctx context.Context, p *pass) (workdir.Inputs, error) {
	var in workdir.Inputs
	var err error
	if in.Values, err = c.values(ctx, p); err != nil {
		return in, err
	}
	for _, v := range p.st.Configuration.Vars {
		value, ok, err := c.variable(ctx, p, v)
		if err != nil {
			return in, err
		}
		if ok {
			in.Vars = append(in.Vars, workdir.Var{Name: v.Name, Value: value})
		}
	}
	for _, f := range p.st.Configuration.VarsFrom {
		all, public, err := c.read(ctx, p, f.Kind, f.Name)
		if fault.Of(err) == fault.Missing && f.Optional {
			continue
		}
		var data map[string][]byte
		if err == nil {
			data, err = choose(all, f)
		}
		if err != nil {
			return in, fmt.Errorf("varsFrom: %w", err)
		}
		for _, key := range public {
			p.in.public = append(p.in.public, spellings(all[key])...)
		}
		for _, value := range data {
			if f.Kind == "Secret" {
				p.in.mask = append(p.in.mask, spellings(value)...)
			}
		}
		in.From = append(in.From, workdir.From{Name: f.Kind + " " + f.Name, Secret: f.Kind == "Secret", Data: data})
	}
	return in, nil
}

// values renders the variable named values over the outputs of other stacks.
func (c *Stacks) values(ctx context.Context, p *pass) (json.RawMessage, error) {
	outputs := map[string]map[string]json.RawMessage{}
	for _, input := range p.st.Configuration.Inputs {
		data, public, err := c.read(ctx, p, "Secret", input.Secret)
		if err != nil {
			return nil, fmt.Errorf("readInputsFromSecrets: %w", err)
		}
		if outputs[input.As], err = kube.DecodeOutputs(data); err != nil {
			return nil, fmt.Errorf("readInputsFromSecrets: Secret %s: %w", input.Secret, err)
		}
		for key, value := range data {
			if !slices.Contains(public, key) && !strings.HasSuffix(key, "__type") {
				p.in.mask = append(p.in.mask, spellings(value)...)
			}
		}
	}
	if len(p.st.Configuration.Values) == 0 {
		return nil, nil
	}
	v, err := workdir.Values(p.st.Configuration.Values, outputs)
	if err != nil {
		return nil, fmt.Errorf("values: %w", err)
	}
	return v, nil
}

// variable returns the value of one variable; ok is false if it has none and
// need not have one.
func (c *Stacks) variable(ctx context.Context, p *pass, v stack.Var) (value json.RawMessage, ok bool, err error) {
	ref, kind := v.Secret, "Secret"
	if ref == nil {
		ref, kind = v.Config, "ConfigMap"
	}
	var text []byte
	switch {
	case v.Field != "":
		text = []byte(fieldOf(p.obj, v.Field))
	case ref == nil:
		return v.Value, len(v.Value) > 0, nil
	default:
		if text, ok, err = c.key(ctx, p, kind, *ref); err != nil {
			return nil, false, fmt.Errorf("vars: %s: %w", v.Name, err)
		}
		if !ok {
			return nil, false, nil
		}
	}
	if !utf8.Valid(text) {
		return nil, false, fault.New(fault.Invalid, "", fmt.Errorf("vars: %s: the value is not text, and a variable can only hold text", v.Name))
	}
	value, err = json.Marshal(string(text))
	return value, true, err
}

// read returns the data of a Secret or ConfigMap in the stack's namespace, and
// which keys of it are no secrets.
func (c *Stacks) read(ctx context.Context, p *pass, kind, name string) (data map[string][]byte, public []string, err error) {
	key := types.NamespacedName{Namespace: p.obj.GetNamespace(), Name: name}
	if kind == "ConfigMap" {
		data, err = kube.ReadConfigMap(ctx, c.Live, key)
		return data, slices.Collect(maps.Keys(data)), err
	}
	return kube.ReadSecret(ctx, c.Live, key)
}

// choose picks and renames keys as varsKeys says. A key that is not there is
// an error, so that no variable silently becomes empty.
func choose(data map[string][]byte, f stack.VarsFrom) (map[string][]byte, error) {
	if len(f.Keys) == 0 {
		return data, nil
	}
	out := map[string][]byte{}
	for _, k := range f.Keys {
		from, to, renamed := strings.Cut(k, ":")
		if !renamed {
			to = from
		}
		value, ok := data[from]
		if !ok {
			if f.Optional {
				continue
			}
			return nil, fault.New(fault.Missing, "", fmt.Errorf("%s %s has no key %q", f.Kind, f.Name, from))
		}
		out[to] = value
	}
	return out, nil
}
