package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/dialect/kinds"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/record"
)

// bucket is a store that takes a while for each record.
type bucket struct {
	RetainedStore
	records map[string][]byte
	broken  string // the key of a record that cannot be read
}

func (b bucket) List(context.Context, string) ([]string, error) {
	return slices.Sorted(maps.Keys(b.records)), nil
}

func (b bucket) Get(ctx context.Context, key string) ([]byte, error) {
	select {
	case <-time.After(30 * time.Millisecond):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	raw, has := b.records[key]
	switch {
	case key == b.broken:
		return nil, errors.New("the record cannot be decrypted")
	case !has:
		return nil, fault.New(fault.Missing, "NotFound", errors.New("no record"))
	}
	return raw, nil
}

func (b bucket) Delete(context.Context, string) error { return nil }

func (b bucket) put(t *testing.T, key string, v any) {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	b.records[key] = raw
}

// places has namespaces, each with its UID, and no stack. The namespaces of an empty one may
// not be listed.
type places map[string]string

func (c places) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: "terraforms"}, "")
}

func (c places) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if len(c) == 0 {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, "", errors.New("no role"))
	}
	for name, uid := range c {
		n := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid), CreationTimestamp: metav1.NewTime(began)}}
		list.(*metav1.PartialObjectMetadataList).Items = append(list.(*metav1.PartialObjectMetadataList).Items, n)
	}
	return nil
}

var began = time.Date(2026, 3, 14, 15, 0, 0, 0, time.UTC)

// everywhere is a user with the permission in all namespaces, and elsewhere one without it.
func everywhere(string) error { return nil }

func elsewhere(string) error {
	return fault.New(fault.Denied, access.ReasonAccessDenied, errors.New("not in all namespaces"))
}

// A record is for users of the namespace that its stack was in. If that was deleted, it is for
// users of all namespaces, and no other user learns that there is one.
func TestARecordIsForUsersOfItsNamespace(t *testing.T) {
	b := bucket{records: map[string][]byte{}}
	for uid, r := range map[string]kube.Retained{
		"now":      {Stack: "apps/net", At: began.Add(time.Hour), Origin: kube.Origin{NamespaceUID: "apps-2"}, State: &kube.StateRef{Namespace: "apps", Workspace: "default", Suffix: "net"}},
		"born-now": {Stack: "apps/net", At: began.Add(time.Hour), Origin: kube.Origin{StackCreated: began}, Why: kube.WhyRemoved},
		"former":   {Stack: "apps/net", At: began.Add(-time.Hour), Origin: kube.Origin{NamespaceUID: "apps-1"}, State: &kube.StateRef{Namespace: "apps", Workspace: "default", Suffix: "net"}},
		"late":     {Stack: "apps/net", At: began.Add(time.Hour), Origin: kube.Origin{StackCreated: began.Add(-time.Hour)}, Why: kube.WhyRemoved},
		"old":      {Stack: "apps/net", At: began.Add(time.Hour)},
		"older":    {Stack: "apps/net", At: began.Add(-time.Hour)},
		"old-late": {Stack: "apps/net", At: began.Add(time.Hour), Why: kube.WhyRemoved},
		"deleted":  {Stack: "gone/net", At: began.Add(time.Hour), Origin: kube.Origin{NamespaceUID: "gone-1"}},
		"unnamed":  {Stack: "/", At: began.Add(time.Hour)},
	} {
		b.put(t, record.Retained(uid, record.RetainedFile), r)
		b.put(t, record.Retained(uid, record.RetainedStateFile), "state")
	}
	b.put(t, record.Retained("forgot", record.ForgottenFile), kube.Forgotten{Stack: "apps/net"})
	all := []string{"born-now", "deleted", "forgot", "former", "late", "now", "old", "old-late", "older", "unnamed"}
	of := func(namespace string) []string {
		return slices.DeleteFunc(slices.Clone(all), func(uid string) bool {
			return namespace == "gone" && uid != "deleted" || namespace == "apps" && (uid == "deleted" || uid == "unnamed")
		})
	}
	here := []string{"born-now", "now", "old"}
	for name, tt := range map[string]struct {
		cluster places
		formers Formers
		want    map[string][]string // by namespace; nil is an error
	}{
		"a user of the namespace":    {places{"apps": "apps-2", "shop": "shop-1"}, elsewhere, map[string][]string{"apps": here, "gone": {}, "": here}},
		"no one has all namespaces":  {places{"apps": "apps-2", "shop": "shop-1"}, nil, map[string][]string{"apps": here, "gone": {}, "": here}},
		"a user of all namespaces":   {places{"apps": "apps-2", "shop": "shop-1"}, everywhere, map[string][]string{"apps": of("apps"), "gone": of("gone"), "": all}},
		"it cannot be told":          {places{}, elsewhere, map[string][]string{"apps": nil, "gone": nil, "": nil}},
		"not told, but everywhere":   {places{}, everywhere, map[string][]string{"apps": of("apps"), "gone": of("gone"), "": all}},
		"the right cannot be tested": {places{"apps": "apps-2"}, func(string) error { return errors.New("no answer") }, map[string][]string{"apps": nil, "gone": nil, "": nil}},
	} {
		synctest.Test(t, func(t *testing.T) {
			k := NewRetained(b, tt.cluster, kinds.All()).For(tt.formers)
			for namespace, want := range tt.want {
				found, err := k.List(t.Context(), namespace)
				got := []string{}
				for _, r := range found {
					got = append(got, r.UID)
					if known := len(tt.cluster) > 0; known && r.Former == slices.Contains(append(here, "unnamed"), r.UID) || r.Former && r.Secret != "" {
						t.Errorf("%s: %+v, want it to say that its namespace was deleted if it was, and no Secret then", name, r)
					}
				}
				slices.Sort(got)
				if (err == nil) != (want != nil) || want != nil && !slices.Equal(got, want) {
					t.Errorf("%s: List(%q) = %v, %v, want %v", name, namespace, got, err, want)
				}
			}
			for _, uid := range of("apps") {
				state, err := k.State(t.Context(), query.Key{Namespace: "apps", Name: "net"}, uid)
				if err == nil {
					err = state.Close()
				}
				may := slices.Contains(tt.want["apps"], uid)
				if name == "the right cannot be tested" { // no other record comes in the way of one
					may = slices.Contains(here, uid)
				}
				want := uid != "forgot" && may
				if want != (err == nil) || len(tt.cluster) > 0 && !want && tt.want["apps"] != nil && fault.Of(err) != fault.Missing {
					t.Errorf("%s: State(%s) = %v, want it to be there: %v", name, uid, err, want)
				}
				if err := k.Forget(t.Context(), query.Key{Namespace: "apps", Name: "net"}, uid); err == nil && !may {
					t.Errorf("%s: Forget(%s) = nil, want it to find nothing", name, uid)
				}
			}
		})
	}
}

// The records of thousands of deleted stacks are listed within the time of a request, although
// each is read by itself, the newest first and none twice.
func TestManyRetainedStacksAreListedInTime(t *testing.T) {
	const stacks, ofApps, within = 3000, 1000, 30 * time.Second
	b := bucket{records: map[string][]byte{}}
	for i := range stacks {
		uid := fmt.Sprintf("uid-%04d", i)
		b.put(t, record.Retained(uid, record.RetainedFile), kube.Retained{Stack: fmt.Sprintf("%s/net-%d", []string{"apps", "shop", "shop"}[i%3], i), At: began.Add(time.Duration(i) * time.Minute)})
		if i%2 == 0 {
			b.put(t, record.Retained(uid, record.RetainedStateFile), "state")
			b.put(t, record.Retained(uid, record.ForgottenFile), kube.Forgotten{Stack: "apps/net"})
		}
	}
	b.put(t, record.Retained("exists", record.ForgottenFile), kube.Forgotten{Stack: "other/net"})
	synctest.Test(t, func(t *testing.T) {
		k := NewRetained(b, places{"apps": "", "shop": "", "other": ""}, kinds.All()).For(everywhere)
		for namespace, want := range map[string]int{"": stacks + 1, "apps": ofApps, "other": 1, "none": 0} {
			started := time.Now()
			found, err := k.List(t.Context(), namespace)
			if err != nil || len(found) != want {
				t.Fatalf("of the namespace %q %d are listed, %v; want %d", namespace, len(found), err, want)
			}
			if took := time.Since(started); took > within {
				t.Errorf("listing them takes %s, and a request has %s", took, within)
			}
			for i, r := range found {
				if i > 0 && found[i-1].At.Before(r.At) {
					t.Fatalf("%s comes after %s", r.At, found[i-1].At)
				}
				if even := int(r.At.Sub(began)/time.Minute)%2 == 0; !r.Exists && r.Kept != even || len(r.Ways) == 0 {
					t.Fatalf("%+v, want it to say whether its state is kept, and what to do", r)
				}
			}
		}
		b.broken = record.Retained("uid-0007", record.RetainedFile)
		if found, err := NewRetained(b, places{}, kinds.All()).For(everywhere).List(t.Context(), ""); err == nil {
			t.Errorf("%d records and no error, although one could not be read", len(found))
		}
	})
}
