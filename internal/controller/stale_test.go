package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/controller/policies"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/review"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/schedule"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// tally counts what is done to runs.
type tally struct {
	runner.Runner
	started, forgotten, removed []string
}

func (r *tally) Start(_ context.Context, job runner.Job) error {
	r.started = append(r.started, string(job.Kind))
	return nil
}

func (r *tally) Current(string) (*runner.Report, error) { return nil, nil }

func (r *tally) Forget(_, id string) error {
	r.forgotten = append(r.forgotten, id)
	return nil
}

func (r *tally) Remove(id string) error {
	r.removed = append(r.removed, id)
	return nil
}

// mute is a recorder without readers.
type mute struct{}

func (mute) Event(client.Object, string, string, string) {}

// lagging is a stack on a real API server, and a controller whose cache serves
// it as it was at some time.
type lagging struct {
	*apart
	k    *testkit.Cluster
	name string
	runs *tally
	old  *v1alpha2.Terraform // as the cache has it
}

func newLagging(t *testing.T, k *testkit.Cluster, name string) *lagging {
	t.Helper()
	l := &lagging{k: k, name: name, runs: &tally{}}
	config := rest.CopyConfig(k.Config)
	config.QPS = -1 // the server is our own
	w, err := client.NewWithWatch(config, client.Options{Scheme: k.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	cache := interceptor.NewClient(w, interceptor.Funcs{Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
		if to, ok := obj.(*v1alpha2.Terraform); ok && l.old != nil {
			l.old.DeepCopyInto(to)
			return nil
		}
		return w.Get(ctx, key, obj, opts...)
	}, List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		return nil // there is no other stack
	}})
	c := &Stacks{
		Client: cache, Live: w, Dialects: dialect.NewRegistry(infra.Dialect{}), Runner: l.runs, Blobs: openRecords(t),
		States: &lockOnly{}, Events: mute{}, Now: time.Now, Log: slog.New(slog.DiscardHandler), Queue: queueOf(9),
	}
	c.reviews = review.NewPool(func(context.Context, review.Question) review.Reply { return review.Reply{} })
	if c.metrics, err = newMetrics(nil, false, &schedule.Budgets{}); err != nil {
		t.Fatal(err)
	}
	l.apart = takeApart(c)
	l.create(t)
	return l
}

func (l *lagging) key() types.NamespacedName {
	return types.NamespacedName{Namespace: l.k.Namespace, Name: l.name}
}

func (l *lagging) ref() objectRef { return objectRef{infra.Dialect{}, l.key()} }

func (l *lagging) create(t *testing.T) {
	t.Helper()
	obj := &v1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Namespace: l.k.Namespace, Name: l.name, Finalizers: []string{infra.Dialect{}.Finalizer()}}}
	obj.Spec.SourceRef = &v1alpha2.SourceRef{Kind: "GitRepository", Name: "x"}
	obj.Spec.WriteOutputsToSecret = &v1alpha2.OutputSecret{Name: l.name}
	if err := l.k.Client.Create(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
}

func (l *lagging) server(t *testing.T) *v1alpha2.Terraform {
	t.Helper()
	var obj v1alpha2.Terraform
	if err := l.k.Client.Get(t.Context(), l.key(), &obj); err != nil {
		t.Fatal(err)
	}
	return &obj
}

// pass begins a pass as Reconcile does, with something of everything to act upon.
func (l *lagging) pass(t *testing.T) *pass {
	t.Helper()
	obj, cached, err := l.readObject(t.Context(), l.ref())
	if err != nil {
		t.Fatal(err)
	}
	st, err := infra.Dialect{}.Decode(obj)
	if err != nil {
		t.Fatal(err)
	}
	p := &pass{dialect: infra.Dialect{}, obj: obj, id: string(obj.GetUID()), entry: l.whole.index.make(string(obj.GetUID()), l.ref()), st: st, stale: cached, job: &runner.Job{}}
	p.o.Now, p.o.Spec, p.o.Status = time.Now(), st.Spec, st.Status
	for key, content := range map[string]string{"outputs.json": `{"host":{"value":"h","type":"string"}}`, "snapshots/kept": "{}"} {
		if err := l.records.Put(t.Context(), record.Stack(p.id)+key, []byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// does carries out an action, and returns what came in its way.
func (l *lagging) does(ctx context.Context, p *pass, a stack.Action) error {
	p.decision = stack.Decision{Action: a}
	if l.act(ctx, p) == outdated {
		return fault.New(fault.Conflict, "", errors.New("outdated"))
	}
	if p.o.Obstacle != nil {
		return errors.New(p.o.Obstacle.Message)
	}
	return nil
}

// An act that changes resources or cannot be undone requires that the server has the
// very object that the decision was made for. Each must also be done with a copy
// that is not old, or this test would say nothing.
var irrevocable = map[string]struct {
	do   func(context.Context, *lagging, *pass) error
	done func(*testing.T, *lagging, *pass) bool
}{
	"a plan is applied": {
		func(ctx context.Context, l *lagging, p *pass) error {
			return l.launch(ctx, p, stack.ApplyRun, stack.Cause{}, "")
		},
		func(_ *testing.T, l *lagging, _ *pass) bool { return len(l.runs.started) > 0 },
	},
	"what was built is taken down": {
		func(ctx context.Context, l *lagging, p *pass) error {
			return l.launch(ctx, p, stack.DestroyRun, stack.Cause{Destroy: true}, "")
		},
		func(_ *testing.T, l *lagging, _ *pass) bool { return len(l.runs.started) > 0 },
	},
	"a command of a person is run": {
		func(ctx context.Context, l *lagging, p *pass) error {
			return l.launch(ctx, p, stack.BreakGlassRun, stack.Cause{}, "")
		},
		func(_ *testing.T, l *lagging, _ *pass) bool { return len(l.runs.started) > 0 },
	},
	"a lock is broken": {
		func(ctx context.Context, l *lagging, p *pass) error {
			return l.launch(ctx, p, stack.PlanRun, stack.Cause{}, "somebody's")
		},
		func(_ *testing.T, l *lagging, _ *pass) bool { return len(l.runs.started) > 0 },
	},
	"outputs are published": {
		func(ctx context.Context, l *lagging, p *pass) error {
			return l.does(ctx, p, stack.Publish{State: "s"})
		},
		func(t *testing.T, l *lagging, _ *pass) bool {
			var s corev1.Secret
			err := l.k.Client.Get(t.Context(), l.key(), &s)
			if err != nil && !apierrors.IsNotFound(err) {
				t.Fatal(err)
			}
			return err == nil
		},
	},
	"webhooks are shown a plan": {
		func(ctx context.Context, l *lagging, p *pass) error {
			return l.does(ctx, p, stack.Review{Plan: stack.Plan{Digest: "sha256:d"}})
		},
		func(t *testing.T, l *lagging, p *pass) bool {
			return l.reviews.Asked(l.question(p, stack.Plan{Digest: "sha256:d"}))
		},
	},
	"the object is let go": {
		func(ctx context.Context, l *lagging, p *pass) error {
			return l.does(ctx, p, stack.Finish{})
		},
		func(t *testing.T, l *lagging, p *pass) bool {
			_, err := l.records.Get(t.Context(), record.Snapshot(p.id, "kept"))
			if err != nil && fault.Of(err) != fault.Missing {
				t.Fatal(err)
			}
			return len(l.runs.removed) > 0 || err != nil
		},
	},
}

// F22: the cache serves an object as it was before. At each kind of decision that
// matters it is found out, nothing is done, and the next pass reads from the server.
func TestAnOldCopyIsNotActedUpon(t *testing.T) {
	ages := map[string]func(*testing.T, *lagging){
		"not old at all": func(*testing.T, *lagging) {},
		"somebody has changed what is asked for": func(t *testing.T, l *lagging) {
			obj := l.server(t)
			obj.Spec.Suspend = true
			if err := l.k.Client.Update(t.Context(), obj); err != nil {
				t.Fatal(err)
			}
		},
		"another controller wrote the status": func(t *testing.T, l *lagging) {
			obj := l.server(t)
			obj.Status.LastAppliedRevision = "main@sha1:1"
			if err := l.k.Client.Status().Update(t.Context(), obj); err != nil {
				t.Fatal(err)
			}
		},
		"it was deleted": func(t *testing.T, l *lagging) {
			if err := l.k.Client.Delete(t.Context(), l.server(t)); err != nil {
				t.Fatal(err)
			}
		},
		"it is gone":                        removed,
		"it was deleted and made once more": func(t *testing.T, l *lagging) { removed(t, l); l.create(t) },
	}
	k, n := testkit.Kube(t, v1alpha2.AddToScheme), 0
	for what, decision := range irrevocable {
		for age, pass := range ages {
			n++
			name := fmt.Sprint("net-", n)
			t.Run(what+"/"+age, func(t *testing.T) {
				t.Parallel() // they wait for disks
				l := newLagging(t, k, name)
				l.old = l.server(t)
				pass(t, l)
				p := l.pass(t)
				if !p.stale || p.obj.GetResourceVersion() != l.old.ResourceVersion {
					t.Fatalf("the pass is not upon the copy in the cache: %v, version %s", p.stale, p.obj.GetResourceVersion())
				}
				err := decision.do(t.Context(), l, p)
				if age == "not old at all" {
					if err != nil || !decision.done(t, l, p) {
						t.Fatalf("it is not done: %v", err)
					}
					return
				}
				if fault.Of(err) != fault.Conflict {
					t.Errorf("it ends with %v, want a conflict", err)
				}
				if decision.done(t, l, p) {
					t.Error("it is done")
				}
				l.requeue(p.entry)
				if obj, cached, err := l.readObject(t.Context(), l.ref()); cached || err == nil && obj.GetResourceVersion() == l.old.ResourceVersion {
					t.Errorf("the next look has %s, from the cache: %v, %v", obj.GetResourceVersion(), cached, err)
				}
			})
		}
	}
}

// removed deletes an object with its finalizer.
func removed(t *testing.T, l *lagging) {
	t.Helper()
	obj := l.server(t)
	obj.Finalizers = nil
	if err := l.k.Client.Update(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
	if err := l.k.Client.Delete(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
}

// found has a pass find an apply that ended.
func (l *lagging) found(p *pass) {
	p.ended = &stack.Run{ID: "apply-1", Kind: stack.ApplyRun, Done: true, Outcome: stack.Succeeded, Cause: stack.Cause{Plan: &stack.Plan{Name: "p", Digest: "d"}}, At: time.Now()}
	p.report = &runner.Report{ID: "apply-1", Kind: stack.ApplyRun}
	p.o.Status = p.o.Status.Record(*p.ended)
}

// F22: what a pass upon an old copy found is not written over what is there, and
// the run that it found is not forgotten: the next pass takes it over once.
func TestAnOldCopyIsNotReported(t *testing.T) {
	l := newLagging(t, testkit.Kube(t, v1alpha2.AddToScheme), "net")
	l.old = l.server(t)
	p := l.pass(t)
	changed := l.server(t)
	changed.Status.LastAppliedRevision = "main@sha1:1"
	if err := l.k.Client.Status().Update(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	l.found(p)
	p.decision = stack.Decide(p.o)
	if _, err := l.commit(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if got := l.server(t); got.ResourceVersion != changed.ResourceVersion || len(l.runs.forgotten) > 0 {
		t.Errorf("version %s was written over %s, and %v is forgotten", got.ResourceVersion, changed.ResourceVersion, l.runs.forgotten)
	}

	p = l.pass(t) // as the server has it, since the copy is in doubt
	l.found(p)
	p.decision = stack.Decide(p.o)
	if _, err := l.commit(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if len(l.runs.forgotten) != 1 {
		t.Fatalf("%v is forgotten, want the run once it was written down", l.runs.forgotten)
	}

	// The cache has not heard of that: what the next pass knows of the run is what
	// was written, so that it is not taken over twice.
	if p = l.pass(t); p.o.Status.LastRun != "apply-1" {
		text, err := json.Marshal(p.o.Status)
		t.Errorf("the next pass remembers %s (%v), want the run", text, err)
	}
}

// judging are policies that judge every stack.
type judging struct {
	Policies
	set policies.Set
}

func (j judging) For(context.Context, client.Object) (policies.Set, error) { return j.set, nil }

type unasked struct{ review.Reviewer }

// passing passes every plan.
type passing struct{}

func (passing) Sees() review.Document { return review.Masked }

func (passing) Review(context.Context, *review.Plan) (review.Answer, error) {
	return review.Answer{Policies: []policy.Judge{{Policy: "ClusterPolicy/a", Digest: "1"}}}, nil
}

// Guards answer within the pass, so that a change of one takes one pass and one write of each
// stack. Programs are asked beside it.
func TestGuardsAnswerAtOnce(t *testing.T) {
	l := newLagging(t, testkit.Kube(t, v1alpha2.AddToScheme), "net")
	l.old = l.server(t)
	for _, guards := range []bool{true, false} {
		l.loader.policies = judging{set: policies.Set{Digest: "1", Reviewer: passing{}, Guards: guards}}
		p, err := l.loader.load(t.Context(), l.ref())
		if err != nil {
			t.Fatal(err)
		}
		if err := l.review(t.Context(), p, stack.Plan{Digest: "sha256:d"}); err != nil {
			t.Fatal(err)
		}
		if v := p.o.Status.Review; (v != nil && v.Passed) != guards || p.o.Asking == guards {
			t.Errorf("guards only: %v; the verdict is %+v and the stack waits: %v", guards, v, p.o.Asking)
		}
	}
}

// What policies judge is reviewed, although the object names no reviewer, and another
// policy is another reviewer.
func TestPoliciesAreAsked(t *testing.T) {
	l := newLagging(t, testkit.Kube(t, v1alpha2.AddToScheme), "net")
	l.old = l.server(t)
	reviews := func(set policies.Set) string {
		l.loader.policies = judging{set: set}
		p, err := l.loader.load(t.Context(), l.ref())
		if err != nil {
			t.Fatal(err)
		}
		q := l.question(p, stack.Plan{Digest: "sha256:d"})
		if q.By != p.o.Spec.Reviews || len(q.Reviewers) != len(set.Reviewers()) || p.o.Spec.Policies != set.Digest {
			t.Errorf("%d reviewers are asked as %q, want %d as %q", len(q.Reviewers), q.By, len(set.Reviewers()), p.o.Spec.Reviews)
		}
		return q.By
	}
	if got := reviews(policies.Set{}); got != "" {
		t.Errorf("without policies the plan is reviewed by %q", got)
	}
	one, two := reviews(policies.Set{Digest: "1", Reviewer: unasked{}}), reviews(policies.Set{Digest: "2", Reviewer: unasked{}})
	if one == "" || two == "" || one == two {
		t.Errorf("the plan is reviewed by %q and then by %q, want two reviewers", one, two)
	}
}
