package query

import (
	"cmp"
	"container/list"
	"crypto/rand"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
)

// All returns every row, by namespace and name; false before all stacks were
// read. The rows are the board's own, and never change.
func (b *Board) All() ([]*Row, bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if !b.synced {
		return nil, false
	}
	rows := make([]*Row, len(b.order))
	for i, e := range b.order {
		rows[i] = e.row
	}
	return rows, true
}

// Board is all stacks as they are now, set by the watcher of the cluster. It answers
// for thousands of stacks without asking the cluster: it keeps a row of each,
// and not the objects. Its rows are shared, so that readers may not change them.
type Board struct {
	o    BoardOptions
	boot string // begins every cursor: what this board says of time is its own

	mu     sync.RWMutex
	synced bool
	full   chan struct{} // closed when synced
	seq    uint64        // of the last change
	floor  uint64        // of the last change that was forgotten
	rows   map[Key]*card
	byUID  map[string]*card
	order  []*card       // those that are there, by key
	recent list.List     // of them, the one that changed last at the end
	gone   list.List     // of those that are gone, likewise
	ghosts map[Key]*card // the same by key
	news   chan struct{} // closed at the next change
}

// BoardOptions are what a Board is made of.
type BoardOptions struct {
	Kinds       Kinds  // of the stacks
	TenantLabel string // whose value is the tenant of a stack; its namespace if empty or not set
	Now         func() time.Time
	Uses        UsesIndex // hears what each stack uses; nil if nothing asks
}

// UsesIndex hears of the record of modules and providers of each stack, by the digest that its
// status has.
type UsesIndex interface {
	Note(key Key, uid, digest string)
	Drop(Key)
	Synced() // all stacks that there are were noted
}

// ghostsKept is how many stacks that are gone are remembered, for those who ask
// what changed.
const ghostsKept = 4096

// ghostsTold is for how long a reader is told what a stack was that is gone. It is enough for
// readers who lost their connection. A namespace that is created again under its name may have
// other users, who may choose any cursor.
const ghostsTold = 30 * time.Second

// card is what is kept of one stack.
type card struct {
	key     Key
	row     *Row // never changed, only replaced
	rank    int  // of its status
	search  string
	since   int64 // when it got its status, to order by; 0 if it never did
	applied int64 // likewise
	ties    ties
	every   time.Duration // between two checks; 0 if there are none
	took    time.Duration // of one check, lately; 0 if unknown

	seq  uint64
	at   time.Time
	mark *list.Element // in recent, or in gone
}

// NewBoard returns a Board that knows of no stack yet.
func NewBoard(o BoardOptions) *Board {
	return &Board{
		o: o, boot: strings.ToLower(rand.Text()[:10]),
		rows: map[Key]*card{}, byUID: map[string]*card{}, ghosts: map[Key]*card{}, full: make(chan struct{}), news: make(chan struct{}),
	}
}

// errNotReady is what is answered before all stacks were read once: a board
// that is half full must not look like one that has few stacks.
var errNotReady = fault.Wait(time.Second, "NotReady", errors.New("the stacks are still being read; ask again in a moment"))

// Synced says that all stacks that there are were set.
func (b *Board) Synced() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.synced {
		b.synced = true
		if b.o.Uses != nil {
			b.o.Uses.Synced()
		}
		close(b.full)
	}
}

// Full is closed once the board answers.
func (b *Board) Full() <-chan struct{} { return b.full }

// Set takes in a stack that is there or changed. The object must not be changed
// afterwards.
func (b *Board) Set(object client.Object) {
	o := ReadObject(b.o.Kinds, object)
	row := rowOf(View(o), b.o.TenantLabel)
	row.Rule, row.Phase, row.Reason = shared(row.Rule), shared(row.Phase), shared(row.Reason)
	e := &card{
		key: row.Key(), row: &row, rank: row.Status.rank(), search: searchText(&row), since: stamp(row.StatusSince()), applied: stamp(row.AppliedAt),
		ties: tiesOf(b.o.Kinds, o), every: checksEvery(row, o.Spec),
	}

	if b.o.Uses != nil {
		b.o.Uses.Note(e.key, row.UID, o.Status.Uses)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.rows[e.key]
	if old == nil {
		b.add(e)
		return
	}
	if old.row.UID != row.UID {
		delete(b.byUID, old.row.UID)
		b.byUID[row.UID] = old
		old.took = 0
	}
	old.ties, old.every = e.ties, e.every
	if reflect.DeepEqual(old.row, e.row) {
		return
	}
	old.row, old.rank, old.search, old.since, old.applied = e.row, e.rank, e.search, e.since, e.applied
	b.recent.MoveToBack(old.mark)
	b.changed(old)
}

// stamp is a time that thousands of rows are ordered by.
func stamp(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// vocabulary are the texts of ours that thousands of rows have in common.
var vocabulary = func() map[string]string {
	v := map[string]string{}
	for _, rule := range stack.Rules() {
		v[rule] = rule
	}
	for reason := range statuses {
		v[string(reason)] = string(reason)
	}
	return v
}()

// shared is s, without a copy of its own if it is one of ours.
func shared(s string) string {
	if ours, ok := vocabulary[s]; ok {
		return ours
	}
	return s
}

func (b *Board) add(e *card) {
	if ghost := b.ghosts[e.key]; ghost != nil {
		b.forget(ghost)
	}
	b.rows[e.key], b.byUID[e.row.UID] = e, e
	i, _ := b.find(e.key)
	for _, beside := range b.order[max(0, i-1):min(i+1, len(b.order))] {
		if beside.key.Namespace == e.key.Namespace {
			e.key.Namespace = beside.key.Namespace // two of one text need not be compared to be known as the same
		}
	}
	b.order = slices.Insert(b.order, i, e)
	e.mark = b.recent.PushBack(e)
	b.changed(e)
}

// Drop takes out a stack that is gone.
func (b *Board) Drop(key Key) {
	if b.o.Uses != nil {
		b.o.Uses.Drop(key)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.rows[key]
	if e == nil {
		return
	}
	delete(b.rows, key)
	delete(b.byUID, e.row.UID)
	i, _ := b.find(key)
	b.order = slices.Delete(b.order, i, i+1)
	b.recent.Remove(e.mark)
	e.ties, e.search = ties{}, ""
	e.mark, b.ghosts[key] = b.gone.PushBack(e), e
	b.changed(e)
	if b.gone.Len() > ghostsKept {
		oldest := b.gone.Front().Value.(*card)
		b.floor = oldest.seq
		b.forget(oldest)
	}
}

// forget drops what is known of a stack that is gone.
func (b *Board) forget(ghost *card) {
	b.gone.Remove(ghost.mark)
	delete(b.ghosts, ghost.key)
}

// changed gives the change of e its number and wakes those who wait for one.
func (b *Board) changed(e *card) {
	b.seq++
	e.seq, e.at = b.seq, b.o.Now()
	close(b.news)
	b.news = make(chan struct{})
}

// find returns where key is, or would be, among those that are there.
func (b *Board) find(key Key) (int, bool) {
	return slices.BinarySearchFunc(b.order, key, func(e *card, k Key) int { return compareKeys(e.key, k) })
}

func compareKeys(a, b Key) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), strings.Compare(a.Kind, b.Kind))
}

// Get returns one row.
func (b *Board) Get(key Key) (Row, bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if e := b.rows[key]; e != nil {
		return *e.row, true
	}
	return Row{}, false
}

// Namespaces lists the namespaces that hold stacks, sorted.
func (b *Board) Namespaces() []string { return namespaces(b, func(Key) bool { return true }) }

// NamespacesOf returns a function that lists those that hold stacks of a kind.
func NamespacesOf(b *Board, kind string) func() []string {
	return func() []string { return namespaces(b, func(k Key) bool { return k.Kind == kind }) }
}

func namespaces(b *Board, counts func(Key) bool) []string {
	b.mu.RLock()
	defer b.mu.RUnlock()
	var out []string
	for _, e := range b.order {
		if n := len(out); counts(e.key) && (n == 0 || out[n-1] != e.key.Namespace) {
			out = append(out, e.key.Namespace)
		}
	}
	return out
}

// Len is how many stacks there are.
func (b *Board) Len() int {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return len(b.order)
}
