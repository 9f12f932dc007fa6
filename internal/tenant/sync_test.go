package tenant

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// roll is a registry with its rows and tenants, which steps are applied to.
type roll struct {
	t    *testing.T
	k    Known
	down bool // the database

	marks map[string]*Leaving // that tenants were given last
}

func digest(r Row) string { return fmt.Sprintf("%s/%s/%v", r.HostOrURL, r.Activate, r.Extra) }

// newRoll has rows a0, a1, … all active, with their tenants of template web.
func newRoll(t *testing.T, n int) *roll {
	e := &roll{t: t, k: Known{
		Now: time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC), Registry: "ns/r", Guard: Guard{MaxPercent: 10, MaxCount: 10},
		Templates: []TemplateKnown{{Name: "web", Generation: 1, Valid: true}}, Digest: digest,
	}}
	for i := range n {
		e.k.Read.Rows = append(e.k.Read.Rows, Row{UID: fmt.Sprintf("a%d", i), Activate: "1", Active: true})
	}
	e.k.Read.Total = n
	e.step()
	if len(e.k.Tenants) != n {
		t.Fatalf("%d tenants were made, want %d", len(e.k.Tenants), n)
	}
	return e
}

// read lets time pass and reads again.
func (e *roll) read() Step {
	e.t.Helper()
	e.k.Now = e.k.Now.Add(30 * time.Second)
	return e.step()
}

// step reads and does what it leads to.
func (e *roll) step() Step {
	e.t.Helper()
	e.k.Read.OK, e.k.Read.Time = !e.down, e.k.Now
	s := Sync(e.k)
	if e.k.Read.OK || s.Blocked != nil {
		e.k.Blocked = s.Blocked
	}
	for _, n := range s.Create {
		e.k.Tenants = append(e.k.Tenants, Existing{Name: n.Name, UID: n.Row.UID, Template: n.Template, Row: digest(n.Row), Generation: n.Generation})
	}
	for _, c := range s.Change {
		x := e.tenant(c.Name)
		if c.Row != nil {
			x.Row, x.Rendered = digest(*c.Row), false
		}
		if c.Generation != 0 {
			x.Generation, x.Changed, x.Ready, x.Failed = c.Generation, e.k.Now, false, false
		}
		x.Leaving = marked(x.Leaving, c)
		if e.marks == nil {
			e.marks = map[string]*Leaving{}
		}
		e.marks[c.Name] = x.Leaving
	}
	for _, r := range s.Remove {
		e.k.Tenants = slices.DeleteFunc(e.k.Tenants, func(x Existing) bool { return x.Name == r.Name })
	}
	e.k.Departed = s.Departed
	return s
}

// marked is the mark of a tenant after a change.
func marked(before *Leaving, c Change) *Leaving {
	switch {
	case c.Stay:
		return nil
	case c.Leaving != nil:
		return c.Leaving
	}
	return before
}

func (e *roll) tenant(name string) *Existing {
	e.t.Helper()
	i := slices.IndexFunc(e.k.Tenants, func(x Existing) bool { return x.Name == name })
	if i < 0 {
		e.t.Fatalf("there is no tenant %s", name)
	}
	return &e.k.Tenants[i]
}

func (e *roll) row(uid string) *Row {
	e.t.Helper()
	i := slices.IndexFunc(e.k.Read.Rows, func(r Row) bool { return r.UID == uid })
	if i < 0 {
		e.t.Fatalf("there is no row %s", uid)
	}
	return &e.k.Read.Rows[i]
}

// deactivate does what UPDATE … SET active = 0 does to the first n rows.
func (e *roll) deactivate(n int) {
	for i := range n {
		e.k.Read.Rows[i].Active = false
	}
}

// drop does what DELETE does to the first n rows.
func (e *roll) drop(n int) {
	e.k.Read.Rows = e.k.Read.Rows[n:]
	e.k.Read.Total -= n
}

func (e *roll) wantTenants(when string, n int) {
	e.t.Helper()
	if len(e.k.Tenants) != n {
		e.t.Errorf("%s there are %d tenants, want %d", when, len(e.k.Tenants), n)
	}
}

func wantBlocked(t *testing.T, s Step, reason string) {
	t.Helper()
	switch {
	case reason == "" && s.Blocked != nil:
		t.Errorf("blocked: %+v, want nothing", s.Blocked)
	case reason != "" && (s.Blocked == nil || s.Blocked.Reason != reason):
		t.Errorf("blocked: %+v, want %s", s.Blocked, reason)
	case reason != "" && !strings.Contains(s.Blocked.Message, "terrier.dev/allow-deletions="+s.Blocked.Token):
		t.Errorf("it does not say how to let it pass: %s", s.Blocked.Message)
	}
}

func TestRowsBecomeTenants(t *testing.T) {
	e := newRoll(t, 2)
	e.k.Templates = append(e.k.Templates, TemplateKnown{Name: "db", Generation: 4, Valid: true})
	s := e.read()
	var made []string
	for _, n := range s.Create {
		made = append(made, fmt.Sprintf("%s@%d", n.Name, n.Generation))
	}
	if diff := cmp.Diff([]string{"a0-db@4", "a1-db@4"}, made); diff != "" || s.Desired != 4 {
		t.Errorf("made (-want +got):\n%s and %d are desired, want 4", diff, s.Desired)
	}
	e.row("a1").HostOrURL = "other"
	s = e.read()
	if len(s.Change) != 2 || s.Change[0].Name != "a1-db" || s.Change[0].Row == nil || s.Change[0].Generation != 0 {
		t.Errorf("one row of two changed, and these change: %+v", s.Change)
	}
	if s = e.read(); len(s.Create)+len(s.Change)+len(s.Remove) != 0 || s.Blocked != nil {
		t.Errorf("nothing changed, and this is done: %+v", s)
	}
}

// D-04: each tenant is compared with its own template.
func TestEachTemplateHasItsOwnGeneration(t *testing.T) {
	e := newRoll(t, 2)
	e.k.Templates = append(e.k.Templates, TemplateKnown{Name: "db", Generation: 7, Valid: true})
	e.read()
	e.k.Templates[1].Generation = 8
	s := e.read()
	if len(s.Change) != 2 || s.Change[0].Name != "a0-db" || s.Change[0].Generation != 8 || s.Change[1].Name != "a1-db" {
		t.Errorf("template db changed, and these change: %+v", s.Change)
	}
	if s = e.read(); len(s.Change) != 0 {
		t.Errorf("one more look changes %+v", s.Change)
	}
}

func TestAnInactiveRowTakesItsTenantAwayAtOnce(t *testing.T) {
	e := newRoll(t, 3)
	e.deactivate(1)
	s := e.read()
	wantBlocked(t, s, "")
	e.wantTenants("after one of three was deactivated", 2)
	if s.Remove[0].Reason != RowInactive {
		t.Errorf("it went because of %s", s.Remove[0].Reason)
	}
	e.deactivate(2)
	e.read()
	e.wantTenants("after the second was", 1)
	e.deactivate(3)
	wantBlocked(t, e.read(), "")
	e.wantTenants("after the last was", 0)
}

// F25: an error, whatever else is in hand, leads to nothing.
func TestAnErrorTakesNothingAway(t *testing.T) {
	e := newRoll(t, 3)
	e.down = true
	e.drop(3)
	for range 5 {
		if s := e.read(); len(s.Create)+len(s.Change)+len(s.Remove) != 0 {
			t.Fatalf("without having read, this is done: %+v", s)
		}
	}
	e.wantTenants("while the database is away", 3)
}

// D-02, F26: DELETE FROM tenants leads to nothing but words.
func TestAnEmptyReadTakesNothingAway(t *testing.T) {
	e := newRoll(t, 3)
	e.drop(3)
	for range 10 {
		s := e.read()
		wantBlocked(t, s, NoRows)
		if len(s.Change)+len(s.Remove) != 0 {
			t.Fatalf("an empty read leads to %+v", s)
		}
	}
	e.wantTenants("after an empty table", 3)
	if s := Sync(e.k); !slices.Equal(s.Blocked.Tenants, []string{"a0-web", "a1-web", "a2-web"}) {
		t.Errorf("blocked are %v", s.Blocked.Tenants)
	}
}

func TestAnEmptyReadOfOneTenantIsNoExcuse(t *testing.T) {
	e := newRoll(t, 1)
	e.drop(1)
	e.read()
	wantBlocked(t, e.read(), NoRows)
	e.wantTenants("after an empty table", 1)
}

func TestAllowEmptyStillNeedsTwoReads(t *testing.T) {
	e := newRoll(t, 30)
	e.k.Guard.AllowEmpty = true
	e.drop(30)
	wantBlocked(t, e.read(), "")
	e.wantTenants("after one empty read", 30)
	e.read()
	e.wantTenants("after two", 0)
}

func TestAnAbsentRowNeedsTwoReads(t *testing.T) {
	e := newRoll(t, 5)
	e.drop(1)
	s := e.read()
	if s.Leaving != 1 {
		t.Errorf("%d are leaving, want 1", s.Leaving)
	}
	e.wantTenants("after the first read without it", 5)
	// A pass with the rows of the same read is no second read.
	e.k.Now = e.k.Now.Add(time.Minute)
	if s := Sync(e.k); len(s.Remove) != 0 {
		t.Errorf("the same read twice takes away %v", s.Remove)
	}
	e.read()
	e.wantTenants("after the second", 4)
}

func TestARowThatComesBackKeepsItsTenant(t *testing.T) {
	e := newRoll(t, 5)
	all := slices.Clone(e.k.Read.Rows)
	e.drop(1)
	e.read()
	e.k.Read.Rows, e.k.Read.Total = all, 5
	s := e.read()
	if len(s.Change) != 1 || !s.Change[0].Stay {
		t.Errorf("its mark stays: %+v", s.Change)
	}
	e.drop(1)
	e.read()
	e.wantTenants("after being absent once, there, and absent once", 5)
}

// Each read that does not ask for a deletion ends the wait: the next one that does
// is the first one again, however much time has passed.
func TestAReadThatAsksForNoDeletionEndsTheWait(t *testing.T) {
	for name, happen := range map[string]func(e *roll){
		"the row has an error":                           func(e *roll) { e.k.Read.Errors = []RowError{{UID: "A0", Reason: RowValueUnusable}} },
		"a row has no uid":                               func(e *roll) { e.k.Read.Errors = []RowError{{Reason: RowUIDMissing}} },
		"the registry keeps the tenants of missing rows": func(e *roll) { e.k.Guard.KeepVanished = true },
	} {
		t.Run(name, func(t *testing.T) {
			e := newRoll(t, 5)
			e.k.Guard.Grace = time.Minute
			e.drop(1)
			if e.read(); e.tenant("a0-web").Leaving == nil {
				t.Fatal("its row is missing, and it has no mark")
			}
			happen(e)
			s := e.read()
			if len(s.Change) != 1 || !s.Change[0].Stay || e.tenant("a0-web").Leaving != nil {
				t.Errorf("the read changes %+v, want the end of the wait", s.Change)
			}
			if s = e.read(); len(s.Change) != 0 {
				t.Errorf("one more read changes %+v", s.Change)
			}
			e.k.Read.Errors, e.k.Guard.KeepVanished = nil, false
			e.k.Now = e.k.Now.Add(72 * time.Hour)
			e.k.Guard.MaxCount, e.k.Guard.MaxPercent = 0, 0
			wantBlocked(t, e.read(), TooManyDeletions)
			e.k.Guard.MaxCount = 1
			e.read()
			e.wantTenants("days later, after one read without the row", 5)
			e.read()
			e.wantTenants("within the new grace period", 5)
			e.read()
			e.wantTenants("after it", 4)
		})
	}
}

// A read with a row without a uid neither takes an allowance back, nor prevents one.
func TestAnAllowanceOutlivesARowWithoutAUID(t *testing.T) {
	e := newRoll(t, 5)
	e.k.Guard.Grace = time.Minute
	e.drop(1)
	e.read()
	e.k.Read.Errors = []RowError{{Reason: RowUIDMissing}}
	e.k.Now = e.k.Now.Add(30 * time.Second)
	e.k.Read.OK, e.k.Read.Time = true, e.k.Now
	e.k.Blocked = Sync(e.k).Blocked
	e.k.Allowed = e.k.Blocked.Token
	wantBlocked(t, e.step(), "")
	if l := e.tenant("a0-web").Leaving; l == nil || !l.Allowed || !l.Since.Equal(e.k.Now) {
		t.Errorf("its mark is %+v, want an allowed one since this read", l)
	}
	e.read()
	e.wantTenants("within the grace period", 5)
	e.read()
	e.wantTenants("after it", 4)
}

func TestGracePeriod(t *testing.T) {
	e := newRoll(t, 3)
	e.k.Guard.Grace = 5 * time.Minute
	e.deactivate(1)
	s := e.read()
	if s.Leaving != 1 || s.Again != 5*time.Minute || s.Desired != 2 {
		t.Errorf("%d are leaving, %d are desired, the next read is in %s", s.Leaving, s.Desired, s.Again)
	}
	since := e.k.Read.Time
	if l := s.Change[0].Leaving; !l.Due.Equal(since.Add(5*time.Minute)) || l.Message(since) != "its row is inactive since 2026-11-28T12:00:30Z; the tenant is deleted at 2026-11-28T12:05:30Z unless the row becomes active again" {
		t.Errorf("it is leaving %+v: %s", l, l.Message(since))
	}
	for range 9 {
		e.read()
	}
	e.wantTenants("before the grace period is over", 3)
	e.read()
	e.wantTenants("after it", 2)
}

func TestFlappingIsDamped(t *testing.T) {
	e := newRoll(t, 3)
	flap := func() (reads int) {
		e.row("a0").Active = false
		for reads = 1; ; reads++ {
			if e.read(); len(e.k.Tenants) == 2 {
				e.row("a0").Active = true
				e.read()
				return reads
			}
		}
	}
	var got []int
	for range 4 {
		got = append(got, flap())
	}
	if diff := cmp.Diff([]int{1, 1, 3, 5}, got); diff != "" {
		t.Errorf("reads of 30s until the tenant goes (-want +got):\n%s", diff)
	}
	if e.wantTenants("in the end", 3); len(e.k.Departed) != 1 || e.k.Departed[0].Count != 4 {
		t.Errorf("departed: %+v", e.k.Departed)
	}
	e.k.Now = e.k.Now.Add(3 * time.Hour)
	if n := flap(); n != 1 {
		t.Errorf("hours later it takes %d reads, want 1", n)
	}
}

func TestTenantsOfADeletedTemplateGo(t *testing.T) {
	e := newRoll(t, 3)
	e.k.Templates = append(e.k.Templates, TemplateKnown{Name: "db", Generation: 1, Valid: true})
	e.read()
	e.k.Templates[1].Deleting = true
	e.down = true // it is a person who wants it, not a row
	e.read()
	e.wantTenants("after one of two templates was deleted", 3)

	big := newRoll(t, 50)
	big.k.Templates[0].Deleting = true
	wantBlocked(t, big.read(), TooManyDeletions)
	big.wantTenants("after the template of many was", 50)
	big.k.Allowed = big.read().Blocked.Token
	big.read()
	big.wantTenants("after that was allowed", 0)
}

// A tenant that is being deleted does not stay, whatever its registry was resumed from.
func TestAResumedRegistryKeepsNoTenantThatIsBeingDeleted(t *testing.T) {
	for name, tt := range map[string]struct {
		happen       func(e *roll)
		stay, remove int
	}{
		"nothing is deleted":   {func(*roll) {}, 1, 0},
		"the tenant":           {func(e *roll) { e.tenant("a0-web").Deleting = true }, 0, 0},
		"its template":         {func(e *roll) { e.k.Templates[0].Deleting = true }, 0, 1},
		"its template is kept": {func(e *roll) { e.k.Templates[0].Deleting, e.k.Templates[0].Protected = true, true }, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			e := newRoll(t, 1)
			e.k.Guard.Grace = time.Hour
			e.k.Guard.AllowEmpty = true
			e.drop(1)
			if e.read(); e.tenant("a0-web").Leaving == nil {
				t.Fatal("its row is missing, and it has no mark")
			}
			e.k.From = e.k.Now.Add(time.Second)
			e.k.Read.OK = false
			tt.happen(e)
			s := Sync(e.k)
			stay := 0
			for _, c := range s.Change {
				if c.Stay {
					stay++
				}
			}
			if stay != tt.stay || len(s.Remove) != tt.remove {
				t.Errorf("%d stay and %d are removed, want %d and %d: %+v", stay, len(s.Remove), tt.stay, tt.remove, s)
			}
		})
	}
}

func TestATemplateThatIsGoneTakesNothingAway(t *testing.T) {
	e := newRoll(t, 3)
	e.k.Templates = nil
	for range 3 {
		if s := e.read(); len(s.Change)+len(s.Remove) != 0 {
			t.Fatalf("without a template: %+v", s)
		}
	}
}

func TestNamesThatAreTaken(t *testing.T) {
	e := newRoll(t, 0)
	e.k.Templates = []TemplateKnown{{Name: "b-c", Generation: 1, Valid: true}, {Name: "c", Generation: 1, Valid: true}}
	e.k.Taken = map[string]string{"z-c": "the registry other"}
	e.k.Read.Rows = []Row{{UID: "a", Active: true}, {UID: "a-b", Active: true}, {UID: "z", Active: true}}
	e.k.Read.Total = 3
	s := e.read()
	var got []string
	for _, r := range s.RowErrors {
		got = append(got, r.UID+" "+r.Reason)
	}
	if diff := cmp.Diff([]string{"a NameAmbiguous", "a-b NameAmbiguous", "z NameTaken"}, got); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
	e.wantTenants("of names that only one can have", 3) // a-c, a-b-b-c, z-b-c
}

func TestAnInvalidTemplateReachesNoTenant(t *testing.T) {
	e := newRoll(t, 2)
	e.k.Templates[0].Generation, e.k.Templates[0].Valid = 2, false
	e.k.Read.Rows = append(e.k.Read.Rows, Row{UID: "new", Active: true})
	if s := e.read(); len(s.Create)+len(s.Change) != 0 {
		t.Errorf("an invalid template leads to %+v", s)
	}
	e.k.Templates[0].Good = 1
	if s := e.read(); len(s.Create) != 1 || s.Create[0].Generation != 1 {
		t.Errorf("with an older generation at hand: %+v", s.Create)
	}
}

// Takeover: what Tenant Operator rendered is replaced together with the row, in
// place.
func TestRenderedTenantsAreTakenOver(t *testing.T) {
	e := newRoll(t, 2)
	for i := range e.k.Tenants {
		e.k.Tenants[i].Row, e.k.Tenants[i].Rendered = "", true
	}
	e.down = true
	if s := e.read(); len(s.Change) != 0 {
		t.Errorf("without its row, a tenant is changed: %+v", s.Change)
	}
	e.down = false
	s := e.read()
	if len(s.Change) != 2 || s.Change[0].Row == nil || s.Change[0].Generation != 1 || len(s.Create)+len(s.Remove) != 0 {
		t.Errorf("taking over: %+v", s)
	}
	if s = e.read(); len(s.Change) != 0 {
		t.Errorf("one more look changes %+v", s.Change)
	}
}
