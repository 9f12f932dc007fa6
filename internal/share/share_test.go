package share

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// piece is a piece of work of a test.
type piece struct {
	namespace string
	number    int
}

// model gives out places as the promises of the package say, one after another, and remembers no
// more than it has to.
type model struct {
	Bounds
	fewest bool
	lines  map[string][]piece
	busy   map[string]int
	turn   map[string]int
	total  int
	turns  int
}

func drawBounds(t *rapid.T) Bounds {
	return Bounds{
		All: rapid.IntRange(0, 8).Draw(t, "all"), Most: rapid.IntRange(0, 4).Draw(t, "most"), Sure: rapid.IntRange(0, 3).Draw(t, "sure"),
		Overtake: rapid.Bool().Draw(t, "overtake"),
	}
}

func drawPiece(t *rapid.T) piece {
	return piece{rapid.SampledFrom([]string{"a", "a", "a", "b", "c", "d"}).Draw(t, "namespace"), rapid.IntRange(0, 9).Draw(t, "number")}
}

func newModel(b Bounds) *model {
	m := &model{Bounds: b, fewest: b.All > 0, lines: map[string][]piece{}, busy: map[string]int{}, turn: map[string]int{}}
	if m.All == 0 {
		m.All = 1000
	}
	if m.Most == 0 {
		m.Most = m.All
	}
	m.Most = min(m.Most, m.All)
	if m.Sure == 0 {
		m.Sure = m.Most
	}
	m.Sure = min(m.Sure, m.Most)
	return m
}

// may reports whether a namespace gets one more place that has so many, of so many in all.
func (m *model) may(has, total int) bool {
	return total < m.All && has < m.Most && (has < m.Sure || m.All-total > m.Sure)
}

func (m *model) free(namespace string) int {
	n := 0
	for m.may(m.busy[namespace]+n, m.total+n) {
		n++
	}
	return n
}

// came says that work waits.
func (m *model) came(w piece) {
	if m.busy[w.namespace] == 0 && len(m.lines[w.namespace]) == 0 {
		m.turns++
		m.turn[w.namespace] = m.turns
	}
	if !slices.Contains(m.lines[w.namespace], w) {
		m.lines[w.namespace] = append(m.lines[w.namespace], w)
	}
}

func (m *model) left(w piece) {
	m.lines[w.namespace] = slices.DeleteFunc(m.lines[w.namespace], func(other piece) bool { return other == w })
}

func (m *model) began(w piece) {
	m.left(w)
	m.turns++
	m.turn[w.namespace] = m.turns
	m.busy[w.namespace]++
	m.total++
}

func (m *model) ended(namespace string) {
	m.busy[namespace]--
	m.total--
}

// next is the work that begins next.
func (m *model) next(may func(piece) bool) (piece, bool) {
	order := slices.SortedFunc(maps.Keys(m.lines), func(a, b string) int {
		if m.fewest && m.busy[a] != m.busy[b] {
			return cmp.Compare(m.busy[a], m.busy[b])
		}
		return cmp.Compare(m.turn[a], m.turn[b])
	})
	for _, namespace := range order {
		if !m.may(m.busy[namespace], m.total) {
			continue
		}
		if at := slices.IndexFunc(m.lines[namespace], may); at >= 0 {
			return m.lines[namespace][at], true
		}
	}
	return piece{}, false
}

// mayEnter reports whether work that waits gets a place if it asks.
func (m *model) mayEnter(w piece) bool {
	at, free := slices.Index(m.lines[w.namespace], w), m.free(w.namespace)
	return at >= 0 && (at < free || m.Overtake && free > 0)
}

// compare fails unless p remembers what the model does, and no namespace that has nothing.
func (m *model) compare(t *rapid.T, p *Places[piece]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known, waits := 0, 0
	for namespace, line := range m.lines {
		var got []piece
		if of := p.of[namespace]; of != nil {
			for e := of.line.Front(); e != nil; e = e.Next() {
				got = append(got, e.Value.(waiting[piece]).key)
			}
			if of.busy != m.busy[namespace] || (of.at >= 0) != (len(line) > 0 && of.busy < m.Most) {
				t.Fatalf("%s has %d places and the rank %d, beside %d that wait; want %d places", namespace, of.busy, of.at, len(line), m.busy[namespace])
			}
		}
		if !slices.Equal(got, line) {
			t.Fatalf("in %s wait %v, want %v", namespace, got, line)
		}
		if waits += len(line); len(line) > 0 || m.busy[namespace] > 0 {
			known++
		}
	}
	for i, of := range p.ranked.all {
		if of.at != i || p.of[of.name] != of {
			t.Fatalf("the namespace %s has the rank %d, want %d", of.name, of.at, i)
		}
	}
	if len(p.of) != known || len(p.waits) != waits || p.busy != m.total {
		t.Fatalf("remembered are %d namespaces, %d that wait and %d places, want %d, %d and %d", len(p.of), len(p.waits), p.busy, known, waits, m.total)
	}
	if m.total > m.All {
		t.Fatalf("%d places are taken of %d", m.total, m.All)
	}
}

// Whatever comes, ends and is withdrawn: the work begins whose turn it is, within the bounds, and
// none stays in its line that may begin.
func TestWhatADispatcherBegins(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := drawBounds(t)
		p, m := New[piece](b), newModel(b)
		every := func(piece) bool { return true }
		next := func(may func(piece) bool) bool {
			want, is := m.next(may)
			got, ok := p.Next(may)
			if ok != is || got != want {
				t.Fatalf("Next() = %v, %t, want %v, %t", got, ok, want, is)
			}
			if ok {
				m.began(got)
			}
			return ok
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) { m.compare(t, p) },
			"comes": func(t *rapid.T) {
				w := drawPiece(t)
				p.Wait(w.namespace, w)
				m.came(w)
			},
			"begins": func(*rapid.T) { next(every) },
			"begins if it may": func(t *rapid.T) {
				odd := rapid.IntRange(0, 1).Draw(t, "odd")
				next(func(w piece) bool { return w.number%2 == odd })
			},
			"ends": func(t *rapid.T) {
				if w := drawPiece(t); m.busy[w.namespace] > 0 {
					p.End(w.namespace)
					m.ended(w.namespace)
				}
			},
			"is withdrawn": func(t *rapid.T) {
				w := drawPiece(t)
				if got, want := p.Withdraw(w), slices.Contains(m.lines[w.namespace], w); got != want {
					t.Fatalf("Withdraw() = %t, want %t", got, want)
				}
				m.left(w)
			},
			"is put behind": func(t *rapid.T) {
				w := drawPiece(t)
				p.Behind(w.namespace)
				m.turns++
				m.turn[w.namespace] = m.turns
			},
		})
		for m.total > 0 || next(every) {
			for next(every) {
			}
			for namespace, busy := range m.busy {
				for range busy {
					p.End(namespace)
					m.ended(namespace)
				}
			}
		}
		if m.compare(t, p); !p.Idle() {
			t.Fatal("at the end something is remembered")
		}
	})
}

// Workers take what is in their queue, which gives out no piece of work twice at once. Whatever
// comes, ends and is withdrawn: places are given within the bounds and in their order, as many are
// always woken as may have one, and all have theirs in the end without that any time passes.
func TestWhatWorkersEnter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := drawBounds(t)
		p, m := New[piece](b), newModel(b)
		var queue []piece
		going := map[piece]bool{}
		wanted, had := map[piece]bool{}, map[piece]bool{}
		add := func(w piece) {
			if !slices.Contains(queue, w) {
				queue = append(queue, w)
			}
		}
		wake := func(t *rapid.T, namespace string) {
			for _, w := range p.Due(namespace) {
				if !m.mayEnter(w) {
					t.Fatalf("%v is woken and gets no place", w)
				}
				add(w)
			}
		}
		work := func(t *rapid.T) {
			at := slices.IndexFunc(queue, func(w piece) bool { return !going[w] })
			if at < 0 {
				return
			}
			w := queue[at]
			queue = slices.Delete(queue, at, at+1)
			m.came(w)
			may := m.mayEnter(w)
			if ok := p.Enter(w.namespace, w); ok != may {
				t.Fatalf("Enter(%v) = %t, want %t", w, ok, may)
			}
			if may {
				m.began(w)
				going[w], had[w] = true, true
			}
		}
		end := func(t *rapid.T, w piece) {
			delete(going, w)
			p.End(w.namespace)
			m.ended(w.namespace)
			wake(t, w.namespace)
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				m.compare(t, p)
				may, woken := 0, 0
				for namespace, line := range m.lines {
					may += min(len(line), m.free(namespace))
				}
				for _, w := range queue {
					if m.mayEnter(w) {
						woken++
					}
				}
				if want := min(may, m.All-m.total); woken < want {
					t.Fatalf("%d are woken that may have a place, want %d", woken, want)
				}
			},
			"comes": func(t *rapid.T) {
				w := drawPiece(t)
				wanted[w] = true
				add(w)
				work(t)
			},
			"works": work,
			"ends": func(t *rapid.T) {
				if w := drawPiece(t); going[w] {
					end(t, w)
				}
			},
			"is withdrawn": func(t *rapid.T) {
				w := drawPiece(t)
				if !p.Withdraw(w) {
					return
				}
				m.left(w)
				queue = slices.DeleteFunc(queue, func(other piece) bool { return other == w })
				if !had[w] {
					delete(wanted, w)
				}
				wake(t, w.namespace)
			},
		})
		for len(queue)+len(going) > 0 {
			for range len(queue) {
				work(t)
			}
			for w := range going {
				end(t, w)
				break
			}
		}
		if diff := gocmp.Diff(had, wanted, gocmp.AllowUnexported(piece{})); diff != "" || !p.Idle() {
			t.Fatalf("something is remembered: %t; had a place (-got +want):\n%s", !p.Idle(), diff)
		}
	})
}

// Two namespaces with much to do, of which each may have half of the places, leave the next place
// to a third.
func TestTwoNamespacesKeepNoThirdWaiting(t *testing.T) {
	p := New[piece](Bounds{All: 4, Most: 2})
	for n := range 100 {
		p.Wait("a", piece{"a", n})
		p.Wait("b", piece{"b", n})
	}
	for range 4 {
		if _, ok := p.Next(nil); !ok {
			t.Fatal("a place stays free")
		}
	}
	late := piece{"c", 0}
	p.Wait("c", late)
	if got, ok := p.Next(nil); ok {
		t.Errorf("%v gets a fifth place", got)
	}
	p.End("a")
	if got, ok := p.Next(nil); !ok || got != late {
		t.Errorf("next is %v, %t, want %v", got, ok, late)
	}
}

// With many namespaces that wait a dispatcher has one piece of work judged for each that begins,
// and as many workers are woken as there are places.
func TestManyNamespaces(t *testing.T) {
	const namespaces, places = 10_000, 8
	p := New[piece](Bounds{All: places, Most: 4, Sure: 2})
	for n := range 2 * namespaces {
		w := piece{fmt.Sprint(n % namespaces), n / namespaces}
		p.Wait(w.namespace, w)
	}
	if got := len(p.Due("0")); got != places {
		t.Errorf("%d are woken for %d places", got, places)
	}
	judged, begun := 0, 0
	var going []string
	for p.Busy() > 0 || begun == 0 {
		for {
			w, ok := p.Next(func(piece) bool { judged++; return true })
			if !ok {
				break
			}
			if w.namespace != fmt.Sprint(begun%namespaces) {
				t.Fatalf("piece %d that begins is %v, want that namespaces take turns", begun, w)
			}
			begun++
			going = append(going, w.namespace)
		}
		p.End(going[0])
		going = going[1:]
	}
	if begun != 2*namespaces || judged != begun || !p.Idle() {
		t.Errorf("%d of %d have begun, after %d were judged; idle: %t", begun, 2*namespaces, judged, p.Idle())
	}
}

func TestAPlaceIsGivenBackOnce(t *testing.T) {
	p := New[piece](Bounds{})
	p.Enter("a", piece{"a", 0})
	p.End("a")
	defer func() {
		if recover() == nil {
			t.Error("a place is given back twice")
		}
	}()
	p.End("a")
}

// What a place costs, with so many namespaces that wait.
func BenchmarkPlaces(b *testing.B) {
	for _, namespaces := range []int{10, 10_000} {
		b.Run(fmt.Sprint(namespaces), func(b *testing.B) {
			p := New[piece](Bounds{All: 8, Most: 4})
			for n := range namespaces {
				w := piece{fmt.Sprint(n), 0}
				p.Wait(w.namespace, w)
			}
			for b.Loop() {
				w, _ := p.Next(nil)
				p.Wait(w.namespace, piece{w.namespace, w.number + 1})
				p.End(w.namespace)
			}
		})
	}
}
