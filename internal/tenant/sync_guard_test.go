package tenant

import (
	"slices"
	"testing"
	"time"
)

func TestMoreThanTheGuardLetsPassIsStoppedAsAWhole(t *testing.T) {
	for rule, c := range map[string]struct {
		tenants, gone int
		absent        bool
		want          string
	}{
		"few of many":                      {200, 11, false, ""},
		"as many as may go":                {50, 10, false, ""},
		"one more":                         {50, 11, false, TooManyDeletions},
		"many of them, but not many":       {20, 10, false, ""},
		"all of two":                       {2, 2, false, EveryTenant},
		"all of one":                       {1, 1, false, ""},
		"all of many":                      {50, 50, false, EveryTenant},
		"one more that is absent":          {50, 11, true, TooManyDeletions},
		"nine of ten that are absent":      {10, 9, true, ""},
		"nine hundred of a thousand":       {1000, 900, false, TooManyDeletions},
		"nine hundred that are not there":  {1000, 900, true, TooManyDeletions},
		"exactly the share of a thousand":  {1000, 100, false, ""},
		"one above the share of thousands": {1000, 101, false, TooManyDeletions},
	} {
		t.Run(rule, func(t *testing.T) {
			e := newRoll(t, c.tenants)
			if c.absent {
				e.drop(c.gone)
			} else {
				e.deactivate(c.gone)
			}
			wantBlocked(t, e.read(), c.want)
			e.read()
			if c.want != "" {
				c.gone = 0
			}
			e.wantTenants("afterwards", c.tenants-c.gone)
		})
	}
}

func TestTheTokenLetsExactlyItsSetPass(t *testing.T) {
	for _, absent := range []bool{false, true} {
		e := newRoll(t, 50)
		if absent {
			e.drop(20)
		} else {
			e.deactivate(20)
		}
		s := e.read()
		e.k.Allowed = s.Blocked.Token
		rows := slices.Clone(e.k.Read.Rows)
		if absent {
			e.drop(1)
		} else {
			e.deactivate(21)
		}
		wantBlocked(t, e.read(), TooManyDeletions)
		e.wantTenants("with the token of a smaller set", 50)
		e.k.Read.Rows = rows
		if !absent {
			e.k.Read.Rows[20].Active = true
		}
		s = e.read()
		wantBlocked(t, s, TooManyDeletions)
		e.wantTenants("with the token of this set, which another one has replaced since", 50)
		e.k.Allowed = s.Blocked.Token
		wantBlocked(t, e.read(), "")
		e.wantTenants("with the token of this set", 30)
	}
}

func TestTheTokenOfAnEmptyTable(t *testing.T) {
	e := newRoll(t, 3)
	e.k.Guard.Grace = time.Minute
	e.drop(3)
	e.k.Allowed = e.read().Blocked.Token
	wantBlocked(t, e.read(), "")
	e.wantTenants("within the grace period", 3)
	e.read()
	wantBlocked(t, e.read(), "")
	e.wantTenants("after it", 0)
}

// A permission is for once. The annotation stays, and the rows that came back within the
// grace period are gone, or inactive, another day: no user has allowed that.
func TestAPermissionIsForOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		tenants int
		gone    func(*roll)
		want    string
	}{
		"many inactive rows": {50, func(e *roll) { e.deactivate(20) }, TooManyDeletions},
		"many missing rows":  {50, func(e *roll) { e.drop(20) }, TooManyDeletions},
		"no row at all":      {5, func(e *roll) { e.drop(5) }, NoRows},
		"all rows inactive":  {5, func(e *roll) { e.deactivate(5) }, EveryTenant},
	} {
		t.Run(name, func(t *testing.T) {
			e := newRoll(t, tt.tenants)
			e.k.Guard.Grace = 5 * time.Minute
			rows := slices.Clone(e.k.Read.Rows)
			tt.gone(e)
			wantBlocked(t, e.read(), tt.want)
			again := e.read()
			wantBlocked(t, again, tt.want)
			e.k.Allowed = again.Blocked.Token
			wantBlocked(t, e.read(), "")
			e.k.Read.Rows, e.k.Read.Total = slices.Clone(rows), len(rows)
			wantBlocked(t, e.read(), "")
			e.k.Now = e.k.Now.Add(24 * time.Hour)
			tt.gone(e)
			for range 20 {
				wantBlocked(t, e.read(), tt.want)
			}
			e.wantTenants("with yesterday's permission", tt.tenants)
		})
	}
}

// A token is of no use before its deletions were reported as blocked: nothing would be on
// record of them.
func TestOnlyWhatWasReportedIsAllowed(t *testing.T) {
	e := newRoll(t, 50)
	e.deactivate(20)
	e.k.Now = e.k.Now.Add(30 * time.Second)
	e.k.Read.OK, e.k.Read.Time = true, e.k.Now
	e.k.Allowed = Sync(e.k).Blocked.Token
	wantBlocked(t, e.step(), TooManyDeletions)
	wantBlocked(t, e.step(), "")
	e.wantTenants("once that was reported", 30)
}

// A deletion that the API server refuses, or that a controller was killed before, is
// still allowed.
func TestAnAllowedDeletionThatIsNotDone(t *testing.T) {
	for name, gone := range map[string]func(*roll){
		"inactive rows":        func(e *roll) { e.deactivate(20) },
		"missing rows":         func(e *roll) { e.drop(20) },
		"missing rows, before": func(e *roll) { e.drop(5); e.read(); e.drop(45) },
		"a deleted template":   func(e *roll) { e.k.Templates[0].Deleting = true },
	} {
		t.Run(name, func(t *testing.T) {
			e := newRoll(t, 50)
			gone(e)
			e.k.Allowed = e.read().Blocked.Token
			before := slices.Clone(e.k.Tenants)
			if e.read(); len(e.k.Tenants) == len(before) {
				e.read() // a missing row needs two reads
			}
			want := len(e.k.Tenants)
			for i := range before {
				kept := slices.ContainsFunc(e.k.Tenants, func(x Existing) bool { return x.Name == before[i].Name })
				if !kept {
					before[i].Leaving = e.marks[before[i].Name]
				}
			}
			e.k.Tenants = before
			wantBlocked(t, e.read(), "")
			e.wantTenants("at the next attempt", want)
		})
	}
}

// The annotation stays. Tenants that were created again since are others, although
// they have the same names.
func TestATokenIsOfNoUseForTenantsMadeAgain(t *testing.T) {
	e := newRoll(t, 3)
	e.deactivate(3)
	e.k.Allowed = e.read().Blocked.Token
	wantBlocked(t, e.read(), "")
	e.wantTenants("with the token", 0)
	for i := range e.k.Read.Rows {
		e.k.Read.Rows[i].Active = true
	}
	e.read()
	e.wantTenants("once the rows are active again", 3)
	for i := range e.k.Tenants {
		e.k.Tenants[i].ID += "-again"
	}
	e.deactivate(3)
	wantBlocked(t, e.read(), EveryTenant)
	e.wantTenants("with yesterday's token", 3)
}

// F28: a row that is not understood keeps its tenants, even those that differ
// from it in case.
func TestRowsWithErrorsChangeNothing(t *testing.T) {
	e := newRoll(t, 3)
	e.k.Read.Rows = e.k.Read.Rows[2:]
	e.k.Read.Errors = []RowError{{UID: "a0", Reason: RowUIDDuplicate}, {UID: "A1 ", Reason: RowUIDInvalid}}
	for range 3 {
		if s := e.read(); len(s.Change)+len(s.Remove) != 0 || s.Blocked != nil || len(s.RowErrors) != 2 {
			t.Fatalf("rows with errors lead to %+v", s)
		}
	}
	e.wantTenants("with errors in their rows", 3)
}

func TestRowsWithoutAUIDMakeAbsenceUncertain(t *testing.T) {
	e := newRoll(t, 5)
	e.drop(1)
	e.k.Read.Total++
	e.k.Read.Errors = []RowError{{Reason: RowUIDMissing}}
	e.deactivate(1)
	wantBlocked(t, e.read(), RowsUnidentified)
	wantBlocked(t, e.read(), RowsUnidentified)
	e.wantTenants("though an inactive row is certain", 4)
}

// F29: a high-water mark that went back is an older copy.
func TestAnOlderCopyChangesNothing(t *testing.T) {
	e := newRoll(t, 3)
	e.deactivate(1)
	e.k.Read.Mark, e.k.Read.LastMark = "2026-11-28 10:00:00", "2026-11-28 10:00:01"
	s := e.read()
	if s.Ignored == "" || len(s.Remove)+len(s.Create)+len(s.Change) != 0 {
		t.Errorf("an older copy leads to %+v", s)
	}
	e.k.Read.Mark = "2026-11-28 10:00:01"
	if s = e.read(); s.Ignored != "" || len(s.Remove) != 1 {
		t.Errorf("a copy as new leads to %+v", s)
	}
}

func TestHighWaterMarksCompare(t *testing.T) {
	for _, c := range [][2]string{
		{"9", "10"}, {"1.5", "1.25e1"}, {"2026-11-28 10:00:00", "2026-11-28 10:00:00.5"}, {"2026-11-28T10:00:00Z", "2026-11-28T10:00:00.1Z"},
		{"2026-11-28T12:00:00+02:00", "2026-11-28T10:30:00Z"}, {"", "1"}, {"a", "b"}, {"2026-11-28 10:00:00+00", "2026-11-28 10:00:00.1+00"},
	} {
		if !older(c[0], c[1]) || older(c[1], c[0]) || older(c[0], c[0]) {
			t.Errorf("%q is not less than %q", c[0], c[1])
		}
	}
}

func TestVanishedRowsKeep(t *testing.T) {
	e := newRoll(t, 5)
	e.k.Guard.KeepVanished = true
	e.drop(2)
	e.read()
	s := e.read()
	if !slices.Equal(s.Kept, []string{"a0-web", "a1-web"}) || s.Blocked != nil {
		t.Errorf("kept are %v, blocked is %+v", s.Kept, s.Blocked)
	}
	e.wantTenants("with vanishedRows: Keep", 5)
}

// S7.
func TestProtectedTenantsStay(t *testing.T) {
	e := newRoll(t, 3)
	e.tenant("a0-web").Protected = true
	e.deactivate(2)
	s := e.read()
	if !slices.Equal(s.Protected, []string{"a0-web"}) {
		t.Errorf("protected are %v", s.Protected)
	}
	e.wantTenants("with one protected", 2)
	e.k.Templates[0].Protected = true
	e.deactivate(3)
	e.read()
	e.wantTenants("with a protected template", 2)
}

// F28: the tenants of a flapping row are deleted more slowly each time.
