package tenant

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// history is what a table went through, and what tenants it has left.
type history struct {
	k     Known
	rows  map[string]Row
	lost  map[string]Row       // the deleted ones
	since map[string]time.Time // the first of the latest reads, all of which ask for the deletion
}

func newHistory(k Known) *history {
	return &history{k: k, rows: map[string]Row{}, lost: map[string]Row{}, since: map[string]time.Time{}}
}

// Whatever a table goes through, a tenant goes only for a reason that was read,
// and never with more others than the guard says.
func TestNothingGoesWithoutAReason(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(Known{
			Now: time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC), Registry: "ns/r", Digest: digest,
			Guard: Guard{
				MaxPercent: rapid.IntRange(0, 60).Draw(t, "percent"), MaxCount: rapid.IntRange(0, 4).Draw(t, "count"),
				Grace: rapid.SampledFrom([]time.Duration{0, 0, time.Minute}).Draw(t, "grace"),
			},
			Templates: []TemplateKnown{{Name: "web", Generation: 1, Valid: true}, {Name: "db", Generation: 1, Valid: true}},
		})
		for i := range rapid.IntRange(1, 14).Draw(t, "rows at first") {
			uid := fmt.Sprintf("u%02d", i)
			h.rows[uid] = Row{UID: uid, Activate: "1", Active: true}
		}
		for range rapid.IntRange(1, 12).Draw(t, "reads") {
			h.happen(t)
			h.look(t)
		}
	})
}

// happen changes the table.
func (h *history) happen(t *rapid.T) {
	share := rapid.SampledFrom([]int{0, 0, 10, 50, 100}).Draw(t, "share")
	what := rapid.SampledFrom([]string{"delete", "return", "deactivate", "activate", "edit"}).Draw(t, "what")
	if what == "return" {
		for _, uid := range sortedKeys(h.lost) {
			if rapid.IntRange(0, 99).Draw(t, "row") < share {
				h.rows[uid] = h.lost[uid]
				delete(h.lost, uid)
			}
		}
		return
	}
	for _, uid := range sortedKeys(h.rows) {
		r := h.rows[uid]
		if rapid.IntRange(0, 99).Draw(t, "row") >= share {
			continue
		}
		switch what {
		case "delete":
			h.lost[uid] = r
			delete(h.rows, uid)
			continue
		case "deactivate":
			r.Active = false
		case "activate":
			r.Active = true
		case "edit":
			r.HostOrURL += "x"
		}
		h.rows[uid] = r
	}
}

// look reads, decides, judges the decision and does it.
func (h *history) look(t *rapid.T) {
	h.k.Now = h.k.Now.Add(30 * time.Second)
	h.k.Read = Read{OK: rapid.IntRange(0, 4).Draw(t, "database") > 0, Time: h.k.Now, Total: len(h.rows)}
	h.k.Guard.KeepVanished = rapid.IntRange(0, 9).Draw(t, "keep") == 0
	unreadable := map[string]bool{}
	errors := rapid.SampledFrom([]int{0, 5, 50}).Draw(t, "errors")
	anonymous := rapid.IntRange(0, 4).Draw(t, "uid") == 0
	for _, uid := range sortedKeys(h.rows) {
		if rapid.IntRange(0, 99).Draw(t, "error") < errors {
			unreadable[uid] = true
			e := RowError{UID: uid, Reason: RowUIDDuplicate}
			if anonymous {
				e = RowError{Reason: RowUIDMissing}
			}
			h.k.Read.Errors = append(h.k.Read.Errors, e)
			continue
		}
		h.k.Read.Rows = append(h.k.Read.Rows, h.rows[uid])
	}
	h.understand(unreadable, anonymous && len(unreadable) > 0)
	s := Sync(h.k)
	h.judge(t, s, unreadable)
	h.sameInAnyOrder(t, s)
	h.do(s)
}

// understand notes since when each read asks for the deletion of a row's tenants. A
// read that does not, or that is uncertain, is a new start.
func (h *history) understand(unreadable map[string]bool, uncertain bool) {
	if !h.k.Read.OK {
		return
	}
	for _, uid := range slices.Concat(sortedKeys(h.rows), sortedKeys(h.lost)) {
		row, there := h.rows[uid]
		switch _, asked := h.since[uid]; {
		case unreadable[uid], there && row.Active, !there && (uncertain || h.k.Guard.KeepVanished):
			delete(h.since, uid)
		case !asked:
			h.since[uid] = h.k.Now
		}
	}
}

func (h *history) judge(t *rapid.T, s Step, unreadable map[string]bool) {
	gone := map[string]bool{}
	for _, r := range s.Remove {
		e := h.k.Tenants[slices.IndexFunc(h.k.Tenants, func(e Existing) bool { return e.Name == r.Name })]
		row, there := h.rows[e.UID]
		since, asked := h.since[e.UID]
		switch {
		case !h.k.Read.OK:
			t.Fatalf("%s goes although nothing was read", r.Name)
		case unreadable[e.UID], there && row.Active:
			t.Fatalf("%s goes although its row is there", r.Name)
		case !there && h.k.Guard.KeepVanished:
			t.Fatalf("%s goes although vanished rows keep", r.Name)
		case !there && h.k.Read.Total == 0:
			t.Fatalf("%s goes although no row was read at all", r.Name)
		case !asked || h.k.Now.Sub(since) < h.k.Guard.Grace:
			t.Fatalf("%s goes although not all reads of the grace period ask for that", r.Name)
		case !there && since.Equal(h.k.Now):
			t.Fatalf("%s goes at the first read without its row", r.Name)
		}
		if e.Leaving == nil {
			gone[e.UID] = true
		}
	}
	total := map[string]bool{}
	for _, e := range h.k.Tenants {
		total[e.UID] = true
	}
	if n := len(gone); n > h.k.Guard.MaxCount && 100*n > h.k.Guard.MaxPercent*len(total) {
		t.Fatalf("%d of %d go at once: %+v", n, len(total), h.k.Guard)
	}
	if len(total) > 1 && len(gone) == len(total) {
		t.Fatalf("all %d go at once", len(total))
	}
}

// sameInAnyOrder: a decision depends on what is known, not on its order.
func (h *history) sameInAnyOrder(t *rapid.T, want Step) {
	other := h.k
	other.Tenants, other.Templates = slices.Clone(h.k.Tenants), slices.Clone(h.k.Templates)
	slices.Reverse(other.Tenants)
	slices.Reverse(other.Templates)
	if diff := cmp.Diff(want, Sync(other), cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("in another order it is another decision:\n%s", diff)
	}
}

func (h *history) do(s Step) {
	for _, n := range s.Create {
		h.k.Tenants = append(h.k.Tenants, Existing{Name: n.Name, UID: n.Row.UID, Template: n.Template, Row: digest(n.Row), Generation: n.Generation})
	}
	for _, c := range s.Change {
		e := &h.k.Tenants[slices.IndexFunc(h.k.Tenants, func(e Existing) bool { return e.Name == c.Name })]
		if c.Row != nil {
			e.Row = digest(*c.Row)
		}
		e.Leaving = marked(e.Leaving, c)
	}
	for _, r := range s.Remove {
		h.k.Tenants = slices.DeleteFunc(h.k.Tenants, func(e Existing) bool { return e.Name == r.Name })
	}
	h.k.Departed = s.Departed
}

func sortedKeys(m map[string]Row) []string {
	var all []string
	for k := range m {
		all = append(all, k)
	}
	slices.Sort(all)
	return all
}

// A table that does not change settles: each active row has its tenants, and nothing
// more is done.
func TestStepsSettle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := Known{Now: time.Unix(0, 0), Registry: "ns/r", Digest: digest, Guard: Guard{MaxPercent: 100, MaxCount: 100},
			Templates: []TemplateKnown{{Name: "web", Generation: 1, Valid: true}}}
		h := newHistory(k)
		for i := range rapid.IntRange(0, 8).Draw(t, "rows") {
			uid := fmt.Sprintf("u%d", i)
			h.rows[uid] = Row{UID: uid, Active: rapid.Bool().Draw(t, "active")}
		}
		active := 0
		for _, uid := range sortedKeys(h.rows) {
			h.k.Read.Rows = append(h.k.Read.Rows, h.rows[uid])
			if h.rows[uid].Active {
				active++
			}
		}
		h.k.Read.OK, h.k.Read.Total = true, len(h.rows)
		h.do(Sync(h.k))
		s := Sync(h.k)
		if len(h.k.Tenants) != active || len(s.Create)+len(s.Change)+len(s.Remove) != 0 || s.Desired != active {
			t.Fatalf("%d active rows have %d tenants, and this is left to do: %+v", active, len(h.k.Tenants), s)
		}
	})
}
