// Package prerequisites finds whether what stacks wait for is there. It reads objects,
// outputs and files with the rights of the stack, and asks other systems through package
// outbound, beside the reconciles. It writes nothing, and makes nothing that is missing. What
// a prerequisite is, and when it is met, is in package prerequisite.
//
// Start reading at Checker.Check.
package prerequisites

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"

	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/controller/provenance"
	"github.com/terrier-iac/terrier/internal/controller/sources"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/prerequisite"
	"github.com/terrier-iac/terrier/internal/source"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Bounds of the files that are read.
const (
	maxFile   = 1 << 20  // bytes of one
	keptFiles = 16 << 20 // bytes of all that are remembered
)

// readWithin is how long one object may take: the API server waits for a minute for the server
// or the webhook behind some kinds, and the pass with it.
const readWithin = 5 * time.Second

// Checker finds whether prerequisites are met.
type Checker struct {
	Cache     client.Reader // has sources and stacks
	Kinds     interface{ RESTMapper() meta.RESTMapper }
	Dialects  dialect.Registry
	Artifacts interface {
		Get(ctx context.Context, a source.Artifact) (path string, err error)
	}
	// Outputs are those of the newest state of a stack, by its UID, with those marked that
	// must not be shown; Missing if they are not known.
	Outputs func(ctx context.Context, uid string) (map[string]kube.Output, error)
	Prober  *Prober // nil asks no other system

	within time.Duration // readWithin if zero
	once   sync.Once
	files  *cache.Map[fileKey, file]
}

// Stack is a stack that waits for prerequisites.
type Stack struct {
	ID        string
	Namespace string
	Dialect   dialect.Dialect
	Source    *stack.Ref                                 // nil if its module is inline
	Reader    client.Reader                              // reads objects with the rights that the stack has
	Refer     func(context.Context, kube.Referent) error // Denied unless it may refer to an object
	Wake      func()                                     // once a system has answered
}

// Check finds what is known of each prerequisite. Its error is one of the API server, and
// passes.
func (c *Checker) Check(ctx context.Context, s Stack, all []prerequisite.Prerequisite) ([]prerequisite.Result, error) {
	results := []prerequisite.Result{}
	silent := map[string]bool{} // groups whose server did not answer: the others of them are not asked in this pass
	for _, p := range all {
		r, err := c.check(ctx, s, p, silent)
		if err != nil {
			return nil, fmt.Errorf("checking the prerequisite %s: %w", p.Name, err)
		}
		r.Name = p.Name
		results = append(results, r)
	}
	return results, nil
}

func (c *Checker) check(ctx context.Context, s Stack, p prerequisite.Prerequisite, silent map[string]bool) (prerequisite.Result, error) {
	switch {
	case p.Object != nil:
		return c.object(ctx, s, *p.Object, silent)
	case p.Output != nil:
		return c.output(ctx, s, *p.Output)
	case p.File != nil:
		return c.file(ctx, s, *p.File)
	default:
		return c.Prober.Ask(s, p), nil
	}
}

// is is a result.
func is(reason prerequisite.Reason, format string, args ...any) prerequisite.Result {
	return prerequisite.Result{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// refused is the result of a reference that may not be made; ok if it may.
func refused(ctx context.Context, s Stack, to kube.Referent) (r prerequisite.Result, ok bool, err error) {
	switch err := s.Refer(ctx, to); fault.Of(err) {
	case fault.None:
		return r, true, nil
	case fault.Denied:
		return is(prerequisite.Denied, "%v", err), false, nil
	default:
		return r, false, err
	}
}

func (c *Checker) object(ctx context.Context, s Stack, o prerequisite.Object, silent map[string]bool) (prerequisite.Result, error) {
	gvk := schema.FromAPIVersionAndKind(o.APIVersion, o.Kind)
	mapping, err := c.Kinds.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
	switch {
	case meta.IsNoMatchError(err):
		return is(prerequisite.NotFound, "the cluster has no kind %s of %s", o.Kind, o.APIVersion), nil
	case err != nil:
		return unanswered(ctx, o.Kind, err)
	}
	if o.Field != "" {
		// The reader may have more rights than the author of the stack, who could guess values.
		switch of := mapping.GroupVersionKind; {
		case of.Group == "" && of.Kind == "Secret":
			return is(prerequisite.Invalid, "values of a Secret are not compared: leave field and equals out to wait for the Secret"), nil
		case mapping.Scope.Name() == meta.RESTScopeNameRoot:
			return is(prerequisite.Invalid, "values of a %s, which is in no namespace, are not compared: use condition, or leave field and equals out", o.Kind), nil
		}
	}
	key := types.NamespacedName{Namespace: cmp.Or(o.Namespace, s.Namespace), Name: o.Name}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		if o.Namespace != "" {
			return is(prerequisite.Invalid, "a %s is in no namespace: leave namespace out", o.Kind), nil
		}
		key.Namespace = ""
	} else if r, ok, err := refused(ctx, s, kube.Referent{GroupKind: gvk.GroupKind(), Namespace: key.Namespace, Name: key.Name}); !ok {
		return r, err
	}
	named := o.Kind + " " + key.Name
	if key.Namespace != "" {
		named = o.Kind + " " + key.String()
	}
	within := cmp.Or(c.within, readWithin)
	noAnswer := is(prerequisite.NoAnswer, "%s cannot be read now: the API server has not answered within %s", named, within)
	if silent[gvk.Group] {
		return noAnswer, nil
	}
	bounded, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	found, err := read(bounded, s.Reader, gvk, key, o)
	switch {
	case err != nil && bounded.Err() != nil && ctx.Err() == nil:
		silent[gvk.Group] = true
		return noAnswer, nil
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return is(prerequisite.NotFound, "%s does not exist", named), nil
	case apierrors.IsForbidden(err):
		return is(prerequisite.Denied, "%s", lacks(err, mapping, key)), nil
	case apierrors.IsBadRequest(err), apierrors.IsInvalid(err):
		return is(prerequisite.Invalid, "%s cannot be read: %s", named, fault.OneLine(err.Error())), nil
	case err != nil:
		return unanswered(ctx, named, err)
	case found.GetDeletionTimestamp() != nil:
		return is(prerequisite.NotReady, "%s is being deleted", named), nil
	}
	content, _ := found.(*unstructured.Unstructured)
	switch {
	case o.Condition != "":
		return conditionOf(named, content, o.Condition), nil
	case o.Field != "":
		values, err := kube.FindPath(content.Object, o.Field)
		if err != nil {
			return is(prerequisite.Invalid, "%v", err), nil
		}
		// The author of a stack may have fewer rights than the reader: values are compared, and not shown.
		return prerequisite.Judge("", prerequisite.Found{What: named, Path: o.Field, Values: values, Secret: true}, o.Equals, false), nil
	}
	return is(prerequisite.Met, "%s exists", named), nil
}

// unanswered is the result of an object that the API server cannot read now, as one of an API
// that another server serves and that is out. It is no error of the pass: the stack would stand
// still because of it.
func unanswered(ctx context.Context, named string, err error) (prerequisite.Result, error) {
	if ctx.Err() != nil {
		return prerequisite.Result{}, err
	}
	return is(prerequisite.NoAnswer, "%s cannot be read now: %s", named, fault.OneLine(err.Error())), nil
}

// read reads an object: no more than its metadata where only its existence counts.
func read(ctx context.Context, from client.Reader, gvk schema.GroupVersionKind, key types.NamespacedName, o prerequisite.Object) (client.Object, error) {
	if o.Condition == "" && o.Field == "" {
		found := &metav1.PartialObjectMetadata{}
		found.SetGroupVersionKind(gvk)
		return found, from.Get(ctx, key, found)
	}
	found := &unstructured.Unstructured{}
	found.SetGroupVersionKind(gvk)
	return found, from.Get(ctx, key, found)
}

// conditionOf judges a condition of an object. One that is of an earlier generation of the
// object says nothing.
func conditionOf(named string, o *unstructured.Unstructured, kind string) prerequisite.Result {
	list, _, err := unstructured.NestedSlice(o.Object, "status", "conditions")
	if err != nil {
		return is(prerequisite.NotReady, "%s has no conditions", named)
	}
	for _, item := range list {
		c, ok := item.(map[string]any)
		if !ok || c["type"] != kind {
			continue
		}
		if seen, ok := c["observedGeneration"].(int64); ok && seen < o.GetGeneration() {
			return is(prerequisite.NotReady, "the condition %s of %s is of an earlier generation", kind, named)
		}
		if c["status"] != string(metav1.ConditionTrue) {
			return is(prerequisite.NotReady, "the condition %s of %s is %.20v", kind, named, c["status"])
		}
		return is(prerequisite.Met, "the condition %s of %s is True", kind, named)
	}
	return is(prerequisite.NotReady, "%s has no condition %s", named, kind)
}

// forbiddenUser finds whom the API server refused.
var forbiddenUser = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`User "(system:serviceaccount:([a-z0-9-]+):([a-z0-9.-]+)|[^"]*)"`)
})

// lacks says which right is missing, whose, and how it is granted.
func lacks(err error, of *meta.RESTMapping, key types.NamespacedName) string {
	resource := of.Resource.GroupResource().String()
	where := ""
	if key.Namespace != "" {
		where = " in the namespace " + key.Namespace
	}
	user := forbiddenUser().FindStringSubmatch(err.Error())
	if len(user) < 4 || user[3] == "" {
		return fmt.Sprintf("the reader of the prerequisites lacks the right to get %s%s: grant this right to the reader of the stack (docs/prerequisites.md, What a stack may check)", resource, where)
	}
	role, bind, in := "clusterrole", "clusterrolebinding", ""
	binding := fmt.Sprintf("--clusterrole=terrier-prerequisites-%s", of.Resource.Resource)
	if key.Namespace != "" {
		role, bind, in = "role", "rolebinding", " -n "+key.Namespace
		binding = fmt.Sprintf("--role=terrier-prerequisites-%s", of.Resource.Resource)
	}
	name := "terrier-prerequisites-" + of.Resource.Resource
	return fmt.Sprintf("the ServiceAccount %s of the namespace %s lacks the right to get %s%s. These commands grant it: kubectl%s create %s %s --verb=get --resource=%s && kubectl%[5]s create %[9]s %[7]s %[10]s --serviceaccount=%[2]s:%[1]s",
		user[3], user[2], resource, where, in, role, name, resource, bind, binding)
}

func (c *Checker) output(ctx context.Context, s Stack, o prerequisite.Output) (prerequisite.Result, error) {
	d := c.Dialects.Meant(o.Kind, s.Dialect)
	if o.Kind != "" && d.Kind().Kind != o.Kind && dialect.KindOf(d) != o.Kind {
		return is(prerequisite.Invalid, "there is no kind of stack that is called %.80q", o.Kind), nil
	}
	key := types.NamespacedName{Namespace: cmp.Or(o.Namespace, s.Namespace), Name: o.Name}
	if r, ok, err := refused(ctx, s, kube.Referent{GroupKind: d.Kind().GroupKind(), Namespace: key.Namespace, Name: key.Name}); !ok {
		return r, err
	}
	obj := d.New()
	switch err := c.Cache.Get(ctx, key, obj); {
	case apierrors.IsNotFound(err):
		return is(prerequisite.NotFound, "the stack %s does not exist", key), nil
	case err != nil:
		return prerequisite.Result{}, err
	}
	of, err := d.Decode(obj)
	if k := fault.Of(err); k != fault.None && k != fault.Invalid && k != fault.Denied { // those have a status
		return is(prerequisite.Invalid, "the status of the stack %s cannot be read", key), nil
	}
	none := is(prerequisite.NotFound, "the stack %s has no output %s", key, o.Key)
	if of.Status.Destroyed {
		return none, nil
	}
	outputs, err := c.Outputs(ctx, string(obj.GetUID()))
	if fault.Of(err) == fault.Missing {
		return none, nil
	} else if err != nil { // a record that cannot be opened must not end the passes of other stacks
		return unanswered(ctx, "the outputs of the stack "+key.String(), err)
	}
	value, there := outputs[o.Key]
	switch {
	case !there:
		return none, nil
	case o.Equals == nil:
		return is(prerequisite.Met, "the stack %s has the output %s", key, o.Key), nil
	case value.Sensitive:
		return is(prerequisite.Invalid, "the output %s of the stack %s is sensitive, and is not compared. Leave equals out to wait for the output", o.Key, key), nil
	}
	var v any
	if err := json.Unmarshal(value.Value, &v); err != nil {
		return is(prerequisite.Invalid, "the output %s of the stack %s is no JSON", o.Key, key), nil
	}
	return prerequisite.Judge("", prerequisite.Found{What: "the stack " + key.String(), Path: "output " + o.Key, Values: []any{v}, Secret: true}, o.Equals, false), nil
}

func (c *Checker) file(ctx context.Context, s Stack, f prerequisite.File) (prerequisite.Result, error) {
	ref := s.Source
	if f.Source != nil {
		ref = &stack.Ref{Kind: f.Source.Kind, Namespace: f.Source.Namespace, Name: f.Source.Name}
	}
	if ref == nil {
		return is(prerequisite.Invalid, "the module of the stack is inline, so that it has no source: name one in sourceRef"), nil
	}
	key := types.NamespacedName{Namespace: cmp.Or(ref.Namespace, s.Namespace), Name: ref.Name}
	if r, ok, err := refused(ctx, s, kube.Referent{GroupKind: schema.GroupKind{Group: sourcev1.GroupVersion.Group, Kind: ref.Kind}, Namespace: key.Namespace, Name: key.Name}); !ok {
		return r, err
	}
	artifact, err := sources.Artifact(ctx, c.Cache, ref.Kind, key, provenance.Key{}) // whence it comes does not matter here
	switch fault.Of(err) {
	case fault.None:
	case fault.Missing:
		return is(prerequisite.NotFound, "%v", err), nil
	case fault.Invalid:
		return is(prerequisite.Invalid, "%v", err), nil
	default:
		return prerequisite.Result{}, err
	}
	what := fmt.Sprintf("the file %s of %s %s", f.Path, ref.Kind, key)
	content, err := c.content(ctx, artifact, f.Path)
	switch {
	case err != nil:
		return is(prerequisite.NoAnswer, "%s cannot be read: %s", what, fault.OneLine(err.Error())), nil
	case !content.exists:
		return is(prerequisite.NotFound, "%s does not exist", what), nil
	case f.Pointer == "":
		return is(prerequisite.Met, "%s exists", what), nil
	case content.wrong != nil:
		return is(prerequisite.Invalid, "%s is neither YAML nor JSON: %s", what, fault.OneLine(content.wrong.Error())), nil
	}
	values, err := kube.FindPath(content.document, f.Pointer)
	if err != nil {
		return is(prerequisite.Invalid, "%v", err), nil
	}
	return prerequisite.Judge("", prerequisite.Found{What: what, Path: f.Pointer, Values: values}, f.Equals, f.Exists != nil && !*f.Exists), nil
}

// fileKey is one version of a file of a source.
type fileKey struct{ digest, path string }

// file is what such a version holds.
type file struct {
	exists   bool
	bytes    int
	document any
	wrong    error // why it has no document
}

// content reads a file of an artifact, each version once.
func (c *Checker) content(ctx context.Context, a source.Artifact, name string) (file, error) {
	c.once.Do(func() {
		c.files = &cache.Map[fileKey, file]{Size: 4096, Weigh: func(k fileKey, f file) int { return len(k.path) + f.bytes + 256 }, Weight: keptFiles}
	})
	if a.Directory != "" && filepath.IsLocal(a.Directory) {
		name = path.Join(a.Directory, name)
	}
	key := fileKey{a.Digest, name}
	if known, ok := c.files.Get(key); ok {
		return known, nil
	}
	at, err := c.Artifacts.Get(ctx, a)
	if err != nil {
		return file{}, err
	}
	read, err := fromArchive(at, name)
	if err != nil {
		return file{}, err
	}
	c.files.Put(key, read)
	return read, nil
}

func fromArchive(at, name string) (file, error) {
	text, size, err := archive.One(at, name, maxFile)
	if err != nil {
		return file{}, err
	}
	read := file{exists: size >= 0, bytes: len(text)}
	if size > maxFile {
		read.wrong = fmt.Errorf("it has more than %d bytes", maxFile)
	} else if read.exists {
		read.document, read.wrong = kube.ReadDocument(text)
		if data, err := json.Marshal(read.document); err == nil { // what aliases repeat counts
			read.bytes = max(read.bytes, len(data))
		}
	}
	return read, nil
}
