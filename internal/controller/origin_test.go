package controller

import (
	"log/slog"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// What a stack leaves says in which namespace the stack was. That is not the namespace that has
// the name when a controller notices that the stack is gone, if it is younger than the stack.
func TestWhatAStackLeavesSaysWhereItWas(t *testing.T) {
	k := testkit.Kube(t)
	now, err := kube.FindNamespace(t.Context(), k.Client, k.Namespace)
	if err != nil || now.UID == "" || now.Created.IsZero() {
		t.Fatalf("FindNamespace() = %+v, %v", now, err)
	}
	if none, err := kube.FindNamespace(t.Context(), k.Client, k.Namespace+"-none"); err != nil || none != (kube.Namespace{}) {
		t.Errorf("FindNamespace() of none = %+v, %v", none, err)
	}
	if all, err := kube.Namespaces(t.Context(), k.Client); err != nil || all[k.Namespace] != now || len(all) < 2 {
		t.Errorf("Namespaces() = %+v, %v, want this one among others", all, err)
	}
	for name, tt := range map[string]struct {
		namespace string
		created   time.Time // the stack; zero if its object was never seen
		began     time.Time // its last run; zero if there is none with the runner
		want      kube.Origin
	}{
		"removed by force":                     {k.Namespace, now.Created, time.Time{}, kube.Origin{NamespaceUID: now.UID, StackCreated: now.Created}},
		"older than its namespace":             {k.Namespace, now.Created.Add(-time.Second), time.Time{}, kube.Origin{StackCreated: now.Created.Add(-time.Second)}},
		"its namespace is gone":                {k.Namespace + "-none", now.Created, time.Time{}, kube.Origin{StackCreated: now.Created}},
		"nothing is known":                     {k.Namespace, time.Time{}, time.Time{}, kube.Origin{}},
		"its run began in the namespace":       {k.Namespace, time.Time{}, now.Created.Add(time.Hour), kube.Origin{NamespaceUID: now.UID}},
		"its run began before there was it":    {k.Namespace, time.Time{}, now.Created.Add(-time.Hour), kube.Origin{}},
		"its run began when it was just there": {k.Namespace, time.Time{}, now.Created.Add(time.Second), kube.Origin{}},
	} {
		t.Run(name, func(t *testing.T) {
			runs := &script{}
			last := runner.Report{ID: "plan-1", Stack: "uid", Name: tt.namespace + "/net", Kind: stack.PlanRun, Phase: runner.Done, Started: tt.began, Note: []byte("{}")}
			if !tt.began.IsZero() {
				runs.report = &last
			}
			blobs := openRecords(t)
			c := takeApart(&Stacks{
				Live: k.Client, Dialects: dialect.NewRegistry(infra.Dialect{}), Blobs: blobs, Runner: runs, Audit: &diary{},
				Queue: queueOf(1), Now: time.Now, Log: slog.New(slog.DiscardHandler), Ours: theirs(nil),
			})
			if err := record.At[runner.Report](record.Run("uid", "plan-1", record.ReportFile)).Write(t.Context(), blobs, last); err != nil {
				t.Fatal(err)
			}
			e := &entry{id: "uid", objectRef: objectRef{infra.Dialect{}, client.ObjectKey{Namespace: tt.namespace, Name: "net"}}}
			if !tt.created.IsZero() {
				e.created.Store(tt.created.Unix())
			}
			if again, err := c.removals.abandon(t.Context(), e); again != 0 || err != nil {
				t.Fatalf("abandon() = %s, %v", again, err)
			}
			r, err := record.At[kube.Retained](record.Retained("uid", record.RetainedFile)).Read(t.Context(), blobs)
			if err != nil || r.NamespaceUID != tt.want.NamespaceUID || !r.StackCreated.Equal(tt.want.StackCreated) || r.Why != kube.WhyRemoved {
				t.Errorf("the record is %+v, %v, want %+v in it", r, err, tt.want)
			}
			if got := r.In(now); got != (tt.want.NamespaceUID != "" || name == "its namespace is gone") {
				t.Errorf("In() = %v of %+v", got, r.Origin)
			}
			ran, err := record.At[goneRun](record.Gone("", tt.namespace, "net", "uid", record.ReportFile)).Read(t.Context(), blobs)
			if err != nil || ran.Origin.NamespaceUID != r.NamespaceUID || !ran.StackCreated.Equal(r.StackCreated) || ran.ID != "plan-1" {
				t.Errorf("the last run is %+v, %v, want the origin of the record", ran, err)
			}
		})
	}
	// An object that is there is in the namespace that is there, also if two API servers disagree
	// about the time.
	c := takeApart(&Stacks{Live: k.Client})
	e := &entry{id: "uid", objectRef: objectRef{infra.Dialect{}, client.ObjectKey{Namespace: k.Namespace, Name: "net"}}}
	e.created.Store(now.Created.Add(-3 * time.Second).Unix())
	if got, err := c.removals.origin(t.Context(), e, time.Time{}, true); err != nil || got.NamespaceUID != now.UID {
		t.Errorf("origin() of an object that is there = %+v, %v, want the namespace %s", got, err, now.UID)
	}
	e.created.Store(now.Created.Add(-time.Hour).Unix())
	if got, err := c.removals.origin(t.Context(), e, time.Time{}, true); err != nil || got.NamespaceUID != "" {
		t.Errorf("origin() of an object that was left in the database = %+v, %v, want no namespace", got, err)
	}
}
