package query

import (
	"cmp"
	"container/heap"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
)

// Bounds of a page.
const (
	pageRows    = 100
	pageRowsMax = 1000

	pageOffsetMax = 1 << 30
)

// ReasonQuery is the reason of a query that makes no sense.
const ReasonQuery = "QueryInvalid"

// boardQuery is a BoardQuery that was understood.
type boardQuery struct {
	BoardQuery
	words    []string
	statuses tally // 1 where rows of that status are wanted
	selector labels.Selector
	group    func(*card) string           // nil for none
	compare  func(a, b *card) (order int) // nil is by key
	reverse  bool                         // of by key
}

// Page returns the rows in scope that q chooses.
func (b *Board) Page(scope access.Scope, q BoardQuery) (BoardPage, error) {
	asked, err := q.understood()
	if err != nil {
		return BoardPage{}, err
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	if !b.synced {
		return BoardPage{}, errNotReady
	}
	var counts tally
	groups := map[string]*tally{}
	front := asked.front()
	for e := range b.chosen(scope, asked) {
		counts[e.rank]++
		if asked.statuses[e.rank] == 0 {
			continue
		}
		if asked.group != nil {
			t := groups[asked.group(e)]
			if t == nil {
				t = new(tally)
				groups[asked.group(e)] = t
			}
			t[e.rank]++
		}
		front.take(e)
	}
	page := BoardPage{Items: front.rows(asked), Counts: counts.counts(), Groups: groupsOf(groups), Cursor: b.cursor(b.seq)}
	for i, n := range counts {
		page.Total += n * asked.statuses[i]
	}
	return page, nil
}

// chosen yields what q chooses but for the statuses, by key.
func (b *Board) chosen(scope access.Scope, q boardQuery) func(yield func(*card) bool) {
	return func(yield func(*card) bool) {
		rows := b.order
		if q.Namespace != "" {
			from, _ := b.find(Key{Namespace: q.Namespace})
			to, _ := b.find(Key{Namespace: q.Namespace + "\x00"})
			rows = rows[from:to]
		}
		namespace, kind, visible := "", "", false
		for _, e := range rows {
			if e.key.Namespace != namespace || e.key.Kind != kind {
				namespace, kind, visible = e.key.Namespace, e.key.Kind, scope.Of(e.key.Kind).Has(e.key.Namespace)
			}
			if visible && q.chooses(e) && !yield(e) {
				return
			}
		}
	}
}

func (q boardQuery) chooses(e *card) bool {
	if q.Tenant != "" && e.row.Tenant != q.Tenant || !mentions(e.search, q.words) {
		return false
	}
	return q.selector == nil || q.selector.Matches(labels.Set(e.row.Labels))
}

// Tally counts the rows in scope that have one of some values of a label, by the
// value. It is a Page with that label as its Group, to know of
// a few among thousands of groups.
func (b *Board) Tally(scope access.Scope, label string, values []string) ([]BoardGroup, error) {
	groups := make(map[string]*tally, len(values))
	for _, v := range values {
		groups[v] = new(tally)
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	if !b.synced {
		return nil, errNotReady
	}
	for e := range b.chosen(scope, boardQuery{}) {
		if v, has := e.row.Labels[label]; has && groups[v] != nil {
			groups[v][e.rank]++
		}
	}
	maps.DeleteFunc(groups, func(_ string, t *tally) bool { return t.total() == 0 })
	return groupsOf(groups), nil
}

// understood refuses what means nothing and says what would.
func (q BoardQuery) understood() (boardQuery, error) {
	out := boardQuery{BoardQuery: q, words: strings.Fields(strings.ToLower(q.Text))}
	for _, s := range q.Statuses {
		if s.rank() == len(allStatuses) {
			return out, notOneOf("status", string(s), statusNames())
		}
		out.statuses[s.rank()] = 1
	}
	if len(q.Statuses) == 0 {
		for i := range out.statuses {
			out.statuses[i] = 1
		}
	}
	if q.Offset < 0 || q.Limit < 0 {
		return out, fault.New(fault.Invalid, ReasonQuery, fmt.Errorf("offset and limit are not negative, and %d and %d were given", q.Offset, q.Limit))
	}
	out.Limit = min(cmp.Or(q.Limit, pageRows), pageRowsMax)
	var err error
	if q.Selector != "" {
		if out.selector, err = parseSelector(q.Selector); err != nil {
			return out, err
		}
	}
	if out.group, err = grouping(q.Group); err != nil {
		return out, err
	}
	return out, out.sorted()
}

// grouping is the value that a Group is about; nil for none.
func grouping(group string) (func(*card) string, error) {
	label, byLabel := strings.CutPrefix(group, "label:")
	switch {
	case group == "":
		return nil, nil
	case group == "namespace":
		return func(e *card) string { return e.key.Namespace }, nil
	case group == "tenant":
		return func(e *card) string { return e.row.Tenant }, nil
	case byLabel && label != "":
		return func(e *card) string { return e.row.Labels[label] }, nil
	default:
		return nil, notOneOf("group", group, []string{"namespace", "tenant", "label:KEY"})
	}
}

// sorted fills in how rows are ordered: by group, then as Sort says, then by
// key. What never happened comes last in either direction.
func (q *boardQuery) sorted() error {
	field, descending := strings.CutPrefix(q.Sort, "-")
	var by func(*card) int64 // 0 if it never happened
	switch field {
	case "", "name":
		q.reverse = descending
	case "status":
		by = func(e *card) int64 { return 1 + int64(e.rank) }
	case "since":
		by = func(e *card) int64 { return e.since }
	case "applied":
		by = func(e *card) int64 { return e.applied }
	default:
		return notOneOf("sort", q.Sort, []string{"name", "status", "since", "applied, nor of these with - before them"})
	}
	if by == nil && (q.group == nil || q.Group == "namespace" && !q.reverse) {
		return nil // the order in which they are kept
	}
	if by == nil {
		by = func(*card) int64 { return 0 }
	}
	q.compare = func(a, b *card) int {
		if q.group != nil {
			if c := strings.Compare(q.group(a), q.group(b)); c != 0 {
				return c
			}
		}
		x, y := by(a), by(b)
		switch {
		case x == y && q.reverse:
			return compareKeys(b.key, a.key)
		case x == y:
			return compareKeys(a.key, b.key)
		case x == 0:
			return 1
		case y == 0:
			return -1
		case descending:
			return cmp.Compare(y, x)
		default:
			return cmp.Compare(x, y)
		}
	}
	return nil
}

func notOneOf(field, value string, allowed []string) error {
	return fault.New(fault.Invalid, ReasonQuery, fmt.Errorf("%s: %.80q is none of %s", field, value, strings.Join(allowed, ", ")))
}

func statusNames() []string {
	var out []string
	for _, s := range allStatuses {
		out = append(out, string(s))
	}
	return out
}

// front keeps the first rows of a page's order, so that ten thousand are not
// sorted to show a hundred: it holds no more than reach up to the page's end,
// the last of them on top.
type front struct {
	compare func(a, b *card) int
	limit   int
	kept    []*card
}

func (q boardQuery) front() *front {
	f := &front{compare: q.compare, limit: min(q.Offset, pageOffsetMax) + q.Limit}
	if f.compare == nil && q.reverse {
		f.compare = func(a, b *card) int { return compareKeys(b.key, a.key) }
	}
	return f
}

// take is called with rows by key.
func (f *front) take(e *card) {
	switch {
	case f.compare == nil && len(f.kept) < f.limit:
		f.kept = append(f.kept, e)
	case f.compare == nil:
	case len(f.kept) < f.limit:
		heap.Push(f, e)
	case f.compare(e, f.kept[0]) < 0:
		f.kept[0] = e
		heap.Fix(f, 0)
	}
}

func (f *front) rows(q boardQuery) []Row {
	if f.compare != nil {
		slices.SortFunc(f.kept, f.compare)
	}
	kept := f.kept[min(q.Offset, len(f.kept)):]
	out := make([]Row, 0, len(kept))
	for _, e := range kept {
		out = append(out, *e.row)
	}
	return out
}

func (f *front) Len() int { return len(f.kept) }

// Less implements heap.Interface: the last of all is on top.
func (f *front) Less(i, j int) bool { return f.compare(f.kept[i], f.kept[j]) > 0 }

func (f *front) Swap(i, j int) { f.kept[i], f.kept[j] = f.kept[j], f.kept[i] }

func (f *front) Push(x any) { f.kept = append(f.kept, x.(*card)) }

// Pop implements heap.Interface; heap.Fix needs no call of it.
func (f *front) Pop() any {
	last := f.kept[len(f.kept)-1]
	f.kept = f.kept[:len(f.kept)-1]
	return last
}

func groupsOf(tallies map[string]*tally) []BoardGroup {
	out := make([]BoardGroup, 0, len(tallies))
	for name, t := range tallies {
		out = append(out, BoardGroup{Name: name, Total: t.total(), Counts: t.counts()})
	}
	slices.SortFunc(out, func(a, b BoardGroup) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// searchedMessage bounds how much of a message is searched: some of them list
// everything that is missing.
const searchedMessage = 512

// searchText is the text that is searched for words. Parts are kept apart, so that no
// word is found across two of them.
func searchText(r *Row) string {
	parts := make([]string, 0, 16)
	parts = append(parts, r.Namespace+"/"+r.Name, r.Tenant, r.Source, r.Path, r.Pending)
	for k, v := range r.Labels {
		parts = append(parts, k+"="+v)
	}
	parts = append(parts, r.Message[:min(len(r.Message), searchedMessage)])
	return strings.ToLower(strings.Join(parts, "\n"))
}

// Mentions reports whether a search of the board for these words, in lower case,
// finds r.
func (r Row) Mentions(words []string) bool { return mentions(searchText(&r), words) }

func mentions(text string, words []string) bool {
	return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) })
}
