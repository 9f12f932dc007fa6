package e2e

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// estate is a cluster as tofu-controller leaves it, and the world that it built.
// Nothing of Terrier runs in it until a test starts the platform.
type estate struct {
	*testkit.Cluster
	p     *testkit.Platform
	w     *testkit.World
	plane func() // ends the API server that runs without Terrier

	backup string // where the script keeps copies

	commit, before string            // of the source: the newest, and the one before
	dirs           map[string]string // where a user runs the engine on each state
}

// holding is a state that the engine makes: where it is, and what is in it.
type holding struct {
	stack, workspace, suffix, labels string
	old                              bool // of the commit before, so that the newest one changes it
}

// holdings are all states of the estate. A nameless stack has none.
var holdings = []holding{
	{stack: "settled"}, {stack: "asked", old: true}, {stack: "approved", old: true}, {stack: "once"},
	{stack: "watched"}, {stack: "suspended"}, {stack: "below"}, {stack: "above"}, {stack: "orphaned"},
	{stack: "locked"}, {stack: "loosened"}, {stack: "going"}, {stack: "leaving"}, {stack: "elder"},
	{stack: "blue", workspace: "blue"}, {stack: "suffixed", suffix: "own", labels: `{ team = "a" }`},
}

// secret is the name of the Secret that the state is in.
func (h holding) secret() string {
	return "tfstate-" + cmp.Or(h.workspace, "default") + "-" + cmp.Or(h.suffix, h.stack)
}

// newEstate makes an estate. Only the API server runs.
func newEstate(t *testing.T) *estate {
	t.Helper()
	p := testkit.Up(t)
	e := &estate{Cluster: p.Cluster(t), p: p, w: p.World(t), backup: filepath.Join(t.TempDir(), "backup"), dirs: map[string]string{}}
	if _, err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	e.alone(t)
	e.define(t)
	git := testkit.NewGit(t)
	e.before, e.commit = git.Commit(e.tree("old")), git.Commit(e.tree("new"))
	for _, h := range holdings {
		e.build(t, h)
	}
	e.Apply(t, git.Manifest("code"))
	files, err := filepath.Glob("testdata/takeover/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no fixtures: %v", err)
	}
	for _, f := range files {
		e.leave(t, f)
	}
	e.w.Things() // the user's engine wrote it as another user than runs do
	return e
}

// alone starts the API server of the platform without anything on top of it.
func (e *estate) alone(t *testing.T) {
	t.Helper()
	command := exec.Command(testkit.Tool(t, "terrier"), "control-plane", "-data-dir", e.p.Dir, "-until-eof", "-o", "json")
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	life, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	said, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	var ready struct{ Ready bool }
	if err := json.NewDecoder(said).Decode(&ready); err != nil || !ready.Ready {
		t.Fatalf("the control plane said %+v: %v", ready, errors.Join(err, command.Process.Kill(), command.Wait()))
	}
	e.plane = func() {
		if err := errors.Join(life.Close(), command.Wait()); err != nil {
			t.Errorf("ending the control plane: %v", err)
		}
		e.plane = nil
	}
	t.Cleanup(func() {
		if e.plane != nil { // the test ended in between
			e.plane()
		}
	})
}

// define makes the definition of the kind one that another chart installed, and that
// knows nothing of ours.
func (e *estate) define(t *testing.T) {
	t.Helper()
	d := &unstructured.Unstructured{}
	d.SetAPIVersion("apiextensions.k8s.io/v1")
	d.SetKind("CustomResourceDefinition")
	if err := e.Client.Get(t.Context(), client.ObjectKey{Name: "terraforms.infra.contrib.fluxcd.io"}, d); err != nil {
		t.Fatal(err)
	}
	d.SetLabels(map[string]string{"app.kubernetes.io/managed-by": "Helm"})
	d.SetAnnotations(map[string]string{"meta.helm.sh/release-name": "tofu-controller"})
	versions, _, _ := unstructured.NestedSlice(d.Object, "spec", "versions")
	for _, v := range versions {
		version := v.(map[string]any)
		status := []string{"schema", "openAPIV3Schema", "properties", "status", "properties"}
		unstructured.RemoveNestedField(version, append(status, "terrier")...)
		unstructured.RemoveNestedField(version, append(status, "conditions", "x-kubernetes-list-type")...)
		unstructured.RemoveNestedField(version, append(status, "conditions", "x-kubernetes-list-map-keys")...)
	}
	err := unstructured.SetNestedSlice(d.Object, versions, "spec", "versions")
	if err = errors.Join(err, e.Client.Update(t.Context(), d, client.FieldOwner("helm"))); err != nil {
		t.Fatal(err)
	}
}

// tree is the source: a directory for each stack. What differs between commits
// is what two of them ask for.
func (e *estate) tree(value string) map[string]string {
	files := map[string]string{"nameless/main.tf": e.module("nameless", value)}
	for _, h := range holdings {
		files[h.stack+"/main.tf"] = e.module(h.stack, "same")
		if h.old {
			files[h.stack+"/main.tf"] = e.module(h.stack, value)
		}
	}
	return files
}

func (e *estate) module(stack, value string) string {
	hcl := things(e.w, value, stack)
	if stack == "settled" {
		hcl += `
output "text"   { value = "plain" }
output "number" { value = 42 }
output "list"   { value = ["a<b", { deep = [] }] }
output "object" { value = { name = world_thing.settled.name, size = 3 } }
output "hidden" {
  value     = "s3cret"
  sensitive = true
}
`
	}
	return hcl
}

// build makes what a stack built, and its state, as a runner of the old
// controller did.
func (e *estate) build(t *testing.T, h holding) {
	t.Helper()
	value := "same"
	if h.old {
		value = "old"
	}
	dir := t.TempDir()
	e.dirs[h.stack] = dir
	write(t, dir, "main.tf", e.module(h.stack, value))
	write(t, dir, "backend_override.tf", fmt.Sprintf("terraform {\n  backend \"kubernetes\" {\n    secret_suffix = %q\n    namespace     = %q\n    config_path   = %q\n    labels        = %s\n  }\n}\n",
		cmp.Or(h.suffix, h.stack), e.Namespace, e.Kubeconfig, cmp.Or(h.labels, "{}")))
	testkit.Engine(t, dir, nil, "init", "-input=false", "-no-color")
	if h.workspace != "" {
		testkit.Engine(t, dir, nil, "workspace", "new", "-no-color", h.workspace)
	}
	testkit.Engine(t, dir, nil, "apply", "-input=false", "-no-color", "-auto-approve")
}

// leave makes the objects of a fixture.
func (e *estate) leave(t *testing.T, file string) {
	t.Helper()
	plan := func(commit string) string { return "plan-main-" + commit[:10] }
	text := strings.NewReplacer("${commit}", e.commit, "${before}", e.before, "${plan}", plan(e.commit), "${older}", plan(e.before)).Replace(read(t, file))
	documents := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		o := &unstructured.Unstructured{}
		if err := documents.Decode(&o.Object); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		e.make(t, o)
	}
}

// make makes one object, with the status, the owners and the content that it
// had.
func (e *estate) make(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	o.SetNamespace(e.Namespace)
	status := o.Object["status"]
	owners := o.GetOwnerReferences()
	for i := range owners {
		owners[i].UID = e.Stack(t, owners[i].Name).UID
	}
	o.SetOwnerReferences(owners)
	if o.GetName() == "settled-outputs" {
		o.Object["data"] = e.published(t, "settled")
	}
	err := e.Client.Create(t.Context(), o)
	if apierrors.IsAlreadyExists(err) { // the engine created and released it
		err = errors.Join(e.Client.Delete(t.Context(), o.DeepCopy()), e.Client.Create(t.Context(), o))
	}
	if err != nil {
		t.Fatalf("making %s %s: %v", o.GetKind(), o.GetName(), err)
	}
	if o.GetKind() != "Terraform" {
		return
	}
	o.Object["status"] = status
	if err := e.Client.Status().Update(t.Context(), o); err != nil {
		t.Fatalf("writing the status of %s: %v", o.GetName(), err)
	}
	if pending, found, _ := unstructured.NestedString(o.Object, "status", "plan", "pending"); found {
		e.plan(t, o, pending)
	}
	if o.GetAnnotations()["test/deleted"] != "" {
		e.Delete(t, o.GetName())
	}
}

// published is what the old runner writes to an output Secret: what the engine
// prints of each value, and of the type of each that is no string.
func (e *estate) published(t *testing.T, stack string) map[string]any {
	t.Helper()
	var outputs map[string]struct{ Type, Value json.RawMessage }
	if err := json.Unmarshal([]byte(testkit.Engine(t, e.dirs[stack], nil, "output", "-no-color", "-json")), &outputs); err != nil {
		t.Fatal(err)
	}
	data := map[string]any{}
	for name, o := range outputs {
		var text string
		if string(o.Type) == `"string"` && json.Unmarshal(o.Value, &text) == nil {
			data[name] = []byte(text)
			continue
		}
		data[name], data[name+"__type"] = []byte(o.Value), []byte(o.Type)
	}
	for name, v := range data {
		data[name] = encode(t, v.([]byte))
	}
	return data
}

// encode is how JSON holds bytes.
func encode(t *testing.T, b []byte) any {
	t.Helper()
	text, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Trim(string(text), `"`)
}

// plan leaves the saved plan of a stack, and the form of it that people or
// programs read.
func (e *estate) plan(t *testing.T, o *unstructured.Unstructured, name string) {
	t.Helper()
	stack, dir := o.GetName(), e.dirs[o.GetName()]
	write(t, dir, "main.tf", e.module(stack, "new"))
	testkit.Engine(t, dir, nil, "plan", "-input=false", "-no-color", "-lock=false", "-out=tfplan")
	saved, err := os.ReadFile(filepath.Join(dir, "tfplan"))
	if err != nil {
		t.Fatal(err)
	}
	described := func(full string, content []byte) metav1.ObjectMeta {
		sum := sha256.Sum256(content)
		return metav1.ObjectMeta{
			Namespace: e.Namespace, Name: "tfplan-default-" + full,
			Labels:          map[string]string{"infra.contrib.fluxcd.io/plan-name": full, "infra.contrib.fluxcd.io/plan-workspace": "default"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: o.GetAPIVersion(), Kind: "Terraform", Name: stack, UID: o.GetUID()}},
			Annotations: map[string]string{
				"savedPlan": name, "infra.contrib.fluxcd.io/plan-full-name": full, "infra.contrib.fluxcd.io/plan-full-workspace": "default",
				"infra.contrib.fluxcd.io/plan-chunk": "0", "infra.contrib.fluxcd.io/plan-hash": hex.EncodeToString(sum[:]),
			},
		}
	}
	secret := func(full string, content []byte) *corev1.Secret {
		packed := gzipped(t, content)
		s := &corev1.Secret{ObjectMeta: described(full, packed), Data: map[string][]byte{"tfplan": packed}}
		s.Annotations["encoding"] = "gzip"
		return s
	}
	all := []client.Object{secret(stack, saved)}
	switch readable, _, _ := unstructured.NestedString(o.Object, "spec", "storeReadablePlan"); readable {
	case "json":
		all = append(all, secret(stack+".json", []byte(testkit.Engine(t, dir, nil, "show", "-no-color", "-json", "tfplan"))))
	case "human":
		text := testkit.Engine(t, dir, nil, "show", "-no-color", "tfplan")
		all = append(all, &corev1.ConfigMap{ObjectMeta: described(stack, []byte(text)), Data: map[string]string{"tfplan": text}})
	}
	for _, p := range all {
		if err := e.Client.Create(t.Context(), p); err != nil {
			t.Fatalf("leaving the plan %s: %v", p.GetName(), err)
		}
	}
}

func gzipped(t *testing.T, b []byte) []byte {
	t.Helper()
	var buffer bytes.Buffer
	w := gzip.NewWriter(&buffer)
	_, err := w.Write(b)
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return buffer.Bytes()
}

// changed lists the calls that changed the world since there were n calls.
func (e *estate) changed(n int) []string {
	var found []string
	for _, c := range e.w.Calls()[n:] {
		if c.Phase == "begin" && slices.Contains([]string{"create", "update", "delete"}, c.Call) {
			found = append(found, c.Call+" "+c.Name)
		}
	}
	slices.Sort(found)
	return found
}

// condition is one of a stack's, empty if it has none of that type.
func condition(s *v1alpha2.Terraform, kind string) metav1.Condition {
	if c := meta.FindStatusCondition(s.Status.Conditions, kind); c != nil {
		return *c
	}
	return metav1.Condition{}
}
