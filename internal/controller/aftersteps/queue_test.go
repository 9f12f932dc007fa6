package aftersteps

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// longer is how long nothing is said of a file, or it may take, where the test wants the end of it.
const longer = time.Hour

// hanging is an estate with a GitRepository of the same name in two namespaces, whose server
// takes requests and answers none until it goes on.
type hanging struct {
	*estate
	gate  chan struct{} // closed once the server answers
	asked chan struct{} // gets one for each request that hangs
	once  sync.Once
}

func newHanging(t *testing.T) *hanging {
	t.Helper()
	h := &hanging{estate: newEstate(t), gate: make(chan struct{}), asked: make(chan struct{}, 100)}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-h.gate:
		default:
			h.asked <- struct{}{}
			select {
			case <-h.gate:
			case <-r.Context().Done():
				return
			}
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	t.Cleanup(h.goOn) // before the server is closed, which waits for its requests
	for _, namespace := range []string{"b", "c"} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "push"}, Data: map[string][]byte{"username": []byte(h.Username), "password": []byte(h.Password)}}
		git := &sourcev1.GitRepository{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "estate"},
			Spec:       sourcev1.GitRepositorySpec{URL: front.URL + "/repository.git", Reference: &sourcev1.GitRepositoryRef{Branch: "main"}, SecretRef: &fluxmeta.LocalObjectReference{Name: "push"}},
		}
		for _, o := range []client.Object{secret, git} {
			if err := h.client.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
	}
	return h
}

func (h *hanging) goOn() { h.once.Do(func() { close(h.gate) }) }

// settled is a stack with one run that ended, and what a controller remembers of it.
type settled struct {
	w      *Writer
	stack  Stack
	known  Written
	result stack.StepResult
	run    *stack.Run
	report *runner.Report
	woken  chan struct{}
}

// with has a Writer that says nothing of files for so long, and whose files may take so long.
func (e *estate) with(t *testing.T, patience, within time.Duration) *Writer {
	t.Helper()
	b := NewQueue(e.writer.Now)
	b.patience, b.within = patience, within
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return &Writer{Hosts: e.writer, Queue: b, Outputs: func(_ context.Context, uid string) (map[string]kube.Output, error) {
		return map[string]kube.Output{"hosts": {Value: json.RawMessage(`{"` + uid + `": "10.0.0.1"}`)}}, nil
	}}
}

func (e *estate) settled(w *Writer, namespace, name string) *settled {
	s := &settled{w: w, woken: make(chan struct{}, 10)}
	s.stack = Stack{
		UID: name, Namespace: namespace, Name: name, By: ManagedBy("Terraform", namespace, name),
		Secrets: func() (client.Reader, error) { return e.client, nil }, Wake: func() { s.woken <- struct{}{} }, Warn: func(string, string) {},
	}
	return s
}

// pass is one pass over the run.
func (s *settled) pass(ctx context.Context, retries int) error {
	results := []stack.StepResult{{Name: "hosts", State: stack.StepSucceeded}}
	s.run = &stack.Run{ID: "steps-1", Kind: stack.StepsRun, Outcome: stack.Succeeded, Steps: results}
	s.report = &runner.Report{Outcome: stack.Succeeded, AfterSteps: slices.Clone(results)}
	orders := []Order{{Step: "hosts", Path: "inv/hosts.yml", HostsFrom: "hosts", Source: "estate", Retries: retries}}
	err := s.w.Settle(ctx, s.stack, &s.known, s.report, orders, s.run)
	s.result = s.run.Steps[0]
	return err
}

// soon fails unless a pass ends with nothing to say.
func (s *settled) soon(t *testing.T) {
	t.Helper()
	if err := s.pass(t.Context(), 0); fault.Reason(err, "") != Soon || fault.Of(err) != fault.Later {
		t.Errorf("the pass of %s ends with %v, want that its file is written soon", s.stack.Name, err)
	}
}

// written fails unless the stack is woken, and its next pass finds the file written.
func (s *settled) written(t *testing.T) {
	t.Helper()
	<-s.woken
	if err := s.pass(t.Context(), 0); err != nil || !strings.HasPrefix(s.result.Message, "wrote ") || s.report.AfterSteps[0].Message != s.result.Message {
		t.Errorf("the pass of %s ends with %v and %+v, want the file written", s.stack.Name, err, s.result)
	}
}

// waits fails unless a pass ends with that the file is not written yet.
func (s *settled) waits(t *testing.T, says string) {
	t.Helper()
	if err := s.pass(t.Context(), 0); fault.Of(err) != fault.Later || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "the git server 127.0.0.1:") {
		t.Errorf("the pass of %s ends with %v, want that %q", s.stack.Name, err, says)
	}
}

// A pass has the file written and leaves its worker to others. Of a server that works nothing is
// said in between, and the next pass finds the file written.
func TestAFileIsWrittenBesideThePasses(t *testing.T) {
	e := newEstate(t)
	s := e.settled(e.with(t, longer, longer), "a", "net")
	s.soon(t)
	s.written(t)
	if !strings.HasPrefix(s.result.Message, "wrote inv/hosts.yml to the branch main: ") {
		t.Errorf("the step ends with %+v", s.result)
	}
	if text := e.file("main", "inv/hosts.yml"); !strings.Contains(text, "net:") {
		t.Errorf("the file has no host:\n%s", text)
	}
}

// A git server that hangs stops no pass. Files on other servers are written, and the stacks are
// woken once it answers.
func TestAServerThatHangs(t *testing.T) {
	h := newHanging(t)
	w := h.with(t, 0, longer)
	one, two, far := h.settled(w, "b", "one"), h.settled(w, "b", "two"), h.settled(w, "c", "far")
	if err := one.pass(t.Context(), 0); fault.Of(err) != fault.Later || fault.Reason(err, "") == Soon {
		t.Errorf("the first pass ends with %v, want to wait", err)
	}
	<-h.asked
	one.waits(t, "has not answered since 2023-11-14T22:13:20Z")
	two.waits(t, "waits until other files are written")
	far.waits(t, "waits until other files are written")
	if len(h.asked) > 0 {
		t.Error("the server is asked for several files at once")
	}
	well := h.settled(w, "a", "well")
	if err := well.pass(t.Context(), 0); err != nil && fault.Of(err) != fault.Later {
		t.Errorf("the pass of another server ends with %v", err)
	}
	well.written(t)
	h.goOn()
	for _, s := range []*settled{one, two, far} {
		s.written(t)
	}
	text := h.file("main", "inv/hosts.yml")
	for _, host := range []string{"one:", "two:", "far:", "well:"} {
		if !strings.Contains(text, host) {
			t.Errorf("the file has no %s\n%s", host, text)
		}
	}
	if b := w.Queue; !b.places.Idle() || len(b.writing) > 0 {
		t.Errorf("remembered are %v, and namespaces: %t; want nothing", b.writing, !b.places.Idle())
	}
}

// Several stacks whose runs end together write to one repository. The server works, so that none
// of them says that it waits for the others.
func TestStacksThatEndTogether(t *testing.T) {
	h := newHanging(t)
	w := h.with(t, longer, longer)
	var all []*settled
	for i := range 2 * writesAtOnce {
		s := h.settled(w, []string{"b", "c"}[i%2], fmt.Sprintf("s%d", i))
		s.soon(t)
		all = append(all, s)
	}
	<-h.asked
	h.goOn()
	for _, s := range all {
		s.written(t)
	}
}

// A repository that never answers keeps no run from its end: the step fails after its tries.
func TestARepositoryThatNeverAnswers(t *testing.T) {
	h := newHanging(t)
	w := h.with(t, 0, 20*time.Millisecond)
	one, far := h.settled(w, "b", "one"), h.settled(w, "c", "far")
	passes := map[*settled]int{}
	for _, s := range []*settled{one, far} {
		for s.pass(t.Context(), 1) != nil {
			if passes[s]++; passes[s] > 100 {
				t.Fatalf("the run of %s does not end", s.stack.Name)
			}
			if s.known.files["hosts"].now != nil {
				<-s.woken
			}
		}
		if s.result.State != stack.StepFailed || s.run.Outcome != stack.Failed || s.report.Outcome != stack.Failed || !strings.Contains(s.result.Message, "has not answered within 20ms") && !strings.Contains(s.result.Message, "did not answer when another file was written to it") {
			t.Errorf("the run ends with %+v, want the step failed", s.run)
		}
		if got := s.known.files["hosts"].tries; got != hostsAgain+1 {
			t.Errorf("the file was tried again %d times, want %d and the retry of the step", got, hostsAgain)
		}
	}
}

// The silence of a server is that of all files of the namespace for it. Those of other namespaces
// are not failed for it, be it the same repository: each has a try of its own, and comes first.
func TestSilenceIsShared(t *testing.T) {
	b := NewQueue(time.Now)
	add := func(namespace, host, repository string) *writing {
		w := &writing{namespace: namespace, host: host, repository: repository, wake: func() {}, ended: make(chan struct{})}
		b.add(w)
		return w
	}
	first := add("a", "h", "h/r")
	next(t, b, first)
	same, server, elsewhere := add("a", "h", "h/r"), add("a", "h", "h/s"), add("a", "g", "g/r")
	shared, other := add("b", "h", "h/r"), add("b", "h", "h/s")
	b.end(first, "", fault.New(fault.Later, "", fmt.Errorf("silent")), true)
	for w, over := range map[*writing]bool{first: true, same: true, server: true, elsewhere: false, shared: false, other: false} {
		if w.over() != over {
			t.Errorf("the file of %s in %s is over: %v, want %v", w.namespace, w.repository, !over, over)
		}
	}
	again := add("a", "h", "h/r")
	next(t, b, shared)
	b.end(shared, "", nil, false)
	next(t, b, elsewhere, other, again)
}

// next fails unless these are begun next, in their order.
func next(t *testing.T, b *Queue, want ...*writing) {
	t.Helper()
	for _, w := range want {
		got, _, stop := b.begin(t.Context())
		if got == nil {
			t.Fatalf("nothing begins, want %s in %s", w.namespace, w.repository)
		}
		t.Cleanup(stop)
		if got != w {
			t.Errorf("the file of %s in %s begins, want that of %s in %s", got.namespace, got.repository, w.namespace, w.repository)
		}
	}
}

// A repository gets one file at a time, a namespace a few, and namespaces take turns: one with
// many stacks keeps no other waiting for long.
func TestNamespacesTakeTurns(t *testing.T) {
	b := NewQueue(time.Now)
	add := func(namespace, repository string) *writing {
		w := &writing{namespace: namespace, host: repository, repository: repository, wake: func() {}, ended: make(chan struct{})}
		b.add(w)
		return w
	}
	one, two, three := add("a", "r"), add("a", "r"), add("a", "r")
	other := add("b", "r")
	next(t, b, one)
	if w, _, _ := b.begin(t.Context()); w != nil {
		t.Error("a second file of the repository begins")
	}
	for _, s := range []struct{ ends, begins *writing }{{one, other}, {other, two}, {two, three}} {
		b.end(s.ends, "", nil, false)
		next(t, b, s.begins)
	}
	b.end(three, "", nil, false)
	var many []*writing
	for i := range writesAtOnce + 1 {
		many = append(many, add("a", fmt.Sprint(i)))
	}
	next(t, b, many[:writesAtOnce]...)
	if w, _, _ := b.begin(t.Context()); w != nil {
		t.Errorf("%d files of a namespace are written at once", writesAtOnce+1)
	}
	b.drop(many[writesAtOnce])
	for _, w := range many[:writesAtOnce] {
		b.end(w, "", nil, false)
	}
	if !b.places.Idle() || len(b.writing) > 0 {
		t.Errorf("remembered are %v, and namespaces: %t; want nothing", b.writing, !b.places.Idle())
	}
}

// What is written for a stack that another controller has by now, or for a run that was
// dropped, ends.
func TestAStackThatIsGivenAway(t *testing.T) {
	h := newHanging(t)
	w := h.with(t, 0, longer)
	s := h.settled(w, "b", "one")
	if err := s.pass(t.Context(), 0); fault.Of(err) != fault.Later {
		t.Fatalf("the pass ends with %v, want to wait", err)
	}
	<-h.asked
	going := s.known.files["hosts"].now
	s.known.Drop()
	<-going.ended
	if going.err == nil || len(s.known.files) > 0 {
		t.Errorf("the writing ends with %v, and known is %+v", going.err, s.known)
	}
}
