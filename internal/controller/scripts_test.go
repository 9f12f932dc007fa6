package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/alustan/v1alpha1"
	"github.com/terrier-iac/terrier/internal/dialect/alustan"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/input"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/location"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// A script is what the ConfigMap holds, byte for byte, and another script is another
// input. One that is missing is waited for, and its ConfigMap wakes the stack.
func TestScriptsAreInputs(t *testing.T) {
	c := newCupboard(t)
	const text = "#!/bin/bash\r\necho 'it''s' \"$HOME\" `x` \\n $(A) %s\n\n"
	stored := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.kube.Namespace, Name: "scripts"}, Data: map[string]string{"apply.sh": text, "empty": ""}}
	if err := c.kube.Client.Create(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	with := func(key, destroy string) stack.Configuration {
		return stack.Configuration{
			Script: &stack.Script{Apply: stack.ScriptText{Config: &stack.KeyRef{Name: "scripts", Key: key}}, Destroy: stack.ScriptText{Text: destroy}},
			Env:    []stack.EnvVar{{Name: "A", Value: "a", Literal: true}, {Name: "B", Value: "$(A) $$", Literal: true}},
		}
	}
	p, blocked := c.resolve(t, with("apply.sh", "d"))
	if blocked != nil {
		t.Fatal(blocked.Message)
	}
	if got := p.in.Scripts; string(got.Apply) != text || string(got.Destroy) != "d" {
		t.Errorf("scripts = %q and %q", got.Apply, got.Destroy)
	}
	if got := p.in.Resolved.Environment["B"]; got != "$(A) $$" {
		t.Errorf("the variable B is %q, want what was written", got)
	}
	other, _ := c.resolve(t, with("apply.sh", "e"))
	if other.in.Digest == p.in.Digest {
		t.Error("another script is the same input")
	}
	for key, want := range map[string]string{"nope": `has no key "nope"`, "empty": "is empty"} {
		if _, blocked := c.resolve(t, with(key, "d")); blocked == nil || blocked.Kind != fault.Missing || blocked.Reason != stack.InputsFailed || !strings.Contains(blocked.Message, "scripts.apply.configMapRef") || !strings.Contains(blocked.Message, want) {
			t.Errorf("%s: blocked by %+v, want it to be waited for: %s", key, blocked, want)
		}
	}
	if reads := input.References(with("apply.sh", "d"), "apps").Reads; !slices.Contains(reads, stack.Ref{Kind: "ConfigMap", Namespace: "apps", Name: "scripts"}) {
		t.Errorf("the stack is woken by %v", reads)
	}
}

// The source of a stack is made once, corrected when the stack says something else, and
// left alone if it is another object's.
func TestOwnedSource(t *testing.T) {
	k := testkit.Kube(t, v1alpha1.AddToScheme, sourcev1.AddToScheme)
	cl := &claimer{cache: k.Client, live: k.Client, jobs: &jobs{}}
	obj := &v1alpha1.Terraform{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: "net"}}
	obj.Spec.GitRepo = &v1alpha1.GitRepo{URL: "ssh://git@git.example/org/repo/dir", Branch: "main"}
	obj.Spec.Scripts.Apply = jsonOf(`"a"`)
	if err := k.Client.Create(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
	known, now := &entry{}, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	ensureAs := func(e *entry, now time.Time) *pass {
		t.Helper()
		p := &pass{dialect: alustan.Dialect{}, obj: obj, entry: e}
		p.o.Now = now
		var err error
		if p.st, err = p.dialect.Decode(obj); err == nil {
			err = cl.ensureOwned(t.Context(), p)
		}
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	ensure := func() *pass { t.Helper(); return ensureAs(known, now) }
	source := func() *sourcev1.GitRepository {
		t.Helper()
		g := &sourcev1.GitRepository{}
		if err := k.Client.Get(t.Context(), client.ObjectKey{Namespace: k.Namespace, Name: "alustan-net"}, g); err != nil {
			t.Fatal(err)
		}
		return g
	}
	ensure()
	made := source()
	if !metav1.IsControlledBy(made, obj) || made.Spec.URL != "ssh://git@git.example/org/repo/dir" || made.Spec.Reference.Branch != "main" || made.Annotations[location.SearchAnnotation] != "true" {
		t.Errorf("the source is %+v", made)
	}
	ensure()
	if got := source(); got.ResourceVersion != made.ResourceVersion {
		t.Error("the source was written again, and says what it said")
	}
	obj.Spec.GitRepo.Branch, obj.Spec.GitRepo.SSHKeySecret = "", &v1alpha1.KeyReference{Name: "key", Key: "id"}
	ensure()
	if got := source().Spec; got.Reference != nil || got.SecretRef == nil || got.SecretRef.Name != "key" {
		t.Errorf("after a change the source is %+v", got)
	}
	if got := source().Annotations; got[location.SSHKeyAnnotation] != "id" {
		t.Errorf("the annotations of the source are %v, want the key of the Secret", got)
	}
	cl.jobs = &jobs{config: Config{ReadAs: "default"}, accounts: kube.NewAccounts(k.Config, k.Client.Scheme(), k.Client.RESTMapper())}
	if b := ensure().o.Blocked; b == nil || b.Kind != fault.Denied || b.Reason != stack.SourceDenied || !strings.Contains(b.Message, "Secret key") {
		t.Errorf("blocked by %+v, want the ServiceAccount that may not read the Secret", b)
	}
	mayGet(t, k, "default", []string{"secrets"}, []string{"key"})
	testkit.Eventually(t, testkit.Patience, "the Role is enough", func(context.Context) error {
		if b := ensure().o.Blocked; b != nil {
			return fmt.Errorf("blocked: %+v", b)
		}
		return nil
	})
	withdrawn := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: "default-inputs"}}
	if err := k.Client.Delete(t.Context(), withdrawn); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, testkit.Patience, "the right is withdrawn", func(context.Context) error {
		if b := ensureAs(&entry{}, now).o.Blocked; b == nil {
			return errors.New("a controller that knows nothing of the stack is not blocked")
		}
		return nil
	})
	if b := ensure().o.Blocked; b != nil {
		t.Errorf("blocked by %+v, and neither the stack nor its source has changed", b)
	}
	for name, change := range map[string]func(e *entry) *pass{
		"a while later":         func(e *entry) *pass { return ensureAs(e, now.Add(rightTrusted)) },
		"the clock is set back": func(e *entry) *pass { return ensureAs(e, now.Add(-time.Second)) },
		"another generation": func(e *entry) *pass {
			obj.Generation++
			defer func() { obj.Generation-- }()
			return ensureAs(e, now)
		},
		"another host": func(e *entry) *pass {
			url := obj.Spec.GitRepo.URL
			obj.Spec.GitRepo.URL = "ssh://git@other.example/org/repo"
			defer func() { obj.Spec.GitRepo.URL = url }()
			return ensureAs(e, now)
		},
	} {
		e := &entry{right: known.right, rightSeen: known.rightSeen}
		for _, again := range []string{"", ", and again"} {
			if b := change(e).o.Blocked; b == nil || b.Reason != stack.SourceDenied {
				t.Errorf("%s%s: blocked by %+v, want the right that was withdrawn", name, again, b)
			}
		}
	}
	fetched := source()
	fetched.Status.Artifact = &fluxmeta.Artifact{Path: "p", URL: "http://source/p", Revision: "main@sha1:1", Digest: "sha256:" + strings.Repeat("0", 64), LastUpdateTime: metav1.Now()}
	if err := k.Client.Status().Update(t.Context(), fetched); err != nil {
		t.Fatal(err)
	}
	if b := ensure().o.Blocked; b == nil || b.Reason != stack.SourceDenied {
		t.Errorf("the source has fetched something new: blocked by %+v, want the right that was withdrawn", b)
	}
	obj.Spec.GitRepo.SSHKeySecret, obj.Spec.GitRepo.URL = nil, "https://git.example/org/repo.git"
	if b := ensure().o.Blocked; b != nil {
		t.Errorf("blocked by %+v, and no Secret is named", b)
	}
	if got := source(); got.Spec.SecretRef != nil || len(got.Annotations) != 0 {
		t.Errorf("the source has the Secret %+v and the annotations %v, want none", got.Spec.SecretRef, got.Annotations)
	}
	foreign := source()
	foreign.OwnerReferences = nil
	if err := k.Client.Update(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	if b := ensure().o.Blocked; b == nil || b.Reason != stack.SourceDenied || !strings.Contains(b.Message, "alustan-net") {
		t.Errorf("blocked by %+v, want the source of another object to be named", b)
	}
}

// A stack that moves between git and an image loses its former source, once its code was applied
// from the new one, and only if the former one is its own.
func TestFormerSource(t *testing.T) {
	k := testkit.Kube(t, v1alpha1.AddToScheme, sourcev1.AddToScheme)
	git := func(o *v1alpha1.Terraform) { o.Spec.GitRepo = &v1alpha1.GitRepo{URL: "https://git.example/org/repo"} }
	image := func(o *v1alpha1.Terraform) {
		o.Spec.ContainerRegistry = &v1alpha1.ContainerRegistry{ImageName: "registry.example/team/net", SemanticVersion: "~1.0.0"}
	}
	applied := func(p *pass) {
		p.o.PlanInputs.Source, p.decision.Ready = "sha256:1", stack.Ready
		p.o.Status.Applied = &stack.Plan{PlanInputs: stack.PlanInputs{Source: "sha256:1"}}
	}
	for name, tt := range map[string]struct {
		from, to func(*v1alpha1.Terraform)
		change   func(*pass)
		foreign  bool
		gone     bool
	}{
		"into-an-image":      {from: git, to: image, change: applied, gone: true},
		"back-into-git":      {from: image, to: git, change: applied, gone: true},
		"not-applied-yet":    {from: git, to: image, change: func(p *pass) { applied(p); p.o.Status.Applied.PlanInputs.Source = "sha256:0" }},
		"never-applied":      {from: git, to: image, change: func(p *pass) { applied(p); p.o.Status.Applied = nil }},
		"the-run-failed":     {from: git, to: image, change: func(p *pass) { applied(p); p.decision.Ready = stack.Reconciling }},
		"a-check-goes-on":    {from: git, to: image, change: func(p *pass) { applied(p); p.o.Run = &stack.Run{} }},
		"nothing-is-fetched": {from: git, to: image, change: func(p *pass) { applied(p); p.o.PlanInputs.Source = "" }},
		"it-is-deleted":      {from: git, to: image, change: func(p *pass) { applied(p); p.o.Deleting = true }},
		"it-cannot-be-read":  {from: git, to: image, change: func(p *pass) { applied(p); p.st.Owned = nil }},
		"of-another-owner":   {from: git, to: image, change: applied, foreign: true},
	} {
		t.Run(name, func(t *testing.T) {
			obj := &v1alpha1.Terraform{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: name}}
			obj.Spec.Scripts.Apply = jsonOf(`"a"`)
			tt.from(obj)
			if err := k.Client.Create(t.Context(), obj); err != nil {
				t.Fatal(err)
			}
			cl := &claimer{cache: k.Client, live: k.Client, jobs: &jobs{}}
			decode := func() *pass {
				t.Helper()
				p := &pass{dialect: alustan.Dialect{}, obj: obj, entry: &entry{}}
				var err error
				if p.st, err = p.dialect.Decode(obj); err == nil {
					err = cl.ensureOwned(t.Context(), p)
				}
				if err != nil || p.o.Blocked != nil {
					t.Fatal(err, p.o.Blocked)
				}
				return p
			}
			former := decode().st.Owned
			if tt.foreign {
				if err := k.Client.Get(t.Context(), client.ObjectKeyFromObject(former), former); err != nil {
					t.Fatal(err)
				}
				former.SetOwnerReferences(nil)
				if err := k.Client.Update(t.Context(), former); err != nil {
					t.Fatal(err)
				}
			}
			obj.Spec.GitRepo, obj.Spec.ContainerRegistry = nil, nil
			tt.to(obj)
			p := decode()
			present := p.st.Owned
			tt.change(p)
			f := &formerSources{cache: k.Client, live: k.Client, events: mute{}, log: slog.New(slog.DiscardHandler)}
			if err := f.drop(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			if err := k.Client.Get(t.Context(), client.ObjectKeyFromObject(former), newOwned(former)); apierrors.IsNotFound(err) != tt.gone {
				t.Errorf("reading the former source: %v; want that it is gone: %v", err, tt.gone)
			}
			if err := k.Client.Get(t.Context(), client.ObjectKeyFromObject(present), newOwned(present)); err != nil {
				t.Errorf("reading the present source: %v", err)
			}
			if err := f.drop(t.Context(), p); err != nil {
				t.Errorf("drop(), again: %v", err)
			}
		})
	}
}

func jsonOf(text string) *apiextensionsv1.JSON { return &apiextensionsv1.JSON{Raw: []byte(text)} }
