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
