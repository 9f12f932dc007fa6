package admission

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/terrier-iac/terrier/internal/testkit"
)

// The stamps of the policy under test: the test server puts on the real ones by
// itself.
const (
	changedBy   = "stamp.example.com/changed-by"
	decidedBy   = "stamp.example.com/decided-by"
	requestedBy = "stamp.example.com/requested-by"
	approvals   = "stamp.example.com/approved-by"
	overriding  = "stamp.example.com/overridden-by"
	stampsOf    = "stamp.example.com/stamps"
)

// epoch is that of the policy under test.
const epoch = "0a1b2c"

var renamed = strings.NewReplacer(
	"terrier.dev/changed-by", changedBy, "terrier.dev/decided-by", decidedBy,
	"terrier.dev/requested-by", requestedBy, "terrier.dev/approved-by", approvals, "terrier.dev/overridden-by", overriding, "terrier.dev/stamps", stampsOf,
	`expression: "''"`, `expression: "'`+epoch+`'"`)

// bound installs the policy under a name of the test's own, for its namespace.
func bound(t *testing.T) *testkit.Cluster {
	t.Helper()
	k := testkit.Kube(t)
	for _, file := range []string{"changed-by.yaml", "changed-by-binding.yaml"} {
		text, err := Files.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		u := &unstructured.Unstructured{}
		policy := renamed.Replace(strings.ReplaceAll(string(text), "changed-by.terrier.dev", k.Namespace))
		// The stamps of the server itself are not said by users either.
		policy = strings.ReplaceAll(policy, "!(k in variables.stamps)",
			"!(k in variables.stamps) && !(k in ['terrier.dev/changed-by', 'terrier.dev/decided-by', 'terrier.dev/requested-by', 'terrier.dev/approved-by', 'terrier.dev/overridden-by', 'terrier.dev/stamps'])")
		if err := yaml.Unmarshal([]byte(policy), &u.Object); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(u.GetKind(), "Binding") {
			only := map[string]any{"namespaceSelector": map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": k.Namespace}}}
			if err := unstructured.SetNestedMap(u.Object, only, "spec", "matchResources"); err != nil {
				t.Fatal(err)
			}
		}
		if err := k.Client.Create(t.Context(), u); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
			defer cancel()
			if err := k.Client.Delete(ctx, u); err != nil {
				t.Logf("removing %s: %v", u.GetKind(), err)
			}
		})
	}
	n := 0
	testkit.Eventually(t, testkit.Patience, "the policy is in force", func(ctx context.Context) error {
		n++
		o := stackNamed(k.Namespace, fmt.Sprint("probe-", n))
		if err := k.Client.Create(ctx, o); err != nil {
			return err
		}
		if o.GetAnnotations()[changedBy] == "" {
			return fmt.Errorf("%s is not stamped", o.GetName())
		}
		return nil
	})
	return k
}

func stackNamed(namespace, name string) *unstructured.Unstructured {
	return object(namespace, name, "infra.contrib.fluxcd.io/v1alpha2", "Terraform", map[string]any{
		"interval": "1h", "suspend": true, "sourceRef": map[string]any{"kind": "GitRepository", "name": "none"},
	})
}

func object(namespace, name, version, kind string, spec map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetAPIVersion(version)
	u.SetKind(kind)
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

// as is a client of another user, who may do everything.
func as(t *testing.T, k *testkit.Cluster, name string) client.Client {
	t.Helper()
	config := rest.CopyConfig(k.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: []string{"system:masters"}}
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestWhoChangedAStack(t *testing.T) {
	k := bound(t)
	ann, bob, eve := as(t, k, "ann"), as(t, k, "bob"), as(t, k, "eve")
	o := stackNamed(k.Namespace, "net")
	if err := ann.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	patch := func(who client.Client, text string) error {
		return who.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(text)))
	}
	status := func(who client.Client, text string) error {
		return who.Status().Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(text)))
	}
	for _, step := range []struct {
		what             string
		do               func() error
		changed, decided string
	}{
		{"a new stack is its maker's", func() error { return nil }, "ann", ""},
		{"a change of the spec", func() error { return patch(bob, `{"spec":{"interval":"2h"}}`) }, "bob", ""},
		{"a label is no change", func() error { return patch(eve, `{"metadata":{"labels":{"a":"b"}}}`) }, "bob", ""},
		{"a finalizer is none", func() error { return patch(eve, `{"metadata":{"finalizers":["example.com/x"]}}`) }, "bob", ""},
		{"a status is none", func() error { return status(eve, `{"status":{"observedGeneration":7}}`) }, "bob", ""},
		{"another annotation is none", func() error { return patch(eve, `{"metadata":{"annotations":{"example.com/x":"y"}}}`) }, "bob", ""},
		{"a request is one", func() error {
			return patch(ann, `{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":"1"}}}`)
		}, "ann", ""},
		{"an approval", func() error { return patch(bob, `{"spec":{"approvePlan":"plan-main-1"}}`) }, "bob", "bob"},
		{"a change after an approval", func() error { return patch(ann, `{"spec":{"interval":"3h"}}`) }, "ann", "bob"},
		{"a rejection", func() error {
			return patch(ann, `{"spec":{"approvePlan":""},"metadata":{"annotations":{"terrier.dev/rejected":"plan-main-1"}}}`)
		}, "ann", "ann"},
		{"taking back is no decision", func() error { return patch(bob, `{"metadata":{"annotations":{"terrier.dev/rejected":null}}}`) }, "bob", "ann"},
		{"nobody writes the stamps", func() error {
			return patch(eve, `{"metadata":{"annotations":{"`+changedBy+`":"ann","`+decidedBy+`":"ann"}}}`)
		}, "bob", "ann"},
		{"nobody takes them off", func() error { return patch(eve, `{"metadata":{"annotations":null}}`) }, "eve", "ann"},
		{"nor forges one beside a change", func() error {
			return patch(eve, `{"spec":{"approvePlan":"plan-main-2"},"metadata":{"annotations":{"`+changedBy+`":"ann","`+decidedBy+`":"ann"}}}`)
		}, "eve", "eve"},
	} {
		t.Run(step.what, func(t *testing.T) {
			if err := step.do(); err != nil {
				t.Fatal(err)
			}
			if got := o.GetAnnotations(); got[changedBy] != step.changed || got[decidedBy] != step.decided {
				t.Errorf("changed by %q, decided by %q, want %q and %q", got[changedBy], got[decidedBy], step.changed, step.decided)
			}
		})
	}
	forged := stackNamed(k.Namespace, "forged")
	forged.SetAnnotations(map[string]string{changedBy: "ann", decidedBy: "ann"})
	if err := eve.Create(t.Context(), forged); err != nil {
		t.Fatal(err)
	}
	if got := forged.GetAnnotations(); got[changedBy] != "eve" || got[decidedBy] != "" {
		t.Errorf("a stack that was made with stamps has %v, want those of its maker", got)
	}
}

func TestWhoChangedTenants(t *testing.T) {
	k := bound(t)
	ann, bob := as(t, k, "ann"), as(t, k, "bob")
	for kind, spec := range map[string]map[string]any{
		"TenantRegistry": {
			"source":             map[string]any{"type": "sqlite", "syncInterval": "1m", "sqlite": map[string]any{"path": "/none", "table": "t"}},
			"valueMappings":      map[string]any{"uid": "id", "activate": "on"},
			"suspend":            true,
			"extraValueMappings": map[string]any{},
		},
		"TenantTemplate": {"registryId": "none"},
	} {
		t.Run(kind, func(t *testing.T) {
			o := object(k.Namespace, "who", "operator.kubernetes-tenants.org/v1", kind, spec)
			if err := ann.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			text := `{"metadata":{"annotations":{"terrier.dev/allow-deletions":"token","terrier.dev/rollout":"3"}}}`
			if err := bob.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(text))); err != nil {
				t.Fatal(err)
			}
			if got := o.GetAnnotations(); got[changedBy] != "bob" || got[decidedBy] != "bob" {
				t.Errorf("stamped %v, want bob", got)
			}
			if err := ann.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"terrier.dev/allow-deletions":null}}}`))); err != nil {
				t.Fatal(err)
			}
			if got := o.GetAnnotations(); got[changedBy] != "ann" || got[decidedBy] != "bob" {
				t.Errorf("stamped %v after taking it back, want ann and bob", got)
			}
		})
	}
}

// The approvals of a plan: of each user once, with the groups, and only of the plan that
// was approved last. To approve a plan is not to request a change.
func TestWhoApprovedAPlan(t *testing.T) {
	k := bound(t)
	member := func(name string, groups ...string) client.Client {
		config := rest.CopyConfig(k.Config)
		config.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: append([]string{"system:masters"}, groups...)}
		c, err := client.New(config, client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	ann, bob, eve := member("ann", "dev"), member("bob", "ops", `a\b`), member(`eve\`)
	o := stackNamed(k.Namespace, "net")
	if err := ann.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	patch := func(who client.Client, text string) {
		t.Helper()
		if err := who.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(text))); err != nil {
			t.Fatal(err)
		}
	}
	want := func(requester string, lines ...string) {
		t.Helper()
		a := o.GetAnnotations()
		if got := a[approvals]; got != strings.Join(lines, "\n") || a[requestedBy] != requester || a[stampsOf] != epoch {
			t.Errorf("requested by %q, approvals %q; want %q and %q", a[requestedBy], got, requester, lines)
		}
	}
	const (
		byAnn = "plan-1\tann\tsystem:masters\tdev\tsystem:authenticated"
		byBob = "plan-1\tbob\tsystem:masters\tops\ta\\\\b\tsystem:authenticated"
		byEve = "plan-1\teve\\\\\tsystem:masters\tsystem:authenticated"
	)
	const made = "1\tann"
	want(made)
	patch(bob, `{"spec":{"approvePlan":"plan-1"}}`)
	want(made, byBob)
	patch(eve, `{"metadata":{"annotations":{"terrier.dev/confirm":"plan-1"}}}`)
	want(made, byBob, byEve)
	patch(ann, `{"metadata":{"annotations":{"terrier.dev/confirm":"plan-1 again"}}}`)
	want(made, byBob, byEve, byAnn)
	patch(bob, `{"metadata":{"annotations":{"terrier.dev/confirm":"plan-1 once more"}}}`)
	want(made, byEve, byAnn, byBob)
	patch(eve, `{"metadata":{"annotations":{"`+approvals+`":"plan-1\tzoe","`+requestedBy+`":"zoe"}}}`)
	want(made, byEve, byAnn, byBob)
	patch(eve, `{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":"1","terrier.dev/comment":"x","example.com/a":"b"}}}`)
	want(made, byEve, byAnn, byBob)
	patch(bob, `{"spec":{"path":"x","approvePlan":"plan-2"}}`) // a change that hides behind an approval
	want(made+"\n2\tbob", strings.ReplaceAll(byBob, "plan-1", "plan-2"))
	patch(ann, `{"spec":{"suspend":null}}`) // which no plan is made from
	want(made+"\n2\tbob", strings.ReplaceAll(byBob, "plan-1", "plan-2"))
	patch(eve, `{"metadata":{"annotations":{"terrier.dev/rejected":"plan-2"}}}`)
	want(made + "\n2\tbob")
	patch(eve, `{"metadata":{"annotations":{"terrier.dev/confirm":"plan-2","terrier.dev/rejected":null}}}`)
	want(made+"\n2\tbob", strings.ReplaceAll(byEve, "plan-1", "plan-2"))
	patch(ann, `{"spec":{"approvePlan":""}}`)
	want(made + "\n2\tbob")
	patch(ann, `{"spec":{"approvePlan":"auto"},"metadata":{"annotations":{"terrier.dev/confirm":"plan-3"}}}`)
	want(made+"\n2\tbob", strings.ReplaceAll(byAnn, "plan-1", "plan-3"))
	patch(bob, `{"metadata":{"annotations":{"terrier.dev/confirm":"plan-3 of bob"}}}`)
	want(made+"\n2\tbob", strings.ReplaceAll(byAnn, "plan-1", "plan-3"), strings.ReplaceAll(byBob, "plan-1", "plan-3"))
	patch(ann, `{"metadata":{"annotations":{"terrier.dev/confirm":null}}}`)
	want(made + "\n2\tbob")
	for range 30 {
		patch(eve, fmt.Sprintf(`{"spec":{"path":"%d"}}`, o.GetGeneration()))
	}
	lines := strings.Split(o.GetAnnotations()[requestedBy], "\n")
	if len(lines) != 20 || lines[0] != "13\teve\\\\" || lines[19] != "32\teve\\\\" {
		t.Errorf("%d changes are kept, from %q to %q", len(lines), lines[0], lines[len(lines)-1])
	}
}

// The users who want a plan to be applied outside of windows: as with approvals. They are no
// requesters.
func TestWhoOverridesWindows(t *testing.T) {
	k := bound(t)
	ann, bob, eve := as(t, k, "ann"), as(t, k, "bob"), as(t, k, `eve\`)
	o := stackNamed(k.Namespace, "net")
	o.SetAnnotations(map[string]string{overriding: "plan-1\tzoe", stampsOf: epoch})
	if err := ann.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	const groups = "\tsystem:masters\tsystem:authenticated"
	for _, step := range []struct {
		who  client.Client
		text string
		want string
	}{
		{ann, `{"metadata":{"labels":{"a":"b"}}}`, ""},
		{bob, `{"metadata":{"annotations":{"terrier.dev/override-window":"plan-1"}}}`, "plan-1\tbob" + groups},
		{eve, `{"metadata":{"annotations":{"terrier.dev/override-window":"plan-1 as well"}}}`, "plan-1\tbob" + groups + "\nplan-1\teve\\\\" + groups},
		{eve, `{"metadata":{"annotations":{"` + overriding + `":"plan-1\tzoe"}}}`, "plan-1\tbob" + groups + "\nplan-1\teve\\\\" + groups},
		{bob, `{"metadata":{"annotations":{"terrier.dev/override-window":"plan-1 once more"}}}`, "plan-1\teve\\\\" + groups + "\nplan-1\tbob" + groups},
		{bob, `{"metadata":{"annotations":{"terrier.dev/override-window":" plan-1"}}}`, "plan-1\teve\\\\" + groups + "\nplan-1\tbob" + groups},
		{ann, `{"metadata":{"annotations":{"terrier.dev/override-window":"plan-2"}}}`, "plan-2\tann" + groups},
		{bob, `{"metadata":{"annotations":{"terrier.dev/rejected":"plan-2"}}}`, ""},
		{ann, `{"metadata":{"annotations":{"terrier.dev/override-window":"plan-2 again"}}}`, "plan-2\tann" + groups},
		{bob, `{"metadata":{"annotations":{"terrier.dev/override-window":null}}}`, ""},
	} {
		if err := step.who.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(step.text))); err != nil {
			t.Fatal(err)
		}
		if got := o.GetAnnotations(); got[overriding] != step.want || got[requestedBy] != "1\tann" || got[stampsOf] != epoch {
			t.Errorf("after %s the override is of %q, requested by %q; want %q and ann", step.text, got[overriding], got[requestedBy], step.want)
		}
	}
}

// The first change of a stack that was there before the stamps is not the first of all.
func TestChangesBeforeTheFirstStamp(t *testing.T) {
	k := bound(t)
	o := stackNamed(k.Namespace, "old")
	if err := as(t, k, "ann").Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	// As in an earlier epoch: the stamps of it are dropped.
	file, err := Files.ReadFile("changed-by.yaml")
	if err != nil {
		t.Fatal(err)
	}
	policy := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(file, &policy.Object); err != nil {
		t.Fatal(err)
	}
	policy.SetName(k.Namespace)
	if err := k.Client.Get(t.Context(), client.ObjectKeyFromObject(policy), policy); err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(policy.Object)
	if err != nil {
		t.Fatal(err)
	}
	next := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(string(text), "'"+epoch+"'", "'another'")), &next.Object); err != nil {
		t.Fatal(err)
	}
	if err := k.Client.Update(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	bob := as(t, k, "bob")
	testkit.Eventually(t, testkit.Patience, "the next epoch is in force", func(ctx context.Context) error {
		if err := bob.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`))); err != nil {
			return err
		}
		if got := o.GetAnnotations()[requestedBy]; got != "" {
			return fmt.Errorf("requested by %q", got)
		}
		return nil
	})
	if err := bob.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"path":"x"}}`))); err != nil {
		t.Fatal(err)
	}
	if got := o.GetAnnotations(); got[requestedBy] != "2\tbob" || got[stampsOf] != "another" {
		t.Errorf("requested by %q in the epoch %q, want the number 2", got[requestedBy], got[stampsOf])
	}
}

// A stack that is as large as an object may be is not refused by what it costs
// to look at it.
func TestLargeStack(t *testing.T) {
	k := bound(t)
	ann, bob := as(t, k, "ann"), as(t, k, "bob")
	var vars []any
	for i := range 3000 {
		vars = append(vars, map[string]any{"name": fmt.Sprintf("variable_%d", i), "value": map[string]any{"a": strings.Repeat("x", 150), "list": []any{int64(1), "two", map[string]any{"three": true}}}})
	}
	o := stackNamed(k.Namespace, "large")
	if err := unstructured.SetNestedSlice(o.Object, vars, "spec", "vars"); err != nil {
		t.Fatal(err)
	}
	notes := map[string]string{}
	for i := range 500 {
		notes[fmt.Sprintf("terrier.dev/note-%d", i)] = strings.Repeat("n", 300)
	}
	o.SetAnnotations(notes)
	if err := ann.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if err := bob.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"approvePlan":"plan-main-1"},"metadata":{"annotations":{"terrier.dev/note-499":"x"}}}`))); err != nil {
		t.Fatal(err)
	}
	if got := o.GetAnnotations(); got[changedBy] != "bob" || got[decidedBy] != "bob" {
		t.Errorf("changed by %q, decided by %q, want bob", got[changedBy], got[decidedBy])
	}
}
