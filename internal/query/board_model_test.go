package query

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/dialect/kinds"
	"github.com/terrier-iac/terrier/internal/stack"
)

// day is when everything in these tests happens.
var day = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

func newBoard() *Board {
	return NewBoard(BoardOptions{Kinds: kinds.All(), TenantLabel: "team", Now: func() time.Time { return day }})
}

// drawn is a stack of a small world, so that several are alike.
func drawn(t *rapid.T) *v1alpha2.Terraform {
	pick := func(name string, of ...string) string { return rapid.SampledFrom(of).Draw(t, name) }
	o := &v1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{
		Namespace: pick("namespace", "a", "a-b", "b"), Name: pick("name", "n1", "n2", "n3", "n4"), UID: types.UID(pick("uid", "u1", "u2", "u3")),
	}}
	if team := pick("team", "", "Red", "blue"); team != "" {
		o.Labels = map[string]string{"team": team}
	}
	o.Spec.Suspend = pick("suspended", "", "", "yes") != ""
	o.Status.Terrier = &v1alpha2.TerrierStatus{Phase: pick("phase", string(stack.Applied), string(stack.RetryLater), string(stack.AwaitingApproval))}
	if s := rapid.IntRange(0, 3).Draw(t, "since"); s > 0 {
		since := metav1.NewTime(day.Add(time.Duration(s) * time.Hour))
		o.Status.Terrier.Since = &since
	}
	o.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "False", Reason: "R", Message: pick("message", "No such Bucket", "timeout")}}
	return o
}

// naive is a board without an index: each question reads all rows.
type naive map[Key]Row

func (n naive) page(scope access.Scope, q BoardQuery) (items []Row, total int, counts map[Status]int, groups []BoardGroup) {
	counts = map[Status]int{}
	byGroup := map[string]*BoardGroup{}
	group := func(r Row) string {
		return map[string]string{"": "", "namespace": r.Namespace, "tenant": r.Tenant, "label:team": r.Labels["team"]}[q.Group]
	}
	for _, r := range n {
		text := strings.ToLower(strings.Join([]string{r.Namespace + "/" + r.Name, r.Tenant, r.Message}, "\n"))
		missing := slices.ContainsFunc(strings.Fields(strings.ToLower(q.Text)), func(w string) bool { return !strings.Contains(text, w) })
		selector, _ := labels.Parse(q.Selector)
		if !scope.Has(r.Namespace) || missing || q.Namespace != "" && r.Namespace != q.Namespace || q.Tenant != "" && r.Tenant != q.Tenant || !selector.Matches(labels.Set(r.Labels)) {
			continue
		}
		counts[r.Status]++
		if len(q.Statuses) > 0 && !slices.Contains(q.Statuses, r.Status) {
			continue
		}
		items, total = append(items, r), total+1
		if q.Group != "" {
			g := byGroup[group(r)]
			if g == nil {
				g = &BoardGroup{Name: group(r), Counts: map[Status]int{}}
				byGroup[g.Name] = g
			}
			g.Total++
			g.Counts[r.Status]++
		}
	}
	field, down := strings.CutPrefix(q.Sort, "-")
	slices.SortFunc(items, func(a, b Row) int {
		c, key := 0, compareKeys(a.Key(), b.Key())
		switch field {
		case "", "name":
			c = key
		case "status":
			c = slices.Index(Statuses(), a.Status) - slices.Index(Statuses(), b.Status)
		case "since":
			if a.Since.IsZero() != b.Since.IsZero() {
				return cmp.Or(cmp.Compare(group(a), group(b)), map[bool]int{true: 1, false: -1}[a.Since.IsZero()])
			}
			c = a.Since.Compare(b.Since)
		}
		if down {
			c = -c
		}
		return cmp.Or(cmp.Compare(group(a), group(b)), c, key)
	})
	for _, name := range slices.Sorted(maps.Keys(byGroup)) {
		groups = append(groups, *byGroup[name])
	}
	items = items[min(q.Offset, len(items)):]
	return items[:min(len(items), cmp.Or(q.Limit, 100))], total, counts, groups
}

func drawnQuery(t *rapid.T) (access.Scope, BoardQuery) {
	pick := func(name string, of ...string) string { return rapid.SampledFrom(of).Draw(t, name) }
	scope := rapid.SampledFrom([]access.Scope{access.Everything, {In: map[string]bool{"a": true}}, {In: map[string]bool{"a-b": true, "b": true}}, {}}).Draw(t, "scope")
	return scope, BoardQuery{
		Text:      pick("text", "", "", "a/", "N1", "bucket such", "red"),
		Statuses:  rapid.SampledFrom([][]Status{nil, nil, {StatusFailed}, {StatusPending, StatusReady}}).Draw(t, "statuses"),
		Namespace: pick("in", "", "", "a", "c"), Tenant: pick("tenant", "", "", "", "Red", "a"), Selector: pick("selector", "", "", "team=blue", "!team"),
		Group: pick("group", "", "namespace", "tenant", "label:team"), Sort: pick("sort", "", "name", "-name", "status", "-status", "since", "-since"),
		Offset: rapid.IntRange(0, 5).Draw(t, "offset"), Limit: rapid.IntRange(0, 4).Draw(t, "limit"),
	}
}

// After any sequence of changes, each answer equals that of a full scan, and a
// reader that follows the changes from any moment on has the same rows in the end.
func TestBoardIsWhatItWasTold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, model := newBoard(), naive{}
		b.Synced()
		type reader struct {
			rows   naive
			cursor string
		}
		readers := []reader{{naive{}, b.cursor(0)}}
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				o := drawn(t)
				b.Set(o)
				model[Key{Namespace: o.Namespace, Name: o.Name}] = rowOf(View(ReadObject(kinds.All(), o)), "team")
			},
			"drop": func(t *rapid.T) {
				o := drawn(t)
				b.Drop(Key{Namespace: o.Namespace, Name: o.Name})
				delete(model, Key{Namespace: o.Namespace, Name: o.Name})
			},
			"ask": func(t *rapid.T) {
				scope, q := drawnQuery(t)
				got, err := b.Page(scope, q)
				if err != nil {
					t.Fatal(err)
				}
				items, total, counts, groups := model.page(scope, q)
				want := BoardPage{Items: append([]Row{}, items...), Total: total, Counts: counts, Groups: groups, Cursor: got.Cursor}
				if len(groups) == 0 {
					want.Groups = []BoardGroup{}
				}
				if diff := gocmp.Diff(want, got); diff != "" {
					t.Fatalf("Page(%+v, %+v) (-want +got):\n%s", scope, q, diff)
				}
			},
			"begin to follow": func(t *rapid.T) {
				p, err := b.Page(access.Everything, BoardQuery{Limit: 1})
				if err != nil {
					t.Fatal(err)
				}
				readers = append(readers, reader{maps.Clone(model), p.Cursor})
			},
			"follow": func(t *rapid.T) {
				r := &readers[rapid.IntRange(0, len(readers)-1).Draw(t, "reader")]
				r.cursor = follow(t, b, r.rows, r.cursor)
			},
			"": func(t *rapid.T) {
				if got := b.Len(); got != len(model) {
					t.Fatalf("Len() = %d, want %d", got, len(model))
				}
				spaces := map[string]bool{}
				for k, want := range model {
					spaces[k.Namespace] = true
					if got, ok := b.Get(k); !ok || !gocmp.Equal(got, want) {
						t.Fatalf("Get(%s) = %+v, %t, want %+v", k, got, ok, want)
					}
				}
				if got, want := b.Namespaces(), slices.Sorted(maps.Keys(spaces)); !slices.Equal(got, want) {
					t.Fatalf("Namespaces() = %q, want %q", got, want)
				}
			},
		})
		for i, r := range readers {
			follow(t, b, r.rows, r.cursor)
			if diff := gocmp.Diff(model, r.rows); diff != "" {
				t.Errorf("reader %d (-board +read):\n%s", i, diff)
			}
		}
	})
}

// follow brings rows up to date, and checks that no row is told of twice and
// that each change can be gone on from.
func follow(t *rapid.T, b *Board, rows naive, cursor string) string {
	news, err := b.Changes(access.Everything, cursor)
	if err != nil || news.Reset {
		t.Fatalf("Changes(%s) = %+v, %v", cursor, news, err)
	}
	told := map[string]bool{}
	for i, c := range news.Changes {
		key := c.Row.Key()
		if told[key.String()] {
			t.Fatalf("%s is told of twice", key)
		}
		told[key.String()] = true
		rest, err := b.Changes(access.Everything, c.Cursor)
		if err != nil || len(rest.Changes) != len(news.Changes)-i-1 {
			t.Fatalf("from %s on there are %d changes (%v), want %d", c.Cursor, len(rest.Changes), err, len(news.Changes)-i-1)
		}
		if c.Gone {
			delete(rows, key)
		} else {
			rows[key] = c.Row
		}
	}
	if len(news.Changes) > 0 && news.Changes[len(news.Changes)-1].Cursor != news.Next {
		t.Fatalf("Next = %s after %s", news.Next, fmt.Sprint(news.Changes[len(news.Changes)-1].Cursor))
	}
	return news.Next
}
