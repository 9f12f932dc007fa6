package query

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/stack"
)

// many is how many stacks a large platform has.
const many = 10_000

// usual is stack i of a large platform: two hundred namespaces, forty teams, one in
// ten not settled, with a memory as large as they are. It is built of JSON, as an
// informer does it, so that it shares nothing with others.
func usual(i int) *v1alpha2.Terraform {
	plan := &stack.Plan{
		Name: fmt.Sprintf("plan-main-%010x", i), Digest: stack.Digest(i), Run: fmt.Sprintf("plan-%016x", i), Lineage: fmt.Sprintf("0d9f7a3c-%024x", i), Serial: 4,
		PlanInputs: stack.PlanInputs{Revision: "main@sha1:b8e362c206e3d0cbb7ed22ced771a0056455a2fb", Source: stack.Digest("source"), Inputs: stack.Digest(i), Shape: stack.Digest("shape"), Engine: "tofu 1.12.6"},
		Changes:    stack.Changes{Add: 3}, At: day, Addresses: stack.Digest("addresses"), Example: "aws_instance.web",
	}
	m := stack.Status{Plans: stack.Plans{Planned: plan.PlanInputs, PlannedAt: day, PlanNames: []stack.PlanName{{Name: plan.Name, Digest: plan.Digest}}}, Resources: stack.Resources{Applied: plan, AppliedAt: day.Add(time.Duration(i) * time.Second), Created: true}, StoredState: stack.StoredState{State: plan.Digest}, LastRun: plan.Run}
	phase, ready, message := stack.NoDrift, metav1.ConditionTrue, "No drift: main@sha1:b8e362c206e3d0cbb7ed22ced771a0056455a2fb"
	switch i % 20 {
	case 7:
		phase, ready, message = stack.RetryLater, metav1.ConditionFalse, "creating S3 Bucket (logs): BucketAlreadyExists: the requested bucket name is not available"
		m.Failures, m.FailedWith = 2, message
	case 13:
		phase, ready, message = stack.AwaitingApproval, metav1.ConditionUnknown, "Plan generated: set approvePlan: \""+plan.Name+"\" to approve this plan."
		m.Pending = plan
	}
	raw, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	since := metav1.NewTime(day.Add(time.Duration(i%5000) * time.Minute))
	o := &v1alpha2.Terraform{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprintf("tenant-%03d", i%200), Name: fmt.Sprintf("stack-%05d", i), UID: types.UID(fmt.Sprintf("6f9619ff-8b86-d011-b42d-%012x", i)),
			CreationTimestamp: metav1.NewTime(day), Labels: map[string]string{"team": fmt.Sprintf("team-%02d", i%40), "app.kubernetes.io/managed-by": "terrier", "env": "prod"},
		},
		Spec: v1alpha2.TerraformSpec{Path: "./modules/network", SourceRef: &v1alpha2.SourceRef{Kind: "GitRepository", Name: "modules"}, Interval: &metav1.Duration{Duration: 10 * time.Minute}},
		Status: v1alpha2.TerraformStatus{
			Conditions: []metav1.Condition{{Type: "Ready", Status: ready, Reason: string(phase), Message: message, LastTransitionTime: since}},
			Terrier: &v1alpha2.TerrierStatus{
				Phase: string(phase), Rule: "a settled stack waits", Since: &since, Isolation: "full", Environment: []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"},
				RecheckEvery: &metav1.Duration{Duration: 10 * time.Minute}, Memory: &apiextensionsv1.JSON{Raw: raw},
			},
		},
	}
	text, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	var read v1alpha2.Terraform
	if err := json.Unmarshal(text, &read); err != nil {
		panic(err)
	}
	return &read
}

func largeBoard() *Board {
	b := newBoard()
	for i := range many {
		b.Set(usual(i))
	}
	b.Synced()
	return b
}

// BenchmarkBoardPage says how long a page of ten thousand stacks takes, and the
// slowest of twenty.
func BenchmarkBoardPage(b *testing.B) {
	board := largeBoard()
	half := access.Scope{In: map[string]bool{}}
	for i := range 100 {
		half.In[fmt.Sprintf("tenant-%03d", 2*i)] = true
	}
	for _, c := range []struct {
		name  string
		scope access.Scope
		query BoardQuery
	}{
		{"the first page", access.Everything, BoardQuery{}},
		{"one of half the namespaces", half, BoardQuery{}},
		{"the last page", access.Everything, BoardQuery{Offset: many - 100}},
		{"a search that finds one", access.Everything, BoardQuery{Text: "stack-07777"}},
		{"a search that finds nothing", access.Everything, BoardQuery{Text: "zebra tenant"}},
		{"a search in messages", access.Everything, BoardQuery{Text: "bucket not available"}},
		{"those that failed, newest first", access.Everything, BoardQuery{Statuses: []Status{StatusFailed}, Sort: "-since"}},
		{"newest first", access.Everything, BoardQuery{Sort: "-since"}},
		{"by tenant", access.Everything, BoardQuery{Group: "tenant", Sort: "status"}},
		{"by namespace", access.Everything, BoardQuery{Group: "namespace"}},
		{"by a selector", access.Everything, BoardQuery{Selector: "env=prod,team in (team-01,team-02)"}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			var took []time.Duration
			for b.Loop() {
				start := time.Now()
				if _, err := board.Page(c.scope, c.query); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(start))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*95/100].Microseconds())/1000, "p95-ms")
		})
	}
}

// BenchmarkBoardSet is what a write to a stack costs.
func BenchmarkBoardSet(b *testing.B) {
	board := largeBoard()
	same, other := usual(4321), usual(4321)
	other.Status.Terrier.Phase = string(stack.Planning)
	for name, of := range map[string][]*v1alpha2.Terraform{"that shows nothing new": {same}, "that shows something": {same, other}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				board.Set(of[i%len(of)])
			}
		})
	}
}

// BenchmarkBoardChanges is a reader who pulls after each of ten changes.
func BenchmarkBoardChanges(b *testing.B) {
	board := largeBoard()
	same, other := usual(4321), usual(4321)
	other.Status.Terrier.Phase = string(stack.Planning)
	for i := 0; b.Loop(); i++ {
		cursor := board.cursor(board.seq)
		board.Set([]*v1alpha2.Terraform{other, same}[i%2])
		if news, err := board.Changes(access.Everything, cursor); err != nil || len(news.Changes) != 1 {
			b.Fatalf("%+v, %v", news, err)
		}
	}
}

// BenchmarkBoardGraph is the picture of a stack that all others of its namespace
// need, among ten thousand.
func BenchmarkBoardGraph(b *testing.B) {
	board := newBoard()
	for i := range many {
		o := usual(i)
		if i >= 200 {
			o.Spec.DependsOn = []v1alpha2.ObjectRef{{Name: fmt.Sprintf("stack-%05d", i%200)}}
		}
		board.Set(o)
	}
	board.Synced()
	for b.Loop() {
		if _, err := board.Graph(access.Everything, Key{Namespace: "tenant-007", Name: "stack-00007"}, 0); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkBoardMemory says what one row takes: by itself, and beside the object
// that the informer's cache holds in any case, with which it shares its texts.
func BenchmarkBoardMemory(b *testing.B) {
	for name, beside := range map[string]bool{"alone": false, "beside its object": true} {
		b.Run(name, func(b *testing.B) {
			var before, after runtime.MemStats
			for b.Loop() {
				objects := make([]*v1alpha2.Terraform, 0, many)
				if beside {
					for i := range many {
						objects = append(objects, usual(i))
					}
				}
				runtime.GC()
				runtime.ReadMemStats(&before)
				board := newBoard()
				for i := range many {
					if beside {
						board.Set(objects[i])
					} else {
						board.Set(usual(i))
					}
				}
				runtime.GC()
				runtime.ReadMemStats(&after)
				runtime.KeepAlive(objects)
				runtime.KeepAlive(board)
			}
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/many, "B/row")
		})
	}
}
