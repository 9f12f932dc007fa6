package interpreter

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/terrier-iac/terrier/api/policy/v1alpha1"
	"github.com/terrier-iac/terrier/internal/controller/policies"
	"github.com/terrier-iac/terrier/internal/dialect/kinds"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan/usage"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/policy/document"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/review"
	"github.com/terrier-iac/terrier/internal/review/rego"
	"github.com/terrier-iac/terrier/internal/review/rego/worker"
	"github.com/terrier-iac/terrier/internal/sandbox"
	"github.com/terrier-iac/terrier/internal/source"
	"github.com/terrier-iac/terrier/internal/stack"
	library "github.com/terrier-iac/terrier/policies"
)

// The test binary is the worker that evaluates policies.
func TestMain(m *testing.M) {
	sandbox.Main()
	worker.Main()
	os.Exit(m.Run())
}

// stored are artifacts on disk, by digest.
type stored struct {
	dir   string
	calls int
}

func (s *stored) Get(_ context.Context, a source.Artifact) (string, error) {
	s.calls++
	return filepath.Join(s.dir, strings.TrimPrefix(a.Digest, "sha256:")), nil
}

// put makes an artifact of files.
func (s *stored) put(t *testing.T, files map[string]string) *fluxmeta.Artifact {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for name, text := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{w.Close(), z.Close()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	sum := sha256.Sum256(b.Bytes())
	digest := hex.EncodeToString(sum[:])
	if err := os.WriteFile(filepath.Join(s.dir, digest), b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return &fluxmeta.Artifact{URL: "http://source/a.tar.gz", Revision: "main@sha1:" + digest[:40], Digest: "sha256:" + digest, LastUpdateTime: metav1.Unix(1e9, 0)}
}

// kept are records, by key.
type kept map[string][]byte

func (k kept) Get(_ context.Context, key string) (io.ReadCloser, error) {
	if b, ok := k[key]; ok {
		return io.NopCloser(bytes.NewReader(b)), nil
	}
	return nil, fault.New(fault.Missing, "", errors.New("no such record"))
}

type stage struct {
	*Programs
	kept
	client client.Client
	stored *stored
	repo   *sourcev1.GitRepository
}

// newStage has a GitRepository policy-system/policies with these files.
func newStage(t *testing.T, files map[string]string) *stage {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := sourcev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	s := &stage{stored: &stored{dir: t.TempDir()}}
	s.repo = &sourcev1.GitRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: "policy-system", Name: "policies"},
		Spec:       sourcev1.GitRepositorySpec{URL: "https://user:canary@git.example.com/policies.git", Reference: &sourcev1.GitRepositoryRef{Branch: "main"}},
	}
	s.repo.Status.Artifact = s.stored.put(t, files)
	s.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(s.repo).WithStatusSubresource(s.repo).Build()
	s.kept = kept{}
	workers := worker.New(t.TempDir(), 4<<30, time.Now)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error)
	go func() { done <- workers.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	s.Programs = New(s.client, kinds.All(), s.stored, s.kept, t.TempDir(), workers)
	return s
}

func cluster() client.Object { return &v1alpha1.ClusterPolicy{} }

func fromSource(path string) v1alpha1.Rego {
	return v1alpha1.Rego{SourceRef: &v1alpha1.SourceRef{Kind: "GitRepository", Namespace: "policy-system", Name: "policies"}, Path: path}
}

// compile finds a program and compiles it.
func (s *stage) compile(t *testing.T, of client.Object, r v1alpha1.Rego) (policies.Program, string, error) {
	t.Helper()
	text, err := s.Find(t.Context(), of, r)
	if err != nil {
		return nil, "", err
	}
	return s.Compile(t.Context(), text)
}

const denies = "package terrier\ndeny contains sprintf(\"%s of %s %s\", [input.stack.name, input.source.branch, input.parameters.word])\n"

func TestProgramsOfSources(t *testing.T) {
	s := newStage(t, map[string]string{"a/policy.rego": denies, "b/main.rego": "package main\ndeny[msg] { msg := input.resource_changes[0].address }"})
	first, digest, err := s.compile(t, cluster(), fromSource("a"))
	if err != nil {
		t.Fatal(err)
	}
	if _, again, err := s.compile(t, cluster(), fromSource("./a")); err != nil || again != digest {
		t.Errorf("the same again: %s, %v; want %s", again, err, digest)
	}
	withParameters := fromSource("a")
	withParameters.Parameters = &apiextensionsv1.JSON{Raw: []byte(`{"word": "now"}`)}
	if _, other, err := s.compile(t, cluster(), withParameters); err != nil || other == digest {
		t.Errorf("with parameters: %s, %v; want another digest", other, err)
	}
	pinned := fromSource("a")
	pinned.Digest = s.repo.Status.Artifact.Digest
	if _, _, err := s.compile(t, cluster(), pinned); err != nil {
		t.Errorf("pinned: %v", err)
	}

	was := s.repo.Status.Artifact.Digest
	s.repo.Status.Artifact = s.stored.put(t, map[string]string{"a/policy.rego": strings.Replace(denies, "deny", "hold", 1)})
	if err := s.client.Status().Update(t.Context(), s.repo); err != nil {
		t.Fatal(err)
	}
	next, other, err := s.compile(t, cluster(), fromSource("a"))
	if err != nil || other == digest || next == first {
		t.Errorf("another artifact: %s, %v; want another digest", other, err)
	}
	if _, _, err := s.compile(t, cluster(), pinned); fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), "only "+was+" may be used") {
		t.Errorf("pinned to the former artifact: %v, want an error that names it", err)
	}
}

func TestProgramsThatCannotBeRead(t *testing.T) {
	s := newStage(t, map[string]string{"a/policy.rego": "package terrier\ndeny contains"})
	elsewhere := fromSource("a")
	elsewhere.SourceRef.Name = "others"
	nowhere := fromSource("a")
	nowhere.SourceRef.Namespace = ""
	out := fromSource("../../etc")
	inline := v1alpha1.Rego{Modules: map[string]string{"a": denies}, Digest: "sha256:0"}
	for name, tt := range map[string]struct {
		of   client.Object
		rego v1alpha1.Rego
		want string
	}{
		"a text that is wrong":      {cluster(), fromSource("a"), "policy.rego:2"},
		"no directory":              {cluster(), fromSource("b"), "has no directory b"},
		"a way out":                 {cluster(), out, "has no directory etc"},
		"no source":                 {cluster(), elsewhere, "GitRepository policy-system/others does not exist"},
		"no namespace":              {cluster(), nowhere, "a ClusterPolicy has no namespace"},
		"another namespace":         {&v1alpha1.Policy{ObjectMeta: metav1.ObjectMeta{Namespace: "team"}}, fromSource("a"), "in its own namespace, team"},
		"a digest without a source": {cluster(), inline, "there is no sourceRef"},
	} {
		if _, _, err := s.compile(t, tt.of, tt.rego); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: Compile() = %v, want %q", name, err, tt.want)
		}
	}
}

// The error of a parameter that a policy of the library does not take begins with its field,
// which package policies tells of at admission and in the status.
func TestParametersOfTheLibrary(t *testing.T) {
	s := newStage(t, nil)
	dir, ok := library.Named("required-tags")
	if !ok {
		t.Fatal("the library has no policy required-tags")
	}
	parts, err := rego.Read(dir, rego.Options{Format: rego.Terrier})
	if err != nil {
		t.Fatal(err)
	}
	for parameters, want := range map[string]string{
		`{"tags": ["owner"]}`: "",
		`{"tag": ["owner"]}`:  "parameters.tag: the policy has no such parameter; it has ",
		`{"tags": "owner"}`:   "parameters.tags: is a text, and must be a list",
		`{"tags": [1]}`:       "parameters.tags[0]: is a number, and must be a text",
		`{"effect": "stop"}`:  `parameters.effect: is "stop", and must be one of deny, hold and warn`,
	} {
		_, _, err := s.compile(t, cluster(), v1alpha1.Rego{Modules: parts[0].Source.Modules, Parameters: &apiextensionsv1.JSON{Raw: []byte(parameters)}})
		if want == "" && err != nil || want != "" && (fault.Of(err) != fault.Invalid || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("with %s: Compile() = %v, want %q", parameters, err, want)
		}
	}
}

const object = `{
	"apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform",
	"metadata": {"name": "network", "namespace": "apps", "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "canary"}},
	"spec": {"interval": "1h", "sourceRef": {"kind": "GitRepository", "name": "policies", "namespace": "policy-system"}, "vars": [{"name": "a", "value": "canary"}], "values": {"b": "canary"}}
}`

const aPlan = `{"format_version": "1.2", "resource_changes": [{"address": "terraform_data.a", "mode": "managed", "type": "terraform_data", "name": "a", "change": {"actions": ["create"], "before": null, "after": {"input": "x"}, "after_unknown": {}, "before_sensitive": false, "after_sensitive": {}}}]}`

func question(t *testing.T, members ...policies.Member) policies.Question {
	t.Helper()
	q := policies.Question{
		Plan: &review.Plan{Digest: "sha256:0"}, Document: []byte(aPlan), Members: members, Now: time.Unix(1e9+60, 0),
		Stack: policies.Subject{Group: "infra.contrib.fluxcd.io", Namespace: "apps", Name: "network", Tenant: "acme", Environment: "prod", Labels: map[string]string{"team": "a"}},
	}
	if err := json.Unmarshal([]byte(object), &q.Plan.Object); err != nil {
		t.Fatal(err)
	}
	return q
}

// everything gives the whole input as a text.
const everything = "package terrier\nwarn contains json.marshal(object.remove(input, [\"plan\", \"changes\", \"counts\"]))\nwarn contains json.marshal(input.changes)\n"

// judge is Judge of programs that could be asked.
func (s *stage) judge(t *testing.T, q policies.Question) ([]policy.Finding, string) {
	t.Helper()
	found, input, err := s.Judge(t.Context(), q)
	if err != nil {
		t.Error(err)
	}
	return found, input
}

func TestJudge(t *testing.T) {
	s := newStage(t, map[string]string{"a/policy.rego": denies, "all/policy.rego": everything, "c/main.rego": "package main\nwarn[msg] { msg := input.resource_changes[0].address }"})
	parameters := fromSource("a")
	parameters.Parameters = &apiextensionsv1.JSON{Raw: []byte(`{"word": "now"}`)}
	conftest := fromSource("c")
	conftest.Format = "conftest"
	var members []policies.Member
	for name, r := range map[string]v1alpha1.Rego{"ClusterPolicy/a": parameters, "ClusterPolicy/all": fromSource("all"), "ClusterPolicy/c": conftest} {
		p, _, err := s.compile(t, cluster(), r)
		if err != nil {
			t.Fatal(err)
		}
		members = append(members, policies.Member{Policy: name, Program: p, DryRun: name == "ClusterPolicy/c"})
	}
	q := question(t, members...)
	found, digest := s.judge(t, q)
	text := ""
	for _, f := range found {
		text += f.Policy + " " + f.Message + "\n"
		if f.Error || f.DryRun != (f.Policy == "ClusterPolicy/c") {
			t.Errorf("%+v", f)
		}
	}
	for _, want := range []string{
		"ClusterPolicy/a network of main now", "ClusterPolicy/c terraform_data.a", `"environment":"prod"`, `"tenant":"acme"`, `"team":"a"`, `"kind":"GitRepository"`, `"address":"terraform_data.a"`, `"now":"2001-09-09T01:47:40Z"`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("findings %s, want %s", text, want)
		}
	}
	if strings.Contains(text, "canary") {
		t.Errorf("a policy sees a secret: %s", text)
	}
	q.Now = q.Now.Add(time.Hour)
	if _, later := s.judge(t, q); later != digest {
		t.Errorf("the digest of the input changes with time: %s, %s", digest, later)
	}
	q.Document = []byte(strings.ReplaceAll(aPlan, `"x"`, `"y"`))
	if _, other := s.judge(t, q); other == digest {
		t.Error("another plan has the same digest of its input")
	}
	q.Document = []byte("{")
	if found, _ := s.judge(t, q); len(found) != len(members) || policy.Combine(found) != policy.Hold {
		t.Errorf("a plan that cannot be read: %+v, want that each policy holds it", found)
	}
}

// A Policy object of the Weave policy agent sees the object without what may be secret.
func TestWeavePoliciesOfSources(t *testing.T) {
	s := newStage(t, map[string]string{"w/policy.yaml": `apiVersion: pac.weave.works/v2beta3
kind: Policy
metadata: {name: all}
spec:
  id: all
  name: All
  severity: low
  provider: terraform
  enforce: false
  targets: {kinds: [Terraform], namespaces: [apps]}
  code: |
    package weave.advisor.all
    violation[r] { r := {"msg": json.marshal(object.remove(input.review.object, ["status"]))} }
    violation[r] { r := {"msg": input.review.object.status.tfplan.resource_changes[0].address} }
`})
	r := fromSource("w")
	r.Format = "weave"
	p, _, err := s.compile(t, cluster(), r)
	if err != nil {
		t.Fatal(err)
	}
	q := question(t, policies.Member{Policy: "ClusterPolicy/w", Program: p})
	found, _ := s.judge(t, q)
	if len(found) != 2 || policy.Combine(found) != policy.Warn || found[0].Message != "terraform_data.a" || !strings.Contains(found[1].Message, `"name":"network"`) || strings.Contains(found[1].Message, "canary") {
		t.Errorf("findings %+v", found)
	}
	q.Stack.Namespace = "others"
	if found, _ := s.judge(t, q); len(found) != 0 {
		t.Errorf("a stack that is no target: %+v", found)
	}
}

// A Policy object of an API server is the same as its manifest, whatever its version.
func TestWeavePoliciesOfACluster(t *testing.T) {
	s := newStage(t, nil)
	object := func(version string, spec map[string]any) map[string]any {
		all := map[string]any{"id": "all", "name": "All", "severity": "high", "provider": "terraform", "code": "package a\nviolation[r] { r := {\"msg\": sprintf(\"%s in %s\", [input.parameters.word, input.review.object.metadata.namespace])} }",
			"parameters": []any{map[string]any{"name": "word", "type": "string", "required": true, "value": "found"}}, "targets": map[string]any{"kinds": []any{"Terraform"}, "labels": []any{map[string]any{"team": "*"}}}}
		maps.Copy(all, spec)
		return map[string]any{"apiVersion": "pac.weave.works/" + version, "kind": "Policy", "metadata": map[string]any{"name": "all"}, "spec": all}
	}
	for name, tt := range map[string]struct {
		object map[string]any
		judges bool
		effect policy.Effect
		says   string // of the error
	}{
		"v2beta3":             {object("v2beta3", nil), true, policy.Deny, ""},
		"v2beta2":             {object("v2beta2", map[string]any{"enabled": true}), true, policy.Deny, ""},
		"v2beta1":             {object("v2beta1", nil), true, policy.Deny, ""},
		"switched off":        {object("v2beta2", map[string]any{"enabled": false}), false, "", ""},
		"audited":             {object("v2beta3", map[string]any{"enforce": false}), true, policy.Warn, ""},
		"of resources":        {object("v2beta3", map[string]any{"provider": "kubernetes"}), false, "", ""},
		"without a parameter": {object("v2beta3", map[string]any{"parameters": []any{map[string]any{"name": "word", "type": "string", "required": true}}}), true, "", "the parameter word of the Policy all needs a value"},
		"of another kind":     {map[string]any{"apiVersion": "v1", "kind": "Secret"}, false, "", `it is "Secret" of "v1"`},
	} {
		t.Run(name, func(t *testing.T) {
			w, err := Weave(tt.object)
			if tt.says != "" {
				if fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), tt.says) || tt.judges && !w.Selects("Terraform", "apps", "network", map[string]string{"team": "a"}) {
					t.Errorf("Weave() = %+v, %v, want %q", w, err, tt.says)
				}
				return
			}
			if err != nil || w.Judges != tt.judges {
				t.Fatalf("Weave() = %+v, %v", w, err)
			}
			if !tt.judges {
				return
			}
			if !w.Selects("Terraform", "apps", "network", map[string]string{"team": "a"}) || w.Selects("Terraform", "apps", "network", nil) || w.Selects("Kustomization", "apps", "network", map[string]string{"team": "a"}) {
				t.Error("it selects other stacks than its targets")
			}
			p, _, err := s.Compile(t.Context(), w.Text)
			if err != nil {
				t.Fatal(err)
			}
			found, _ := s.judge(t, question(t, policies.Member{Policy: "Policy.pac.weave.works/all", Program: p}))
			if len(found) != 1 || found[0].Effect != tt.effect || found[0].Severity != "high" || found[0].Rule != "all" || found[0].Message != "found in apps" {
				t.Errorf("findings %+v", found)
			}
		})
	}
}

// Before there is a plan, a program finds what its object and its source show. The user is the
// one who applies the object.
func TestForesee(t *testing.T) {
	s := newStage(t, map[string]string{"a/policy.rego": `package terrier
deny contains input.source.branch if input.source.kind == "GitRepository"
warn contains sprintf("%s in %s by %s", [input.stack.name, input.stack.environment, input.requester])
hold contains "no changes" if count(input.changes) == 0
`, "c/main.rego": "package main\nwarn[msg] { msg := \"x\" }"})
	conftest := fromSource("c")
	conftest.Format = "conftest"
	var members []policies.Member
	for _, r := range []v1alpha1.Rego{fromSource("a"), conftest} {
		p, _, err := s.compile(t, cluster(), r)
		if err != nil {
			t.Fatal(err)
		}
		members = append(members, policies.Member{Policy: "ClusterPolicy/p", Program: p})
	}
	q := question(t)
	found := s.Foresee(t.Context(), policies.Early{Object: q.Plan.Object, Stack: q.Stack, Requester: "ann", Members: members, Now: q.Now})
	text := ""
	for _, f := range found {
		text += string(f.Effect) + " " + f.Message + "\n"
	}
	if want := "deny main\nwarn network in prod by ann\n"; text != want {
		t.Errorf("Foresee() says %q, want %q", text, want)
	}
}

// Policies see modules as the plan's init resolved them, if the record is that of the plan.
func TestModulesAsTheyWereResolved(t *testing.T) {
	s := newStage(t, nil)
	used := usage.Usage{
		Modules:   []usage.Module{{Path: "module.vpc", Declared: "platform/vpc/aws", Constraint: "1.2.3", Location: usage.Location{Kind: usage.Registry, Address: "registry.example.com/platform/vpc/aws"}, Version: "1.2.3"}},
		Providers: []usage.Provider{{Source: "registry.opentofu.org/hashicorp/aws", Version: "5.1.0", Required: []usage.Requirement{{Name: "aws", Constraint: "~> 5.0"}}}},
	}
	b, err := json.Marshal(usage.Record{Usage: used})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(uses string) string {
		f := document.Facts{}
		if err := s.modules(t.Context(), &f, "uid-1", stack.Status{Uses: uses}); err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if got := ask(used.Digest()); !strings.Contains(got, `"modules":null`) {
		t.Errorf("without a record: %s", got)
	}
	s.kept[record.Uses("uid-1").Key] = b
	if got := ask("sha256:other"); !strings.Contains(got, `"modules":null`) {
		t.Errorf("the record of another plan: %s", got)
	}
	got := ask(used.Digest())
	for _, want := range []string{`"address":"registry.example.com/platform/vpc/aws"`, `"version":"1.2.3"`, `"constraints":["~\u003e 5.0"]`, `"version":"5.1.0"`} {
		if !strings.Contains(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
