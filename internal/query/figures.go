package query

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Figure is what the runs of one period did, and how many stacks were in trouble at
// one time.
type Figure struct {
	Start time.Time `json:"start,omitzero"`

	Checks  int `json:"checks,omitempty"`  // drift checks
	Plans   int `json:"plans,omitempty"`   // and previews
	Applies int `json:"applies,omitempty"` // and destroys
	Failed  int `json:"failed,omitempty"`  // of all of these

	PlanTime     int64 `json:"planTime,omitempty"`     // milliseconds that plans and drift checks took
	ApplyTime    int64 `json:"applyTime,omitempty"`    // the same of applies and destroys
	LongestPlan  int64 `json:"longestPlan,omitempty"`  // milliseconds
	LongestApply int64 `json:"longestApply,omitempty"` // likewise

	Drifted int `json:"drifted,omitempty"` // stacks, the most at one time
	Failing int `json:"failing,omitempty"` // likewise
}

// Runs is how many runs ended.
func (f Figure) Runs() int { return f.Checks + f.Plans + f.Applies }

// add puts another namespace, or another run, beside f.
func (f *Figure) add(g Figure) {
	f.Checks, f.Plans, f.Applies, f.Failed = f.Checks+g.Checks, f.Plans+g.Plans, f.Applies+g.Applies, f.Failed+g.Failed
	f.PlanTime, f.ApplyTime = f.PlanTime+g.PlanTime, f.ApplyTime+g.ApplyTime
	f.LongestPlan, f.LongestApply = max(f.LongestPlan, g.LongestPlan), max(f.LongestApply, g.LongestApply)
	f.Drifted, f.Failing = f.Drifted+g.Drifted, f.Failing+g.Failing
}

// Period is a span of time that figures are shown of.
type Period struct {
	Name   string        // day, week or month
	Bucket time.Duration // what one figure is of
	Count  int           // figures
}

// Periods are all of them, the shortest first.
func Periods() []Period {
	return []Period{{"day", time.Hour, 24}, {"week", 6 * time.Hour, 28}, {"month", 24 * time.Hour, 30}}
}

// Figures counts what runs do, by period and namespace. What it holds is bounded,
// whatever number of stacks and runs there is. It survives a restart: Load and Save
// keep it in the records.
type Figures struct {
	board *Board
	now   func() time.Time

	mu      sync.Mutex
	buckets map[figureKey]map[string]*Figure // by place
	named   map[string]bool                  // places that are told apart
	changed map[figureKey]bool               // since they were saved
	unread  map[figureKey]bool               // records that Load could not read: Save writes over none of them
	behind  bool                             // Load could not list the records: Save writes none
}

// figureKey names one bucket.
type figureKey struct {
	period string
	start  int64 // Unix
}

// allNamespaces stands for the sum of a kind. No namespace has that name.
const allNamespaces = ""

// placeOf is a kind of stack in a namespace: the namespace alone for the first kind,
// as it was recorded while there was no other.
func placeOf(kind, namespace string) string { return Key{Kind: kind, Name: namespace}.Address() }

// isSum reports whether a place is all namespaces of a kind.
func isSum(place string) bool {
	_, namespace := SplitAddress(place)
	return namespace == allNamespaces
}

// namespacesTold bounds the places that are told apart. Runs in others count in the
// sum of their kind only.
const namespacesTold = 4000

// NewFigures returns Figures about the stacks of board.
func NewFigures(board *Board, now func() time.Time) *Figures {
	return &Figures{board: board, now: now, buckets: map[figureKey]map[string]*Figure{}, named: map[string]bool{}, changed: map[figureKey]bool{}, unread: map[figureKey]bool{}}
}

// Ran counts a run that ended.
func (f *Figures) Ran(r Report) {
	one, ok := figureOf(r)
	if !ok {
		return
	}
	kind, namespace, ok := foundAt(f.board, r)
	if !ok {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range Periods() {
		f.add(bucketOf(p, r.Finished), kind, namespace, one)
	}
}

// figureOf is what one run counts as; false for a run that no figure is about.
func figureOf(r Report) (one Figure, ok bool) {
	took := max(0, r.Finished.Sub(r.Started).Milliseconds())
	switch r.Kind {
	case stack.CheckRun:
		one = Figure{Checks: 1, PlanTime: took, LongestPlan: took}
	case stack.PlanRun, stack.PreviewRun:
		one = Figure{Plans: 1, PlanTime: took, LongestPlan: took}
	case stack.ApplyRun, stack.ScriptRun, stack.DestroyRun:
		one = Figure{Applies: 1, ApplyTime: took, LongestApply: took}
	default:
		return one, false
	}
	if bad(r) {
		one.Failed = 1
	}
	return one, !r.Finished.IsZero()
}

func bucketOf(p Period, at time.Time) figureKey {
	return figureKey{p.Name, at.UTC().Truncate(p.Bucket).Unix()}
}

// add counts one in a bucket, for its namespace and in the sum of its kind. The caller
// holds mu.
func (f *Figures) add(k figureKey, kind, namespace string, one Figure) {
	f.at(k, placeOf(kind, allNamespaces)).add(one)
	if g := f.at(k, placeOf(kind, namespace)); g != nil && namespace != allNamespaces {
		g.add(one)
	}
}

// at is the figure of a place in a bucket; nil if the place is one too many.
func (f *Figures) at(k figureKey, place string) *Figure {
	if !isSum(place) && !f.named[place] {
		if len(f.named) >= namespacesTold {
			return nil
		}
		f.named[place] = true
	}
	b := f.buckets[k]
	if b == nil {
		b = map[string]*Figure{}
		f.buckets[k] = b
	}
	if b[place] == nil {
		b[place] = &Figure{}
	}
	f.changed[k] = true
	return b[place]
}

// Sample counts the stacks that are in trouble now. It does nothing before the
// board knows all stacks.
func (f *Figures) Sample() {
	now, ok := troubled(f.board)
	if !ok {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	at := f.now()
	for _, p := range Periods() {
		k := bucketOf(p, at)
		for place, t := range now {
			if g := f.at(k, place); g != nil {
				g.Drifted, g.Failing = max(g.Drifted, t.Drifted), max(g.Failing, t.Failing)
			}
		}
	}
}

// Over returns the figures of a period for the kinds and namespaces in scope, the
// oldest first, one for each bucket. since is when the oldest figure that is kept begins;
// zero if there is none.
func (f *Figures) Over(scope access.Scope, p Period) (figures []Figure, since time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	last := f.now().UTC().Truncate(p.Bucket)
	for i := p.Count - 1; i >= 0; i-- {
		start := last.Add(-time.Duration(i) * p.Bucket)
		sum := Figure{}
		b := f.buckets[figureKey{p.Name, start.Unix()}]
		for place, g := range b {
			kind, namespace := SplitAddress(place)
			if own := scope.Of(kind); own.All == isSum(place) && own.Has(namespace) {
				sum.add(*g)
			}
		}
		if len(b) > 0 && since.IsZero() {
			since = start
		}
		sum.Start = start
		figures = append(figures, sum)
	}
	return figures, since
}

// FigureStore keeps figures.
type FigureStore interface {
	record.Reader
	record.Writer
	List(ctx context.Context, prefix string) ([]string, error)
	Delete(ctx context.Context, key string) error
}

// recorded is the record of a bucket.
func (k figureKey) recorded() record.Of[map[string]*Figure] {
	return record.At[map[string]*Figure](record.Figures(k.period, strconv.FormatInt(k.start, 10)))
}

// Load reads what was saved, before the first Sample. A record that is damaged is
// left out: the others are shown, and Save deletes it once it has expired. Save reads a
// record again that could not be read for another reason.
func (f *Figures) Load(ctx context.Context, from FigureStore) error {
	keys, err := from.List(ctx, record.AllFigures())
	f.mu.Lock()
	f.behind = err != nil
	f.mu.Unlock()
	if err != nil {
		return fmt.Errorf("listing the figures of runs: %w", err)
	}
	var failed []error
	for _, key := range keys {
		if k, ok := parseFigureKey(key); ok {
			failed = append(failed, f.load(ctx, from, k))
		}
	}
	return errors.Join(failed...)
}

func (f *Figures) load(ctx context.Context, from FigureStore, k figureKey) error {
	content, err := record.Read(ctx, from, k.recorded().Key)
	f.mu.Lock()
	delete(f.unread, k)
	if err != nil && fault.Reason(err, "") != blob.Damaged && fault.Of(err) != fault.Missing {
		f.unread[k] = true
	}
	f.mu.Unlock()
	if err != nil {
		f.restore(k, nil)
		return fmt.Errorf("reading the figures of runs: %w", err)
	}
	kept, err := k.recorded().Decode(content)
	if err != nil {
		kept = nil
	}
	f.restore(k, kept)
	return nil
}

// loadRest reads what Load could not read. Load has told of records whose key is unknown.
func (f *Figures) loadRest(ctx context.Context, from FigureStore) error {
	f.mu.Lock()
	behind, unread := f.behind, slices.Collect(maps.Keys(f.unread))
	f.mu.Unlock()
	if behind {
		return f.Load(ctx, from)
	}
	var failed []error
	for _, k := range unread {
		if err := f.load(ctx, from, k); fault.Reason(err, "") != blob.KeyUnknown {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

func (f *Figures) restore(k figureKey, kept map[string]*Figure) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fresh := f.changed[k]
	if f.buckets[k] == nil {
		f.buckets[k] = map[string]*Figure{} // also without figures: Save finds expired records by their buckets
	}
	for place, g := range kept {
		if mine := f.at(k, place); g != nil && mine != nil {
			drifted, failing := max(mine.Drifted, g.Drifted), max(mine.Failing, g.Failing)
			mine.add(*g)
			mine.Drifted, mine.Failing = drifted, failing // the most at one time
		}
	}
	if !fresh {
		delete(f.changed, k) // it is what was saved
	}
}

func parseFigureKey(key string) (figureKey, bool) {
	period, start, ok := record.FiguresOf(key)
	at, err := strconv.ParseInt(start, 10, 64)
	return figureKey{period, at}, ok && err == nil
}

// Save writes what changed since, and deletes what is older than its period. What
// could not be written is written the next time. Figures whose record could not be read
// wait until it is read.
func (f *Figures) Save(ctx context.Context, to FigureStore) error {
	failed := []error{f.loadRest(ctx, to)}
	changed, old := f.unsaved()
	for k, b := range changed {
		if err := k.recorded().Write(ctx, to, b); err != nil {
			failed = append(failed, fmt.Errorf("writing the figures of runs: %w", err))
			f.mu.Lock()
			f.changed[k] = true
			f.mu.Unlock()
		}
	}
	for _, k := range old {
		if err := to.Delete(ctx, k.recorded().Key); err != nil && fault.Of(err) != fault.Missing {
			failed = append(failed, fmt.Errorf("deleting old figures of runs: %w", err))
		}
	}
	return errors.Join(failed...)
}

// unsaved copies what is to be written, and takes out what has expired.
func (f *Figures) unsaved() (changed map[figureKey]map[string]*Figure, old []figureKey) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for k := range f.buckets {
		if f.expired(k) {
			old = append(old, k)
			delete(f.buckets, k)
			delete(f.changed, k)
			delete(f.unread, k)
		}
	}
	if len(old) > 0 {
		f.rename()
	}
	changed = map[figureKey]map[string]*Figure{}
	for k := range f.changed {
		if f.behind || f.unread[k] {
			continue
		}
		delete(f.changed, k)
		changed[k] = map[string]*Figure{}
		for place, g := range f.buckets[k] {
			one := *g
			changed[k][place] = &one
		}
	}
	return changed, old
}

// rename makes room for other places: those without figures are told apart no
// more. The caller holds mu.
func (f *Figures) rename() {
	clear(f.named)
	for _, b := range f.buckets {
		for place := range b {
			if !isSum(place) {
				f.named[place] = true
			}
		}
	}
}

// expired reports whether no period shows a bucket any more. The caller holds mu.
func (f *Figures) expired(k figureKey) bool {
	for _, p := range Periods() {
		if p.Name == k.period {
			return k.start < f.now().UTC().Truncate(p.Bucket).Add(-time.Duration(p.Count)*p.Bucket).Unix()
		}
	}
	return true
}

// foundAt is the kind and the namespace of the stack of a run. If the board does not
// know the stack any more, the namespace is empty, and the kind is that of the report:
// the first kind in reports of earlier releases. It is false for a kind that is unknown.
func foundAt(b *Board, r Report) (kind, namespace string, ok bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if c := b.byUID[r.Stack]; c != nil {
		return c.key.Kind, c.key.Namespace, true
	}
	if r.ObjectKind == "" {
		return "", "", true
	}
	d := b.o.Kinds.Of(r.ObjectKind)
	return b.o.Kinds.Word(d), "", d != nil
}

// troubled counts stacks that have drifted or fail, by place and in sum; false
// before all stacks were read.
func troubled(b *Board) (map[string]Figure, bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if !b.synced {
		return nil, false
	}
	out := map[string]Figure{allNamespaces: {}}
	for _, c := range b.order {
		one := Figure{}
		if c.row.Drift != nil {
			one.Drifted = 1
		}
		if s := c.row.Status; s == StatusFailed || s == StatusLocked {
			one.Failing = 1
		}
		if one == (Figure{}) {
			continue
		}
		for _, namespace := range []string{allNamespaces, c.key.Namespace} {
			place := placeOf(c.key.Kind, namespace)
			sum := out[place]
			sum.add(one)
			out[place] = sum
		}
	}
	return out, true
}
