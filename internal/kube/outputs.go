package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// Output is one output value of a state.
type Output struct {
	Value     json.RawMessage `json:"value"`
	Type      json.RawMessage `json:"type"`
	Sensitive bool            `json:"sensitive,omitempty"`
}

// MarkSecret marks outputs as sensitive that hold a value from a Secret, as those
// that the module declares so: their readers have to hide them, too.
func MarkSecret(outputs map[string]Output, hidden plan.Prints) {
	for name, o := range outputs {
		if !o.Sensitive && hidden.Holds(o.Value) {
			o.Sensitive = true
			outputs[name] = o
		}
	}
}

// Annotations of a Secret with outputs.
const (
	publicOutputs = "terrier.dev/public-outputs" // keys that are not sensitive, separated by commas
	outputsDigest = "terrier.dev/outputs-digest" // of the data as it was written

	allPublic   = "*"
	publicBytes = 64 << 10 // all annotations together may have 256 KiB
)

// Published is what a Secret with outputs holds.
type Published struct {
	Data   map[string][]byte
	Public []string // keys of outputs that are not sensitive
}

// Count is how many outputs p holds; the keys of types do not count.
func (p Published) Count() int {
	n := len(p.Data)
	for k := range p.Data {
		if _, of := p.Data[strings.TrimSuffix(k, workdir.OutputType)]; of && strings.HasSuffix(k, workdir.OutputType) {
			n--
		}
	}
	return n
}

// EncodeOutputs turns outputs into the data of a Secret the way that tofu-controller
// writes it: a string as its bytes; any other value as
// JSON, with its type as JSON under <key>__type, both as the engine prints them.
func EncodeOutputs(outputs map[string]Output, want []string) (Published, error) {
	if len(want) == 0 {
		want = slices.Sorted(maps.Keys(outputs))
	}
	p := Published{Data: map[string][]byte{}}
	taken := claims{}
	var err error
	for _, w := range slices.Compact(slices.Sorted(slices.Values(want))) {
		name, key := stack.SelectedOutput(w)
		o, ok := outputs[name]
		if !ok {
			return Published{}, fault.New(fault.Invalid, "OutputMissing", fmt.Errorf("writeOutputsToSecret.outputs names %q, which the module does not output", name))
		}
		if !stack.IsSecretKey(key) {
			return Published{}, fault.New(fault.Invalid, "OutputKeyInvalid", fmt.Errorf("the output %q would have the key %q, which a Secret cannot have; a key has %s: give it another key with an entry OUTPUT:KEY in writeOutputsToSecret.outputs", name, key, stack.SecretKeys))
		}
		if err := taken.take(key, fmt.Sprintf("the output %q", name)); err != nil {
			return Published{}, err
		}
		if !o.Sensitive {
			p.Public = append(p.Public, key)
		}
		var text string
		if bytes.Equal(bytes.TrimSpace(o.Type), []byte(`"string"`)) && json.Unmarshal(o.Value, &text) == nil {
			p.Data[key] = []byte(text)
			continue
		}
		if err := taken.take(key+workdir.OutputType, fmt.Sprintf("the type of the output %q", name)); err != nil {
			return Published{}, err
		}
		if p.Data[key], err = printed(o.Value); err == nil {
			p.Data[key+workdir.OutputType], err = printed(o.Type)
		}
		if err != nil {
			return Published{}, fmt.Errorf("reading the output %q: %w", name, err)
		}
	}
	return p, nil
}

// claims are the keys of a Secret, and what each is for.
type claims map[string]string

func (c claims) take(key, by string) error {
	if other, ok := c[key]; ok {
		return fault.New(fault.Invalid, "OutputKeyTaken", fmt.Errorf("%s and %s would both have the key %q of the Secret: give one of them another key with an entry OUTPUT:KEY in writeOutputsToSecret.outputs", other, by, key))
	}
	c[key] = by
	return nil
}

// printed is JSON as "output -json" prints a value or its type, three levels
// deep in a document: the form that upstream writes, so that a Secret that is
// taken over keeps every byte.
func printed(v json.RawMessage) ([]byte, error) {
	var b bytes.Buffer
	if err := json.Indent(&b, bytes.TrimSpace(v), "    ", "  "); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// Writing is the result of WriteOutputs.
type Writing struct {
	Changed bool
	Version string // the resource version at which the Secret holds exactly this; empty if it has parts, which have versions of their own
}

// WriteOutputs makes the Secret hold exactly p. It refuses a Secret that another
// controller owns, or that holds data of another writer: the author of a stack
// need not have the right to overwrite every Secret. It writes nothing when
// nothing would change. Outputs that outgrow a Secret are spread over several,
// and this one names the others. First says that the caller has published none
// before, which saves a read of a Secret that most likely does not exist.
func WriteOutputs(ctx context.Context, c client.Client, owner client.Object, to stack.Outputs, p Published, first bool) (Writing, error) {
	s, err := divide(p.Data)
	if err != nil {
		return Writing{}, err
	}
	names := s.names(to.Secret, stack.Digest(p.Data))
	if err := writeParts(ctx, c, owner, to.Secret, s, names); err != nil {
		return Writing{}, err
	}
	w := outputsWriter{c: c, owner: owner, to: to, p: p, s: s, names: names}
	before, done, err := w.write(ctx, first)
	if err == nil && len(before)+len(names) > 0 {
		done.Version = ""
		err = dropParts(ctx, c, owner, to.Secret, before, names)
	}
	return done, err
}

// outputsWriter writes the Secret that was asked for.
type outputsWriter struct {
	c     client.Client
	owner client.Object
	to    stack.Outputs
	p     Published
	s     spread
	names []string // of the parts
}

// write also returns the names of the parts that the Secret had before.
func (w outputsWriter) write(ctx context.Context, first bool) (parts []string, done Writing, err error) {
	if first {
		done, err = w.create(ctx)
		// A quota refuses one more Secret before the server notices that the Secret
		// exists already.
		if kind := fault.Of(err); kind != fault.Conflict && kind != fault.Denied {
			return nil, done, err
		}
	}
	key := types.NamespacedName{Namespace: w.owner.GetNamespace(), Name: w.to.Secret}
	var secret corev1.Secret
	err = w.c.Get(ctx, key, &secret)
	if apierrors.IsNotFound(err) {
		done, err = w.create(ctx)
		return nil, done, err
	}
	if err != nil {
		return nil, Writing{}, mark(err, "Secret", key)
	}
	if _, ours := secret.Annotations[outputsDigest]; !ours && len(secret.Data) > 0 && !metav1.IsControlledBy(&secret, w.owner) {
		return nil, Writing{}, fault.New(fault.Denied, "SecretOwned",
			fmt.Errorf("writeOutputsToSecret.name: Terrier did not write the data of the Secret %s: delete the Secret, or choose another name", key))
	}
	before := secret.DeepCopy()
	if named := before.Annotations[outputsParts]; named != "" {
		parts = strings.Split(named, ",")
	}
	if err := w.dress(&secret); err != nil {
		return parts, Writing{}, err
	}
	if maps.EqualFunc(before.Data, secret.Data, bytes.Equal) && maps.Equal(before.Labels, secret.Labels) &&
		maps.Equal(before.Annotations, secret.Annotations) && metav1.IsControlledBy(before, w.owner) {
		return parts, Writing{Version: before.ResourceVersion}, nil
	}
	err = w.c.Update(ctx, &secret, client.FieldOwner(FieldManager))
	return parts, Writing{Changed: true, Version: secret.ResourceVersion}, mark(err, "Secret", key)
}

// create makes the Secret; a Conflict if there is one.
func (w outputsWriter) create(ctx context.Context) (Writing, error) {
	secret := corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: w.to.Secret, Namespace: w.owner.GetNamespace()}, Type: corev1.SecretTypeOpaque}
	if err := w.dress(&secret); err != nil {
		return Writing{}, err
	}
	err := w.c.Create(ctx, &secret, client.FieldOwner(FieldManager))
	return Writing{Changed: true, Version: secret.ResourceVersion}, mark(err, "Secret", client.ObjectKeyFromObject(&secret))
}

// dress gives a Secret its data, labels, annotations and owner.
func (w outputsWriter) dress(s *corev1.Secret) error {
	if err := controllerutil.SetControllerReference(w.owner, s, w.c.Scheme()); err != nil {
		return fault.New(fault.Denied, "SecretOwned", fmt.Errorf("writeOutputsToSecret.name: another controller owns the Secret %s/%s: %w", s.Namespace, s.Name, err))
	}
	s.Data = w.s.first
	s.Labels = merged(s.Labels, w.to.Labels)
	s.Annotations = merged(s.Annotations, w.to.Annotations)
	s.Annotations = merged(s.Annotations, map[string]string{outputsDigest: stack.Digest(w.s.first), publicOutputs: w.p.public()})
	delete(s.Annotations, outputsParts)
	delete(s.Annotations, outputsCut)
	if len(w.names) > 0 {
		s.Annotations[outputsParts] = strings.Join(w.names, ",")
	}
	if len(w.s.cut) > 0 {
		s.Annotations[outputsCut] = strings.Join(w.s.cut, ",")
	}
	return nil
}

// public names the keys that are not sensitive. If there are too many to name
// them, and one key is sensitive, all count as sensitive.
func (p Published) public() string {
	names := strings.Join(p.Public, ",")
	switch {
	case len(names) <= publicBytes:
		return names
	case len(p.Public) == p.Count():
		return allPublic
	default:
		return ""
	}
}

func merged(a, b map[string]string) map[string]string {
	if len(b) == 0 {
		return a
	}
	out := maps.Clone(a)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, b)
	return out
}

// OutputsIntact reports whether the Secret holds the outputs that were written,
// and the resource version that alone proves it; empty if the Secret has parts.
func OutputsIntact(ctx context.Context, c client.Reader, key types.NamespacedName) (intact bool, version string, err error) {
	var s corev1.Secret
	if err := c.Get(ctx, key, &s); err != nil {
		return false, "", mark(err, "Secret", key)
	}
	if s.Annotations[outputsDigest] != stack.Digest(s.Data) {
		return false, "", nil
	}
	if _, err := assemble(ctx, c, &s); err != nil {
		if kind := fault.Of(err); kind == fault.Missing || kind == fault.Broken {
			return false, "", nil
		}
		return false, "", err
	}
	if s.Annotations[outputsParts] == "" {
		version = s.ResourceVersion
	}
	return true, version, nil
}
