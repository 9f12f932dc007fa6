package app

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/dialecttest"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/dialect/kinds"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// fedBoard is a board that is fed from the test's namespace. Join has it follow the kinds
// that are missing.
func fedBoard(t *testing.T, c *testkit.Cluster, kinds query.Kinds) (board *query.Board, join func(again <-chan time.Time)) {
	t.Helper()
	stacks, err := cache.New(c.Config, cache.Options{
		Scheme: newScheme(kinds), DefaultTransform: slim, DefaultNamespaces: map[string]cache.Config{c.Namespace: {}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- stacks.Start(t.Context()) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Errorf("the cache ended with %v", err)
		}
	})
	board = query.NewBoard(query.BoardOptions{Kinds: kinds, TenantLabel: "team", Now: time.Now})
	f := &feeder{stacks: stacks, kinds: kinds, board: board, log: slog.New(slog.DiscardHandler)}
	missing, err := f.begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return board, func(again <-chan time.Time) { f.join(t.Context(), missing, again) }
}

// boardOf is fedBoard of kinds that the cluster has.
func boardOf(t *testing.T, c *testkit.Cluster, kinds query.Kinds) *query.Board {
	t.Helper()
	board, _ := fedBoard(t, c, kinds)
	return board
}

// change follows the board from a cursor on until something changed.
func change(t *testing.T, board *query.Board, cursor string) query.BoardNews {
	t.Helper()
	for {
		news, err := board.Changes(access.Everything, cursor)
		if err != nil || news.Reset {
			t.Fatalf("Changes(%s) = %+v, %v", cursor, news, err)
		}
		if len(news.Changes) > 0 {
			return news
		}
		select {
		case <-news.Wait:
		case <-time.After(testkit.Patience):
			t.Fatal("nothing changed on the board")
		}
	}
}

// The board shows the stacks that exist before it starts, then additions, changes
// and deletions, in that order.
func TestTheBoardFollowsTheCluster(t *testing.T) {
	c := testkit.Kube(t, v1alpha2.AddToScheme)
	c.Apply(t, `
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: net, labels: {team: red}}
spec: {sourceRef: {kind: GitRepository, name: modules}}
`)
	board := boardOf(t, c, kinds.All())
	page, err := board.Page(access.Everything, query.BoardQuery{})
	if err != nil || len(page.Items) != 1 || page.Items[0].Name != "net" || page.Items[0].Tenant != "red" {
		t.Fatalf("Page() at first = %+v, %v, want net alone", page, err)
	}

	c.Apply(t, `
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: db}
spec: {sourceRef: {kind: GitRepository, name: modules}}
`)
	news := change(t, board, page.Cursor)
	if got := news.Changes[0].Row; got.Name != "db" || got.Tenant != c.Namespace || got.Status != query.StatusWaiting {
		t.Errorf("what came is %+v, want db, waiting", got)
	}

	var o v1alpha2.Terraform
	key := client.ObjectKey{Namespace: c.Namespace, Name: "db"}
	if err := c.Client.Get(t.Context(), key, &o); err != nil {
		t.Fatal(err)
	}
	o.Status.Terrier = &v1alpha2.TerrierStatus{Phase: "RetryLater", Since: &metav1.Time{Time: time.Now()}}
	if err := c.Client.Status().Update(t.Context(), &o); err != nil {
		t.Fatal(err)
	}
	if news = change(t, board, news.Next); news.Changes[0].Row.Status != query.StatusFailed {
		t.Errorf("what changed is %+v, want db, failed", news.Changes[0].Row)
	}

	if err := c.Client.Delete(t.Context(), &o); err != nil {
		t.Fatal(err)
	}
	if news = change(t, board, news.Next); !news.Changes[0].Gone || news.Changes[0].Row.Name != "db" || board.Len() != 1 {
		t.Errorf("what went is %+v, want db", news.Changes[0])
	}
}

// A cache that was cut off learns from its next list what had gone meanwhile,
// and then knows no more than the name, or an old copy.
func TestTheBoardBelievesTombstones(t *testing.T) {
	old := &v1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "net"}}
	for name, told := range map[string]any{
		"the object itself":        old,
		"a tombstone with a copy":  toolscache.DeletedFinalStateUnknown{Key: "a/net", Obj: old},
		"a tombstone without one":  toolscache.DeletedFinalStateUnknown{Key: "a/net"},
		"a tombstone of otherwise": toolscache.DeletedFinalStateUnknown{Key: "a/net", Obj: strings.NewReader("")},
	} {
		t.Run(name, func(t *testing.T) {
			board := query.NewBoard(query.BoardOptions{Kinds: kinds.All(), Now: time.Now})
			set(board, old)
			drop(board, "", told)
			if _, there := board.Get(query.Key{Namespace: "a", Name: "net"}); there {
				t.Errorf("the stack is still there after %T", told)
			}
		})
	}
}

// The board learns the duration of a drift check from the run when the run is
// removed.
func TestTheBoardLearnsFromRunsThatEnd(t *testing.T) {
	began := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	board := query.NewBoard(query.BoardOptions{Kinds: kinds.All(), Now: time.Now})
	board.Set(&v1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "net", UID: "uid-1"}})
	board.Synced()
	dir := t.TempDir()
	run := filepath.Join(dir, "runs", "uid-1", "check-1")
	report, err := json.Marshal(runner.Report{
		ID: "check-1", Stack: "uid-1", Name: "a/net", Kind: stack.CheckRun, Phase: runner.Done, Outcome: stack.Succeeded, Started: began, Finished: began.Add(6 * time.Second),
	})
	if err == nil {
		err = errors.Join(os.MkdirAll(run, 0o700), os.WriteFile(filepath.Join(run, "run.json"), report, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	processes, err := runner.New(runner.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer processes.Close()
	figures := query.NewFigures(board, time.Now)
	runs := timedRuns{fencedRuns{processes, func() error { return nil }}, counting(board, figures)}
	for range 2 { // a pass that was cut short is made again
		if err := runs.Forget("uid-1", "check-1"); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := board.Capacity(query.Slots{Runs: 1}); err != nil || got.Measured != 1 || got.RunSeconds != 6 {
		t.Errorf("Capacity() = %+v, %v, want one look of six seconds", got, err)
	}
	if left, err := processes.Current("uid-1"); err != nil || left != nil {
		t.Errorf("Current() = %+v, %v, want nothing", left, err)
	}
}

// absent is a kind whose definition the cluster does not have at first.
type absent struct{ dialecttest.Second }

func (absent) Kind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "later.example.com", Version: "v1", Kind: "Terraform"}
}

func (a absent) New() client.Object {
	var o unstructured.Unstructured
	o.SetGroupVersionKind(a.Kind())
	return &o
}

func (a absent) NewList() client.ObjectList {
	var l unstructured.UnstructuredList
	l.SetGroupVersionKind(a.Kind().GroupVersion().WithKind("TerraformList"))
	return &l
}

// A kind that the cluster does not have leaves the board without its stacks, and not
// without those of the other kinds. It joins once the cluster has it.
func TestTheBoardOfAMissingKind(t *testing.T) {
	c := testkit.Kube(t, v1alpha2.AddToScheme)
	c.Apply(t, `
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: net}
spec: {sourceRef: {kind: GitRepository, name: modules}}
`)
	board, join := fedBoard(t, c, dialect.NewRegistry(absent{}, infra.Dialect{}))
	page, err := board.Page(access.Everything, query.BoardQuery{})
	if err != nil || len(page.Items) != 1 || page.Items[0].Name != "net" {
		t.Errorf("the board has %+v, %v; want the stack of the kind that there is", page.Items, err)
	}

	again, joined := make(chan time.Time), make(chan struct{})
	go func() {
		defer close(joined)
		join(again)
	}()
	asks := func() bool {
		select {
		case again <- time.Time{}:
			return true
		case <-joined:
			return false
		}
	}
	asks() // it is still missing
	testkit.Define(t, c, strings.ReplaceAll(dialecttest.Definition, "second.example.com", "later.example.com"), absent{}.NewList())
	c.Apply(t, `
apiVersion: later.example.com/v1
kind: Terraform
metadata: {name: late}
spec: {code: x}
`)
	for asks() { // discovery may be behind
	}
	if news := change(t, board, page.Cursor); news.Changes[0].Row.Name != "late" {
		t.Errorf("what came is %+v, want the stack of the kind that was missing", news.Changes[0].Row)
	}
}
