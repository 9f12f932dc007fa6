package input

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
	"github.com/terrier-iac/terrier/internal/workdir/module"
	"github.com/terrier-iac/terrier/internal/workdir/rendering"
)

// Resolver resolves the inputs of one stack.
type Resolver struct {
	Reader        Reader
	Key           secret.Text // keys digests of inputs
	Refer         Refer       // nil allows no other namespace
	Settable      []string    // reserved environment variables that stacks may set
	Object        Object
	Configuration stack.Configuration
}

// Refer returns an error unless the stack may use a source that it names with a
// namespace.
type Refer func(context.Context, stack.Ref) error

// Module is the root module that inputs are for.
type Module struct {
	Root     module.Root
	Template string // the text of its main.tf.tpl; empty if it has none
	// With reads the module again, with files beside its own.
	With func(files map[string][]byte) (module.Root, error)
}

// Inputs are what the runs of a stack are given.
type Inputs struct {
	Resolved workdir.Resolved
	Files    Files
	Scripts  Scripts
	Main     []byte      // what the template of the module was rendered to; nil if it has none
	Module   module.Root // with the configuration that is not in its source
	Mask     []string    // values that must not be shown

	Digest      string    // of all that a plan depends on
	Credentials string    // of credentials that a plan does not depend on and a destroy will need
	Until       time.Time // when the first of them stops being valid; zero if none does

	digest func(destroy stack.ScriptText) string
}

// DigestWith is what Digest would be with another script that destroys: its text, or the path
// of its file with the arguments.
func (in Inputs) DigestWith(destroy stack.ScriptText) string { return in.digest(destroy) }

// Resolve resolves everything that runs are given. What must not be shown (Mask)
// is valid with an error, too: the error may quote a value.
func (r Resolver) Resolve(ctx context.Context, m Module) (Inputs, error) {
	s := r.begin()
	out := Inputs{Module: m.Root}
	err := s.resolve(ctx, m, &out)
	s.mask = append(s.mask, out.Resolved.Secrets...)
	// What another stack published without marking it sensitive stays readable.
	out.Mask = slices.DeleteFunc(s.mask, func(text string) bool { return slices.Contains(s.public, text) })
	return out, err
}

// resolution is one reading of the inputs. It collects what must be hidden.
type resolution struct {
	Resolver
	mask     []string // values that must not be shown
	public   []string // values that may be, although a Secret holds them
	versions []string // of sources that have some
	until    time.Time
	made     int // values that are made when a run begins

	held  map[stack.Ref]Value // what was read: a source that is named often is read once
	bytes int                 // of what was read, and of what was made of it
}

// maxBytes bounds what one stack may read of sources, with the copies that are made of it.
// A stack that names a large Secret thousands of times would take the controller with it.
const maxBytes = 64 << 20

func (r Resolver) begin() *resolution {
	return &resolution{Resolver: r, held: map[stack.Ref]Value{}}
}

// take counts bytes, and refuses them where there are too many.
func (s *resolution) take(n int) error {
	if s.bytes += n; s.bytes > maxBytes {
		return fault.New(fault.Invalid, "InputsTooLarge", fmt.Errorf("the Secrets, ConfigMaps and other sources that the stack names have more than %d MiB, each counted as often as it is used: name fewer, or smaller ones", maxBytes>>20))
	}
	return nil
}

func (s *resolution) resolve(ctx context.Context, m Module, out *Inputs) error {
	in, err := s.gather(ctx)
	if err != nil {
		return err
	}
	if out.Files, err = s.files(ctx); err != nil {
		return err
	}
	if out.Resolved, err = in.Resolve(m.Root.Variables); err != nil {
		return err
	}
	if err = s.complete(m, in, out); err != nil {
		return err
	}
	environment, err := s.environment(ctx)
	if err != nil {
		return err
	}
	environment = append(credentials(out.Resolved.Environment), environment...)
	if out.Resolved.Environment, err = workdir.Environ(environment, s.Settable...); err != nil {
		return err
	}
	if out.Scripts, err = s.scripts(ctx); err != nil {
		return err
	}
	parts := []any{out.Resolved.Vars, workdir.Lasting(environment), out.Files.lasting()}
	if len(s.versions) > 0 {
		parts = append(parts, s.versions)
	}
	out.digest = func(destroy stack.ScriptText) string {
		return Digest(s.Key, s.withScripts(parts, out.Scripts.Apply, destroy))
	}
	out.Until = s.until
	var own stack.ScriptText
	if of := s.Configuration.Script; of != nil {
		own = stack.ScriptText{Text: string(out.Scripts.Destroy), Path: of.Destroy.Path, Args: of.Destroy.Args}
	}
	out.Digest = out.digest(own)
	out.Credentials = Digest(s.Key, []any{environment, out.Files.CLI, out.Files.Settings})
	return nil
}

// credentials are variables of the environment that came out of Secrets, in order.
func credentials(env map[string]string) []workdir.Setting {
	var all []workdir.Setting
	for _, name := range slices.Sorted(maps.Keys(env)) {
		all = append(all, workdir.Setting{Name: name, Value: env[name], Secret: true})
	}
	return all
}

// complete reads the module again with the configuration that is not in its
// source: main.tf, if it is a template, and files that the stack brings.
func (s *resolution) complete(m Module, in workdir.Inputs, out *Inputs) error {
	extra := map[string][]byte{}
	for _, f := range out.Files.Work {
		if workdir.IsConfiguration(f.Path) {
			extra[f.Path] = f.Content
		}
	}
	if m.Template != "" {
		var err error
		if out.Main, err = rendering.Main(m.Template, data(out.Resolved, in, s.Configuration)); err != nil {
			return err
		}
		extra[workdir.InlinePath] = out.Main
	}
	if len(extra) == 0 {
		return nil
	}
	if s.Configuration.Source == nil && extra[workdir.InlinePath] != nil {
		return fault.New(fault.Invalid, "", errors.New("fileMappings: main.tf is the module of the stack itself"))
	}
	var err error
	if out.Module, err = m.With(extra); err == nil { // what is declared in there decides what is a variable
		out.Resolved, err = in.Resolve(out.Module.Variables)
	}
	return err
}

// data are the variables that a template sees: all of them, and what else comes
// from where they come from.
func data(resolved workdir.Resolved, all workdir.Inputs, c stack.Configuration) map[string]rendering.Datum {
	data := map[string]rendering.Datum{}
	for name, value := range resolved.Environment {
		text, _ := json.Marshal(value) // a string always encodes
		data[name] = rendering.Datum{Value: text, Foreign: true}
	}
	foreign := map[string]bool{}
	for _, v := range c.Vars {
		foreign[v.Name] = v.Secret != nil || v.Config != nil
	}
	for _, f := range all.From {
		for name := range f.Data {
			foreign[name] = true
		}
	}
	for name, value := range resolved.Vars {
		data[name] = rendering.Datum{Value: value, Foreign: foreign[name]}
	}
	if _, replaced := foreign["values"]; !replaced && len(c.Inputs) > 0 && len(c.Values) > 0 {
		data["values"] = rendering.Datum{Value: resolved.Vars["values"], Source: c.Values}
	}
	return data
}

// DigestPrefix begins every Digest.
const DigestPrefix = "hmac-sha256:"

// Digest hashes resolved inputs under the platform's key: the digest stands in
// the status, and must not let a reader of the status try passwords against it.
func Digest(key secret.Text, what any) string {
	b, err := json.Marshal(what)
	if err != nil {
		panic("input: hashing inputs: " + err.Error()) // JSON values and strings
	}
	mac := hmac.New(sha256.New, []byte(key.Reveal()))
	mac.Write(b)
	return DigestPrefix + hex.EncodeToString(mac.Sum(nil))
}

// gather reads every source of variables.
func (s *resolution) gather(ctx context.Context) (workdir.Inputs, error) {
	in := workdir.Inputs{Settable: s.Settable}
	var err error
	if in.Values, err = s.values(ctx); err != nil {
		return in, err
	}
	for _, v := range s.Configuration.Vars {
		value, ok, err := s.variable(ctx, v)
		if err != nil {
			return in, err
		}
		if ok {
			in.Vars = append(in.Vars, workdir.Var{Name: v.Name, Value: value})
		}
	}
	for _, f := range s.Configuration.VarsFrom {
		all, err := s.read(ctx, f.Kind, f.Name)
		if fault.Of(err) == fault.Missing && f.Optional {
			continue
		}
		if err == nil && all.Made {
			err = notInPlan(f.Name)
		}
		var data map[string][]byte
		if err == nil {
			data, err = choose(all.Data, f)
		}
		if err == nil {
			err = s.take(size(data))
		}
		if err != nil {
			return in, fmt.Errorf("varsFrom: %w", err)
		}
		for _, key := range all.Public {
			s.public = append(s.public, spellings(all.Data[key])...)
		}
		for _, value := range data {
			if HoldsSecrets(f.Kind) {
				s.mask = append(s.mask, spellings(value)...)
			}
		}
		in.From = append(in.From, workdir.From{Name: f.Kind + " " + f.Name, Secret: HoldsSecrets(f.Kind), Data: data})
	}
	return in, nil
}

// values renders the variable named values over the outputs of other stacks.
func (s *resolution) values(ctx context.Context) (json.RawMessage, error) {
	outputs := map[string]map[string]json.RawMessage{}
	for _, input := range s.Configuration.Inputs {
		published, err := s.read(ctx, Secret, input.Secret)
		if err == nil && published.Made {
			err = notInPlan(input.Secret)
		}
		if err != nil {
			return nil, fmt.Errorf("readInputsFromSecrets: %w", err)
		}
		if err := s.take(size(published.Data)); err != nil {
			return nil, fmt.Errorf("readInputsFromSecrets: %w", err)
		}
		if outputs[input.As], err = workdir.PublishedOutputs(published.Data); err != nil {
			return nil, fmt.Errorf("readInputsFromSecrets: Secret %s: %w", input.Secret, err)
		}
		for key, value := range published.Data {
			if !published.isPublic(key) && !strings.HasSuffix(key, workdir.OutputType) {
				s.mask = append(s.mask, spellings(value)...)
			}
		}
	}
	if len(s.Configuration.Values) == 0 {
		return nil, nil
	}
	v, err := workdir.Values(s.Configuration.Values, outputs)
	if err != nil {
		return nil, fmt.Errorf("values: %w", err)
	}
	return v, nil
}

// variable returns the value of one variable; ok is false if it has none and
// need not have one.
func (s *resolution) variable(ctx context.Context, v stack.Var) (value json.RawMessage, ok bool, err error) {
	ref, kind := v.Secret, Secret
	if ref == nil {
		ref, kind = v.Config, ConfigMap
	}
	var text []byte
	switch {
	case v.Field != "":
		of := s.Object.Field(v.Field)
		if err := s.take(len(of)); err != nil {
			return nil, false, fmt.Errorf("vars: %s: %w", v.Name, err)
		}
		text = []byte(of)
	case ref == nil:
		return v.Value, len(v.Value) > 0, nil
	default:
		made := s.made
		if text, ok, err = s.key(ctx, kind, *ref); err == nil && s.made > made {
			err = notInPlan(ref.Name)
		}
		if err != nil {
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

// read returns what a source in the namespace of the stack holds.
func (s *resolution) read(ctx context.Context, kind, name string) (Value, error) {
	return s.readFrom(ctx, stack.Ref{Kind: kind, Namespace: s.Object.Namespace, Name: name})
}

func (s *resolution) readFrom(ctx context.Context, ref stack.Ref) (Value, error) {
	v, known := s.held[ref]
	if !known {
		var err error
		if v, err = Read(ctx, s.Reader, ref); err != nil {
			return Value{}, err
		}
		if err := s.take(size(v.Data)); err != nil {
			return Value{}, err
		}
		s.held[ref] = v
	}
	s.note(v)
	return v, nil
}

func size(data map[string][]byte) (n int) {
	for key, value := range data {
		n += len(key) + len(value)
	}
	return n
}

// note remembers what a value says of itself.
func (s *resolution) note(v Value) {
	if v.Version != "" {
		s.versions = append(s.versions, v.Version)
	}
	if !v.Until.IsZero() && (s.until.IsZero() || v.Until.Before(s.until)) {
		s.until = v.Until
	}
}

// key reads one key of a source. What it holds is hidden from then on unless it
// is public. It is an error if there is none, unless that is allowed.
func (s *resolution) key(ctx context.Context, kind string, ref stack.KeyRef) (value []byte, found bool, err error) {
	all, err := s.read(ctx, kind, ref.Name)
	if err == nil && all.Made {
		text, err := s.stands(ref.Name, ref.Key)
		return []byte(text), err == nil, err
	}
	value, found = all.Data[ref.Key]
	switch {
	case ref.Optional && (fault.Of(err) == fault.Missing || err == nil && !found):
		return nil, false, nil
	case err != nil:
		return nil, false, err
	case !found:
		return nil, false, fault.New(fault.Missing, "", fmt.Errorf("%s %s has no key %q", kind, ref.Name, ref.Key))
	}
	if err := s.take(len(value)); err != nil {
		return nil, false, err
	}
	if HoldsSecrets(kind) && !all.isPublic(ref.Key) {
		s.mask = append(s.mask, string(value))
	}
	return value, true, nil
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
