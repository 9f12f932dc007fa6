package kube

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// reads makes a client that counts what it is asked to read.
func reads(t *testing.T, k *testkit.Cluster) (client.Client, *int) {
	t.Helper()
	w, err := client.NewWithWatch(k.Config, client.Options{Scheme: k.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	n := new(int)
	return interceptor.NewClient(w, interceptor.Funcs{Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
		*n++
		return w.Get(ctx, key, obj, opts...)
	}}), n
}

// parties take locks and store states. One with a memory must end where one
// without ends, whatever others do between what it reads and what it writes.
func parties(t *testing.T, k *testkit.Cluster) (forgetful, mindful States, n *int) {
	t.Helper()
	c, n := reads(t, k)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	now := func() time.Time { return at }
	return States{Client: k.Client, Now: now}, States{Client: c, Now: now, Seen: NewSeen()}, n
}

// A lock is taken and freed upon what is there, not upon what is remembered.
func TestAnOldLockMisleadsNoClient(t *testing.T) {
	k := testkit.Kube(t)
	forgetful, mindful, n := parties(t, k)
	mine, theirs := LockInfo{ID: "run-1", Who: "terrier a/b", Holder: "i/uid/run-1"}, LockInfo{ID: "their-1", Who: "ann@laptop"}
	drop := func(ctx context.Context, other States, ref StateRef) error {
		lease := &coordinationv1.Lease{}
		lease.Namespace, lease.Name = ref.lease().Namespace, ref.lease().Name
		return client.IgnoreNotFound(other.Client.Delete(ctx, lease))
	}
	take := func(ctx context.Context, other States, ref StateRef) error { return other.Lock(ctx, ref, theirs) }
	pass := func(ctx context.Context, other States, ref StateRef) error {
		return errors.Join(other.Lock(ctx, ref, theirs), other.Unlock(ctx, ref, theirs.ID))
	}
	steal := func(ctx context.Context, other States, ref StateRef) error {
		return errors.Join(other.Unlock(ctx, ref, mine.ID), other.Lock(ctx, ref, theirs))
	}
	quiet := func(context.Context, States, StateRef) error { return nil }
	for name, tt := range map[string]struct {
		there                 bool // another holder had the lock before
		beforeLock, afterLock func(context.Context, States, StateRef) error
		locked                bool
		holder                string
		reads                 int // what a memory still has to read
	}{
		"nobody comes in between":                   {beforeLock: quiet, afterLock: quiet, locked: true, reads: 1},
		"nobody comes in between, the second time":  {there: true, beforeLock: quiet, afterLock: quiet, locked: true, reads: 1},
		"somebody takes a new lock first":           {beforeLock: take, afterLock: quiet, holder: theirs.ID, reads: 3},
		"somebody takes it first":                   {there: true, beforeLock: take, afterLock: quiet, holder: theirs.ID, reads: 3},
		"somebody had it in between":                {there: true, beforeLock: pass, afterLock: quiet, locked: true, reads: 2},
		"somebody deletes the lease":                {there: true, beforeLock: drop, afterLock: quiet, locked: true, reads: 2},
		"somebody breaks it and takes it":           {there: true, beforeLock: quiet, afterLock: steal, locked: true, holder: theirs.ID, reads: 2},
		"somebody deletes the lease while we hold":  {beforeLock: quiet, afterLock: drop, locked: true, reads: 2},
		"somebody makes the lease, and frees it":    {beforeLock: pass, afterLock: quiet, locked: true, reads: 2},
		"somebody makes the lease, and it is taken": {beforeLock: steal, afterLock: quiet, holder: theirs.ID, reads: 3},
	} {
		t.Run(name, func(t *testing.T) {
			for i, s := range []States{forgetful, mindful} {
				ref := StateRef{Namespace: k.Namespace, Workspace: "default", Suffix: fmt.Sprint(strings.ReplaceAll(strings.ReplaceAll(name, " ", "-"), ",", ""), i)}
				if tt.there {
					if err := pass(t.Context(), forgetful, ref); err != nil {
						t.Fatal(err)
					}
				}
				*n = 0
				if h, err := s.Holder(t.Context(), ref); h != nil || err != nil {
					t.Fatalf("Holder() = %v, %v before anything", h, err)
				}
				if err := tt.beforeLock(t.Context(), forgetful, ref); err != nil {
					t.Fatal(err)
				}
				err := s.Lock(t.Context(), ref, mine)
				if held, ok := errors.AsType[*LockedError](err); (err == nil) != tt.locked || ok && held.Holder.ID != theirs.ID {
					t.Errorf("Lock() = %v, want it locked: %v", err, tt.locked)
				}
				if err := tt.afterLock(t.Context(), forgetful, ref); err != nil {
					t.Fatal(err)
				}
				if err := s.Unlock(t.Context(), ref, mine.ID); err != nil {
					t.Errorf("Unlock() = %v", err)
				}
				if s.Seen != nil && *n != tt.reads {
					t.Errorf("%d reads, want %d", *n, tt.reads)
				}
				h, err := forgetful.Holder(t.Context(), ref)
				if err != nil || (h != nil) != (tt.holder != "") || h != nil && h.Holder.ID != tt.holder {
					t.Errorf("the lock is held by %v afterwards, %v; want %q", h, err, tt.holder)
				}
			}
		})
	}
}

// TB-16: a foreign write is not overwritten by a client that remembers the version
// before.
func TestAnOldStateMisleadsNoClient(t *testing.T) {
	k := testkit.Kube(t)
	forgetful, mindful, n := parties(t, k)
	save := func(state []byte) func(context.Context, States, StateRef) error {
		return func(ctx context.Context, other States, ref StateRef) error {
			return other.Save(ctx, ref, Owner{Name: "other"}, state)
		}
	}
	change := func(f func(*corev1.Secret)) func(context.Context, States, StateRef) error {
		return func(ctx context.Context, other States, ref StateRef) error {
			var s corev1.Secret
			if err := other.Client.Get(ctx, ref.secret(), &s); err != nil {
				return err
			}
			f(&s)
			return other.Client.Update(ctx, &s)
		}
	}
	drop := func(ctx context.Context, other States, ref StateRef) error {
		s := &corev1.Secret{}
		s.Namespace, s.Name = ref.secret().Namespace, ref.secret().Name
		return other.Client.Delete(ctx, s)
	}
	quiet := func(context.Context, States, StateRef) error { return nil }
	for name, tt := range map[string]struct {
		serial  int // of what is there before, 0 if there is none
		between func(context.Context, States, StateRef) error
		next    []byte
		want    fault.Kind
		stored  []byte
		reads   int
	}{
		"nobody comes in between, to a new state":   {0, quiet, state("l", 1, ""), fault.None, state("l", 1, ""), 1},
		"nobody comes in between":                   {4, quiet, state("l", 5, ""), fault.None, state("l", 5, ""), 1},
		"somebody stores a newer one":               {4, save(state("l", 7, "theirs")), state("l", 5, ""), fault.Conflict, state("l", 7, "theirs"), 2},
		"somebody stores the same serial":           {4, save(state("l", 5, "theirs")), state("l", 5, ""), fault.Conflict, state("l", 5, "theirs"), 2},
		"somebody stores one between the two":       {4, save(state("l", 5, "theirs")), state("l", 6, ""), fault.None, state("l", 6, ""), 2},
		"somebody stores the first one":             {0, save(state("m", 1, "theirs")), state("l", 1, ""), fault.Conflict, state("m", 1, "theirs"), 2},
		"somebody takes it away":                    {4, drop, state("l", 5, ""), fault.None, state("l", 5, ""), 2},
		"somebody breaks it":                        {4, change(func(s *corev1.Secret) { s.Data[stateKey] = []byte("x") }), state("l", 5, ""), fault.Conflict, nil, 2},
		"it is an older one":                        {4, quiet, state("l", 3, ""), fault.Conflict, state("l", 4, ""), 2},
		"it is of another lineage":                  {4, quiet, state("m", 5, ""), fault.Conflict, state("l", 4, ""), 2},
		"it is the same":                            {4, quiet, state("l", 4, ""), fault.None, state("l", 4, ""), 2},
		"it is the same, and was taken away":        {4, drop, state("l", 4, ""), fault.None, state("l", 4, ""), 2},
		"it is large":                               {4, quiet, state("l", 5, strings.Repeat("x", seenBytes)), fault.None, state("l", 5, strings.Repeat("x", seenBytes)), 1},
		"somebody has put something else beside it": {4, change(func(s *corev1.Secret) { s.Data["notes"] = []byte("keep me") }), state("l", 5, ""), fault.None, state("l", 5, ""), 2},
	} {
		t.Run(name, func(t *testing.T) {
			for i, s := range []States{forgetful, mindful} {
				ref := StateRef{Namespace: k.Namespace, Workspace: "default", Suffix: fmt.Sprint(strings.ReplaceAll(strings.ReplaceAll(name, " ", "-"), ",", ""), i)}
				if tt.serial > 0 {
					if err := save(state("l", tt.serial, ""))(t.Context(), forgetful, ref); err != nil {
						t.Fatal(err)
					}
				}
				*n = 0
				if _, err := s.Load(t.Context(), ref); err != nil {
					t.Fatal(err)
				}
				if err := tt.between(t.Context(), forgetful, ref); err != nil {
					t.Fatal(err)
				}
				if err := s.Save(t.Context(), ref, Owner{Name: "net", UID: "uid"}, tt.next); fault.Of(err) != tt.want {
					t.Errorf("Save() = %v, want %q", err, tt.want)
				}
				if s.Seen != nil && *n != tt.reads {
					t.Errorf("%d reads, want %d", *n, tt.reads)
				}
				got, err := forgetful.Load(t.Context(), ref)
				if tt.stored != nil && (err != nil || string(got.State) != string(tt.stored)) {
					t.Errorf("stored is %.60q, %v; want %.60q", got.State, err, tt.stored)
				}
				if tt.stored == nil && fault.Reason(err, "") != StateUnreadable {
					t.Errorf("Load() = %v, want that it stays unreadable", err)
				}
			}
		})
	}
}

// What else a Secret holds, and who its labels and annotations are from, stays
// when a state is written over it unread.
func TestAStateLeavesWhatItDoesNotKnow(t *testing.T) {
	k := testkit.Kube(t)
	_, s, n := parties(t, k)
	for name, tt := range map[string]struct {
		more  map[string][]byte
		reads int
	}{
		"labels and annotations": {nil, 1},
		"other data":             {map[string][]byte{"notes": []byte("keep me")}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			ref := StateRef{Namespace: k.Namespace, Workspace: "default", Suffix: strings.ReplaceAll(name, " ", "-")}
			if err := s.Save(t.Context(), ref, Owner{Name: "net"}, state("l", 1, "")); err != nil {
				t.Fatal(err)
			}
			var secret corev1.Secret
			if err := k.Client.Get(t.Context(), ref.secret(), &secret); err != nil {
				t.Fatal(err)
			}
			secret.Labels["team"], secret.Annotations["backup"] = "a", "daily"
			for key, value := range tt.more {
				secret.Data[key] = value
			}
			if err := k.Client.Update(t.Context(), &secret); err != nil {
				t.Fatal(err)
			}
			*n = 0
			if _, err := s.Load(t.Context(), ref); err != nil {
				t.Fatal(err)
			}
			if err := s.Save(t.Context(), ref, Owner{Name: "net"}, state("l", 2, "")); err != nil {
				t.Fatal(err)
			}
			if *n != tt.reads {
				t.Errorf("%d reads, want %d", *n, tt.reads)
			}
			if err := k.Client.Get(t.Context(), ref.secret(), &secret); err != nil {
				t.Fatal(err)
			}
			if secret.Labels["team"] != "a" || secret.Annotations["backup"] != "daily" || len(secret.Data) != 1+len(tt.more) {
				t.Errorf("afterwards it has the labels %v, the annotations %v and %d keys", secret.Labels, secret.Annotations, len(secret.Data))
			}
			if got, err := s.Load(t.Context(), ref); err != nil || string(got.State) != string(state("l", 2, "")) {
				t.Errorf("Load() = %q, %v", got.State, err)
			}
		})
	}
}
