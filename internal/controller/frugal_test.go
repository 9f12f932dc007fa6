package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/controller/modules"
	"github.com/terrier-iac/terrier/internal/controller/records"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/review"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/schedule"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// script is a runner whose runs end as a test says.
type script struct {
	runner.Runner
	job    *runner.Job
	report *runner.Report
	left   map[string]string // files of the run
	unread error             // why it cannot be read; nil if it can
}

func (s *script) Start(_ context.Context, job runner.Job) error {
	s.job = &job
	s.report = &runner.Report{ID: job.ID, Stack: job.Stack, Name: job.Name, Kind: job.Kind, Phase: runner.Planning, Started: job.Created, Note: job.Note}
	return nil
}

func (s *script) Current(string) (*runner.Report, error) {
	if s.unread != nil {
		return nil, s.unread
	}
	return s.report, nil
}

func (s *script) Cancel(context.Context, string, string) error { return nil }

func (s *script) Forget(string, string) error {
	s.job, s.report, s.left = nil, nil, nil
	return nil
}

func (s *script) Open(_, _, file string) (io.ReadCloser, error) {
	content, ok := s.left[file]
	if !ok {
		return nil, fault.New(fault.Missing, "", errors.New(file))
	}
	return io.NopCloser(strings.NewReader(content)), nil
}

func (s *script) Remove(string) error { return nil }

func (s *script) List() ([]runner.Report, error) {
	if s.report == nil {
		return nil, nil
	}
	return []runner.Report{*s.report}, nil
}

// ends makes the active run succeed.
func (s *script) ends(change func(*runner.Report), left map[string]string) {
	s.left = left
	s.report.Phase, s.report.Outcome, s.report.Finished = runner.Done, stack.Succeeded, s.report.Started.Add(time.Second)
	change(s.report)
}

// frugal is one stack on a real API server, and a controller whose requests are
// counted. What it reads from its cache is free, and never old.
type frugal struct {
	*apart
	k    *testkit.Cluster
	key  types.NamespacedName
	runs *script
	made testkit.Requests
	said *events
	book *diary
	wait time.Duration // until the next check, as the last one said
}

func newFrugal(t *testing.T, name string) *frugal {
	t.Helper()
	k := testkit.Kube(t, v1alpha2.AddToScheme)
	l := &frugal{k: k, key: types.NamespacedName{Namespace: k.Namespace, Name: name}, runs: &script{}, said: &events{}, book: &diary{}}
	live, err := client.New(l.made.Of(k.Config), client.Options{Scheme: k.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	w, err := client.NewWithWatch(k.Config, client.Options{Scheme: k.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	cache := interceptor.NewClient(w, interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		return nil // there is no other stack
	}})
	c := &Stacks{
		Client: cache, Live: live, Dialects: dialect.NewRegistry(infra.Dialect{}), Runner: l.runs, Blobs: openRecords(t),
		Modules: modules.New(t.TempDir()), Archives: records.Archives{Dir: t.TempDir()}, States: kube.States{Client: live, Now: time.Now, Seen: kube.NewSeen()}, Ours: func(context.Context) error { return nil },
		Engine: func(context.Context, string) (engine.Engine, error) {
			return engine.Engine{Path: "/bin/tofu", Name: "tofu", Version: "1.12.6"}, nil
		},
		Events: l.said, Audit: l.book, Key: secret.New("k"), Config: Config{Patience: time.Hour, Network: "none"},
		Now: time.Now, Log: slog.New(slog.DiscardHandler), Queue: queueOf(1),
	}
	c.reviews = review.NewPool(func(context.Context, review.Question) review.Reply { return review.Reply{} })
	if c.metrics, err = newMetrics(nil, false, &schedule.Budgets{}); err != nil {
		t.Fatal(err)
	}
	l.apart = takeApart(c)
	return l
}

func (l *frugal) ref() objectRef { return objectRef{infra.Dialect{}, l.key} }

func inline(hcl string) *apiextensionsv1.JSON {
	return &apiextensionsv1.JSON{Raw: fmt.Appendf(nil, `{"hcl":%q}`, hcl)}
}

// looks makes passes until one says to wait.
func (l *frugal) looks(t *testing.T) {
	t.Helper()
	for range 20 {
		r, err := l.whole.reconcile(t.Context(), l.ref())
		if err != nil {
			t.Fatal(err)
		}
		if l.wait = r.RequeueAfter; r != again {
			return
		}
	}
	t.Fatal("it never comes to rest")
}

// works makes passes until a run of a kind is active.
func (l *frugal) works(t *testing.T, kind stack.RunKind) {
	t.Helper()
	if l.looks(t); l.runs.job == nil || l.runs.job.Kind != kind {
		t.Fatalf("at work is %+v, want a run: %s; its conditions are %v", l.runs.report, kind, l.stored(t).Status.Conditions)
	}
}

// creates makes the stack, whose plans need no approval.
func (l *frugal) creates(t *testing.T) {
	t.Helper()
	obj := &v1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Namespace: l.key.Namespace, Name: l.key.Name}}
	obj.Spec.ApprovePlan, obj.Spec.Interval = "auto", &metav1.Duration{Duration: time.Hour}
	obj.Spec.Values = inline(`output "host" { value = "h" }`)
	obj.Spec.WriteOutputsToSecret = &v1alpha2.OutputSecret{Name: "net-outputs"}
	if err := l.k.Client.Create(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
}

// stored is the stack as the server has it.
func (l *frugal) stored(t *testing.T) *v1alpha2.Terraform {
	t.Helper()
	var obj v1alpha2.Terraform
	if err := l.k.Client.Get(t.Context(), l.key, &obj); err != nil {
		t.Fatal(err)
	}
	return &obj
}

// applies has a stack planned and applied, which the controller has not seen yet.
func (l *frugal) applies(t *testing.T, serial int) {
	t.Helper()
	l.works(t, stack.PlanRun)
	l.runs.ends(func(r *runner.Report) {
		r.Changes, r.ChangesHash = stack.Changes{Add: 1}, "sha256:c"
		if serial > 1 {
			r.State = idOf(thing("l", serial-1))
		}
	}, map[string]string{runner.FilePlan: "a plan", runner.FileLog: "planned"})
	l.works(t, stack.ApplyRun)
	state := thing("l", serial)
	l.runs.ends(func(r *runner.Report) {
		r.State, r.Resources = idOf(state), 1
	}, map[string]string{runner.FileState: string(state), runner.FileOutputs: fmt.Sprintf(`{"host":{"value":"h%d","type":"string"}}`, serial), runner.FileLog: "applied"})
}

func idOf(state []byte) runner.StateID {
	facts, err := stack.ReadState(state)
	if err != nil {
		panic(err) // a test's own state
	}
	return facts.StateID
}

func thing(lineage string, serial int) []byte {
	return fmt.Appendf(nil, `{"version":4,"lineage":%q,"serial":%d,"resources":[{"mode":"managed","type":"a","name":"b","instances":[{}]}]}`, lineage, serial)
}
