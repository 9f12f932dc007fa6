package query

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/blob/blobtest"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/dialecttest"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/stack"
)

// clocked is figures whose time a test sets, about two stacks.
func clocked(at *time.Time) *Figures {
	board := syncedBoard(placed("shop", "net", stack.Applied), placed("mail", "db", stack.RetryLimitReached))
	return NewFigures(board, func() time.Time { return *at })
}

func finished(uid string, kind stack.RunKind, at time.Time, took time.Duration, outcome stack.Outcome) Report {
	return Report{Stack: uid, Kind: kind, Phase: "Done", Started: at.Add(-took), Finished: at, Outcome: outcome}
}

// figured are the figures at a moment, which the test may change, and the store that
// keeps them.
func figured(t *testing.T) (at *time.Time, f *Figures, store *blob.Files) {
	t.Helper()
	at = new(time.Date(2026, 3, 14, 15, 9, 0, 0, time.UTC))
	return at, clocked(at), blobtest.Files(t, 1<<20)
}

// total is the sum of all buckets.
func total(figures []Figure) (sum Figure) {
	for _, f := range figures {
		sum.add(f)
	}
	return sum
}

func TestFiguresCountWhatRunsDo(t *testing.T) {
	at := time.Date(2026, 3, 14, 15, 9, 0, 0, time.UTC)
	f := clocked(&at)
	f.Ran(finished("uid-shop-net", stack.CheckRun, at, 2*time.Second, stack.Succeeded))
	f.Ran(finished("uid-shop-net", stack.ApplyRun, at.Add(-2*time.Hour), time.Minute, stack.Failed))
	f.Ran(finished("uid-mail-db", stack.PlanRun, at, 4*time.Second, stack.Succeeded))
	f.Ran(finished("uid-mail-db", stack.HealthRun, at, time.Second, stack.Succeeded)) // is of no figure
	f.Ran(finished("uid-gone", stack.DestroyRun, at, time.Second, stack.Succeeded))
	f.Sample()
	only := func(namespace string) access.Scope { return access.Scope{In: map[string]bool{namespace: true}} }
	for name, tt := range map[string]struct {
		scope access.Scope
		want  Figure
	}{
		"all namespaces, and a stack that is gone": {access.Everything, Figure{Checks: 1, Plans: 1, Applies: 2, Failed: 1, PlanTime: 6000, ApplyTime: 61000, LongestPlan: 4000, LongestApply: 60000, Failing: 1}},
		"one namespace":              {only("shop"), Figure{Checks: 1, Applies: 1, Failed: 1, PlanTime: 2000, ApplyTime: 60000, LongestPlan: 2000, LongestApply: 60000}},
		"another one":                {only("mail"), Figure{Plans: 1, PlanTime: 4000, LongestPlan: 4000, Failing: 1}},
		"a namespace without stacks": {only("else"), Figure{}},
	} {
		for _, p := range Periods() {
			got, _ := f.Over(tt.scope, p)
			if len(got) != p.Count {
				t.Errorf("%s, %s: %d figures, want %d", name, p.Name, len(got), p.Count)
			}
			if diff := cmp.Diff(total(got), tt.want); diff != "" {
				t.Errorf("%s, %s (-got +want):\n%s", name, p.Name, diff)
			}
		}
	}
	day, since := f.Over(access.Everything, Periods()[0])
	if last := day[len(day)-1]; last.Runs() != 3 || !last.Start.Equal(at.Truncate(time.Hour)) || day[len(day)-3].Applies != 1 {
		t.Errorf("the last hour is %+v, the one of the apply %+v", last, day[len(day)-3])
	}
	if want := at.Add(-2 * time.Hour).Truncate(time.Hour); !since.Equal(want) {
		t.Errorf("figures since %s, want %s", since, want)
	}
}

// Runs of stacks of two kinds are told apart: who may list one kind sees its figures.
func TestFiguresByKind(t *testing.T) {
	at := time.Date(2026, 3, 14, 15, 9, 0, 0, time.UTC)
	board := NewBoard(BoardOptions{Kinds: twoKinds, Now: func() time.Time { return at }})
	board.Set(placed("shop", "net", stack.Applied))
	other := dialecttest.Second{}.New()
	other.SetNamespace("shop")
	other.SetName("net")
	other.SetUID("uid-second")
	board.Set(other)
	board.Synced()
	store := blobtest.Files(t, 1<<20)
	before := NewFigures(board, func() time.Time { return at })
	before.Ran(finished("uid-shop-net", stack.PlanRun, at, time.Second, stack.Succeeded))
	before.Ran(finished("uid-second", stack.ApplyRun, at, time.Second, stack.Succeeded))
	gone := finished("uid-gone", stack.CheckRun, at, time.Second, stack.Succeeded)
	for _, d := range []dialect.Dialect{dialecttest.Second{}, infra.Dialect{}} {
		gone.ObjectKind = dialect.KindOf(d)
		before.Ran(gone)
	}
	gone.ObjectKind = "Terraform.removed.example.com"
	before.Ran(gone)
	if err := before.Save(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	f := NewFigures(board, func() time.Time { return at })
	if err := f.Load(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	shop := map[string]bool{"shop": true}
	for name, tt := range map[string]struct {
		scope                  access.Scope
		plans, applies, checks int
	}{
		"everything":                       {access.Everything, 1, 1, 2},
		"the first kind, all namespaces":   {access.Scope{All: true}, 1, 0, 1},
		"the first kind, one namespace":    {access.Scope{In: shop}, 1, 0, 0},
		"the second kind, one namespace":   {access.Scope{Others: map[string]access.Scope{dialecttest.Word: {In: shop}}}, 0, 1, 0},
		"the second kind, all namespaces":  {access.Scope{Others: map[string]access.Scope{dialecttest.Word: {All: true}}}, 0, 1, 1},
		"both kinds, each in its own part": {access.Scope{In: shop, Others: map[string]access.Scope{dialecttest.Word: {All: true}}}, 1, 1, 1},
	} {
		got, _ := f.Over(tt.scope, Periods()[0])
		if sum := total(got); sum.Plans != tt.plans || sum.Applies != tt.applies || sum.Checks != tt.checks {
			t.Errorf("%s: %+v, want %d plans, %d applies and %d checks", name, sum, tt.plans, tt.applies, tt.checks)
		}
	}
}

// A restart loses no figure, and what no chart shows any more goes.
func TestFiguresSurviveARestart(t *testing.T) {
	at, f, store := figured(t)
	f.Ran(finished("uid-shop-net", stack.CheckRun, *at, time.Second, stack.Succeeded))
	f.Sample()
	if err := f.Save(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	again := clocked(at)
	again.Ran(finished("uid-shop-net", stack.CheckRun, *at, time.Second, stack.Succeeded)) // ended while the figures were read
	if err := again.Load(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	again.Sample()
	for _, p := range Periods() {
		got, _ := again.Over(access.Everything, p)
		if sum := total(got); sum.Checks != 2 || sum.Failing != 1 {
			t.Errorf("%s after a restart: %+v, want two checks and one failing stack", p.Name, sum)
		}
	}
	*at = at.Add(40 * 24 * time.Hour)
	if err := again.Save(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	if left, err := store.List(t.Context(), record.AllFigures()); err != nil || len(left) != 0 {
		t.Errorf("after 40 days %q is kept, %v", left, err)
	}
}

// However many namespaces there are, what is kept is bounded, and the sum is right.
func TestFiguresOfManyNamespaces(t *testing.T) {
	at := time.Date(2026, 3, 14, 15, 9, 0, 0, time.UTC)
	f := clocked(&at)
	f.mu.Lock()
	for i := range namespacesTold {
		f.named[string(rune('a'))+time.Duration(i).String()] = true
	}
	f.mu.Unlock()
	f.Ran(finished("uid-shop-net", stack.PlanRun, at, time.Second, stack.Succeeded))
	got, _ := f.Over(access.Everything, Periods()[0])
	apart, _ := f.Over(access.Scope{In: map[string]bool{"shop": true}}, Periods()[0])
	if total(got).Plans != 1 || total(apart).Plans != 0 {
		t.Errorf("all: %+v, the namespace: %+v", total(got), total(apart))
	}
}

// Namespaces without figures make room for others.
func TestFiguresForgetNamespaces(t *testing.T) {
	at, f, store := figured(t)
	f.Ran(finished("uid-shop-net", stack.PlanRun, *at, time.Second, stack.Succeeded))
	*at = at.Add(40 * 24 * time.Hour)
	f.Ran(finished("uid-mail-db", stack.PlanRun, *at, time.Second, stack.Succeeded))
	if err := f.Save(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(f.named, map[string]bool{"mail": true}); diff != "" {
		t.Errorf("namespaces that are told apart (-got +want):\n%s", diff)
	}
}

// unread is a store with a record that cannot be read now; without a key, none can.
type unread struct {
	FigureStore
	key string
}

func (u unread) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if key == u.key || u.key == "" {
		return nil, errors.New("the disk fails")
	}
	return u.FigureStore.Get(ctx, key)
}

// A record that is damaged, or cannot be read, takes no other with it, and both are
// deleted once they have expired.
func TestFiguresBesideADamagedRecord(t *testing.T) {
	at, f, store := figured(t)
	f.Ran(finished("uid-shop-net", stack.PlanRun, *at, time.Second, stack.Succeeded))
	if err := f.Save(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	earlier := func(hours int) string {
		return bucketOf(Periods()[0], at.Add(-time.Duration(hours)*time.Hour)).recorded().Key
	}
	for _, key := range []string{earlier(1), earlier(2)} {
		if err := record.Write(t.Context(), store, key, []byte("{")); err != nil {
			t.Fatal(err)
		}
	}
	again := clocked(at)
	if err := again.Load(t.Context(), unread{store, earlier(2)}); err == nil {
		t.Error("the record that cannot be read is not told")
	}
	for _, p := range Periods() {
		got, since := again.Over(access.Everything, p)
		if total(got).Plans != 1 || !since.Equal(at.Truncate(p.Bucket)) {
			t.Errorf("%s: %+v since %s, want the plan", p.Name, total(got), since)
		}
	}
	*at = at.Add(40 * 24 * time.Hour)
	if err := again.Save(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	if left, err := store.List(t.Context(), record.AllFigures()); err != nil || len(left) != 0 {
		t.Errorf("after 40 days %q is kept, %v", left, err)
	}
}

// A store that fails while figures are read costs none of them: Save reads them again, and
// until then writes over none.
func TestFiguresThatAreReadLate(t *testing.T) {
	for name, broken := range map[string]func(FigureStore) FigureStore{
		"listing": func(s FigureStore) FigureStore { return unlisted{s} },
		"reading": func(s FigureStore) FigureStore { return unread{s, ""} },
	} {
		t.Run(name, func(t *testing.T) {
			at, f, store := figured(t)
			f.Ran(finished("uid-shop-net", stack.PlanRun, *at, time.Second, stack.Succeeded))
			f.Sample()
			if err := f.Save(t.Context(), store); err != nil {
				t.Fatal(err)
			}
			again := clocked(at)
			if err := again.Load(t.Context(), broken(store)); err == nil {
				t.Error("Load() tells of no failure")
			}
			again.Sample()
			again.Ran(finished("uid-shop-net", stack.PlanRun, *at, time.Second, stack.Succeeded))
			if err := again.Save(t.Context(), broken(store)); err == nil {
				t.Error("Save() tells of no failure")
			}
			for range 2 { // nothing is counted twice
				if err := again.Save(t.Context(), store); err != nil {
					t.Fatal(err)
				}
			}
			third := clocked(at)
			if err := third.Load(t.Context(), store); err != nil {
				t.Fatal(err)
			}
			for _, f := range []*Figures{again, third} {
				got, _ := f.Over(access.Everything, Periods()[0])
				if sum := total(got); sum.Plans != 2 || sum.Failing != 1 {
					t.Errorf("%+v, want both plans and one failing stack", sum)
				}
			}
		})
	}
}

// unlisted is a store that cannot be listed now.
type unlisted struct{ FigureStore }

func (unlisted) List(context.Context, string) ([]string, error) {
	return nil, errors.New("the disk fails")
}
