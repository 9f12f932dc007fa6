package query

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/dialect/kinds"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
)

// placed is a stack in a phase.
func placed(namespace, name string, phase stack.Reason) *v1alpha2.Terraform {
	return &v1alpha2.Terraform{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + namespace + "-" + name)},
		Status:     v1alpha2.TerraformStatus{Terrier: &v1alpha2.TerrierStatus{Phase: string(phase)}},
	}
}

func syncedBoard(stacks ...*v1alpha2.Terraform) *Board {
	b := newBoard()
	for _, o := range stacks {
		b.Set(o)
	}
	b.Synced()
	return b
}

func TestBoardAnswersNothingBeforeItIsFull(t *testing.T) {
	b := newBoard()
	b.Set(placed("a", "one", stack.Applied))
	_, page := b.Page(access.Everything, BoardQuery{})
	_, news := b.Changes(access.Everything, "")
	_, graph := b.Graph(access.Everything, Key{Namespace: "a", Name: "one"}, 0)
	_, capacity := b.Capacity(Slots{Runs: 1})
	_, tally := b.Tally(access.Everything, "team", []string{"a"})
	for what, err := range map[string]error{"Page": page, "Tally": tally, "Changes": news, "Graph": graph, "Capacity": capacity} {
		if fault.Of(err) != fault.Later || fault.Reason(err, "") != "NotReady" {
			t.Errorf("%s before the first list: %v, want Later", what, err)
		}
	}
}

// Counting a few values of a label finds what grouping by it finds.
func TestBoardTally(t *testing.T) {
	team := func(o *v1alpha2.Terraform, team string) *v1alpha2.Terraform {
		o.Labels = map[string]string{"team": team}
		return o
	}
	b := syncedBoard(
		team(placed("a", "one", stack.Applied), "red"), team(placed("a", "two", stack.RetryLater), "red"), team(placed("b", "three", stack.Applied), "red"),
		team(placed("a", "four", stack.Applied), "blue"), placed("a", "five", stack.Applied), team(placed("b", "six", stack.Applied), "green"),
	)
	scope := access.Scope{In: map[string]bool{"a": true}}
	got, err := b.Tally(scope, "team", []string{"red", "green", "white", ""})
	if err != nil {
		t.Fatal(err)
	}
	page, err := b.Page(scope, BoardQuery{Group: "label:team"})
	if err != nil {
		t.Fatal(err)
	}
	want := slices.DeleteFunc(page.Groups, func(g BoardGroup) bool { return g.Name != "red" })
	if diff := cmp.Diff(got, want); diff != "" || len(got) != 1 || got[0].Total != 2 {
		t.Errorf("the stacks of some teams, as one who sees a (-got +want):\n%s", diff)
	}
}

func TestQueriesThatMeanNothing(t *testing.T) {
	b := syncedBoard()
	for name, c := range map[string]struct {
		query BoardQuery
		says  []string
	}{
		"an unknown order":        {BoardQuery{Sort: "age"}, []string{"sort", `"age"`, "name, status, since, applied", "- before"}},
		"an unknown group":        {BoardQuery{Group: "team"}, []string{"group", `"team"`, "namespace, tenant, label:KEY"}},
		"a group of no label":     {BoardQuery{Group: "label:"}, []string{"group", "label:KEY"}},
		"an unknown status":       {BoardQuery{Statuses: []Status{StatusReady, "happy"}}, append([]string{"status", `"happy"`}, statusNames()...)},
		"a selector that is none": {BoardQuery{Selector: "a in (b"}, []string{"selector"}},
		"a negative offset":       {BoardQuery{Offset: -1}, []string{"offset", "-1"}},
		"a negative limit":        {BoardQuery{Limit: -1}, []string{"limit", "-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := b.Page(access.Everything, c.query)
			if fault.Of(err) != fault.Invalid {
				t.Fatalf("Page(%+v): %v, want Invalid", c.query, err)
			}
			for _, word := range c.says {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q does not say %s", err, word)
				}
			}
		})
	}
}

// The counts are what the filters offer, so they do not change with the one
// that is chosen; the total is what is paged through.
func TestCountsAreOfAllStatuses(t *testing.T) {
	b := syncedBoard(placed("a", "one", stack.Applied), placed("a", "two", stack.RetryLater), placed("b", "three", stack.RetryLater))
	p, err := b.Page(access.Everything, BoardQuery{Statuses: []Status{StatusFailed}, Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	if p.Total != 2 || len(p.Items) != 1 || p.Counts[StatusFailed] != 2 || p.Counts[StatusReady] != 1 {
		t.Errorf("Page() = %d items of %d, counts %v, want 1 of 2, 2 failed and 1 ready", len(p.Items), p.Total, p.Counts)
	}
}

// A status is written for many reasons; only what is seen is told.
func TestWhatShowsNothingNewIsNoChange(t *testing.T) {
	b := syncedBoard(placed("a", "one", stack.Applied))
	start := b.cursor(b.seq)
	same := placed("a", "one", stack.Applied)
	same.ResourceVersion, same.Annotations = "17", map[string]string{"unseen": "yes"}
	b.Set(same)
	news, err := b.Changes(access.Everything, start)
	if err != nil || len(news.Changes) != 0 || news.Next != start {
		t.Errorf("Changes() = %+v, %v, want none", news, err)
	}
}

func TestAReaderIsWokenByAChange(t *testing.T) {
	b := syncedBoard(placed("a", "one", stack.Applied))
	news, err := b.Changes(access.Everything, "")
	if err != nil || len(news.Changes) != 0 {
		t.Fatalf("Changes() = %+v, %v, want none", news, err)
	}
	select {
	case <-news.Wait:
		t.Fatal("woken before anything changed")
	default:
	}
	b.Set(placed("a", "one", stack.Planning))
	<-news.Wait
	if news, err = b.Changes(access.Everything, news.Next); err != nil || len(news.Changes) != 1 || news.Changes[0].Row.Status != StatusRunning {
		t.Errorf("Changes() = %+v, %v, want the one row", news, err)
	}
}

func TestCursors(t *testing.T) {
	b := syncedBoard()
	old := b.cursor(b.seq)
	for i := range ghostsKept + 1 {
		name := fmt.Sprint("s", i)
		b.Set(placed("a", name, stack.Applied))
		b.Drop(Key{Namespace: "a", Name: name})
	}
	for name, c := range map[string]struct {
		since string
		want  fault.Kind
		reset bool
	}{
		"of before a stack went that is no longer remembered": {old, fault.None, true},
		"of another board":    {newBoard().cursor(1), fault.None, true},
		"of the future":       {b.cursor(b.seq + 1), fault.None, true},
		"of now":              {b.cursor(b.seq), fault.None, false},
		"of the last ghosts":  {b.cursor(b.floor), fault.None, false},
		"that is none":        {"yesterday", fault.Invalid, false},
		"with a wrong number": {b.boot + "-x", fault.Invalid, false},
	} {
		t.Run(name, func(t *testing.T) {
			news, err := b.Changes(access.Everything, c.since)
			if fault.Of(err) != c.want || news.Reset != c.reset {
				t.Fatalf("Changes(%q) = reset %t, %v, want reset %t, %s", c.since, news.Reset, err, c.reset, c.want)
			}
			if c.want != fault.None {
				return
			}
			if next, err := b.Changes(access.Everything, news.Next); err != nil || next.Reset {
				t.Errorf("Changes(Next) = %+v, %v, want to go on from there", next, err)
			}
		})
	}
}

// What a stack was that is gone is told to readers who lost their connection for a moment, and
// to no others: they may be new users of the name of a namespace, and choose any cursor.
func TestWhatIsGoneIsToldForAMoment(t *testing.T) {
	now := day
	b := NewBoard(BoardOptions{Kinds: kinds.All(), Now: func() time.Time { return now }})
	b.Synced()
	first := b.cursor(b.seq)
	b.Set(placed("a", "one", stack.Applied))
	b.Set(placed("a", "two", stack.Applied))
	b.Drop(Key{Namespace: "a", Name: "one"})
	tells := func(since string, want bool) {
		t.Helper()
		news, err := b.Changes(access.Everything, since)
		told := slices.ContainsFunc(news.Changes, func(c BoardChange) bool { return c.Row.Name == "one" })
		if err != nil || told != want || news.Reset == want {
			t.Errorf("Changes() = %+v, %v, want the one that is gone: %v", news, err, want)
		}
	}
	tells(first, true)
	now = now.Add(ghostsTold)
	tells(first, true)
	now = now.Add(time.Second)
	tells(first, false)
	if news, err := b.Changes(access.Everything, b.cursor(b.seq)); err != nil || news.Reset {
		t.Errorf("Changes() since it is gone = %+v, %v, want to go on", news, err)
	}
	b.Drop(Key{Namespace: "a", Name: "two"})
	tells(first, false) // one of them was gone for long
}

// Many changes are sent in parts.
func TestManyChangesAreToldInParts(t *testing.T) {
	b := syncedBoard()
	cursor, seen := b.cursor(b.seq), map[string]bool{}
	for i := range 2*newsRows + 10 {
		b.Set(placed("a", fmt.Sprint("s", i), stack.Applied))
	}
	for {
		news, err := b.Changes(access.Everything, cursor)
		if err != nil || news.Reset || len(news.Changes) > newsRows {
			t.Fatalf("Changes() = %d changes, reset %t, %v", len(news.Changes), news.Reset, err)
		}
		for _, c := range news.Changes {
			seen[c.Row.Name] = true
		}
		cursor = news.Next
		if len(news.Changes) < newsRows {
			break
		}
		<-news.Wait // there is more
	}
	if len(seen) != 2*newsRows+10 {
		t.Errorf("%d stacks were told of, want all", len(seen))
	}
}

func TestChangesKeepToTheirScope(t *testing.T) {
	b := syncedBoard(placed("a", "one", stack.Applied), placed("b", "two", stack.Applied))
	news, err := b.Changes(access.Scope{In: map[string]bool{"b": true}}, b.cursor(0))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range news.Changes {
		got = append(got, c.Row.Key().String())
	}
	if want := []string{"b/two"}; !slices.Equal(got, want) || news.Next != b.cursor(b.seq) {
		t.Errorf("Changes() = %q up to %s, want %q up to %s", got, news.Next, want, b.cursor(b.seq))
	}
}
