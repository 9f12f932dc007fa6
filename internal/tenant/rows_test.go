package tenant

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var plainMapping = Mapping{UID: "id", Activate: "on", HostOrURL: "url", Extra: map[string]string{"plan": "tier"}}

// table is a snapshot with the columns of plainMapping.
func table(rows ...[4]string) Snapshot {
	s := Snapshot{Columns: plainMapping.Columns()} // id, on, tier, url
	for _, r := range rows {
		var cells []Cell
		for _, text := range r {
			cells = append(cells, Cell{Text: text, Null: text == "NULL"})
		}
		for i := range cells {
			if cells[i].Null {
				cells[i].Text = ""
			}
		}
		s.Rows = append(s.Rows, cells)
	}
	return s
}

func TestColumnsMeanWhatTheMappingSays(t *testing.T) {
	rows, errs := Rows(plainMapping, table([4]string{"b", "0", "gold", "NULL"}, [4]string{"a", "yes", "NULL", "https://a.example.com"}))
	want := []Row{
		{UID: "a", HostOrURL: "https://a.example.com", Activate: "yes", Active: true, Extra: map[string]string{"plan": ""}},
		{UID: "b", Activate: "0", Extra: map[string]string{"plan": "gold"}},
	}
	if diff := cmp.Diff(want, rows); diff != "" || len(errs) != 0 {
		t.Errorf("Rows() differs (-want +got):\n%s%v", diff, errs)
	}
}

func TestTruthIsExactlySevenTexts(t *testing.T) {
	for _, yes := range []string{"1", "true", "TRUE", "True", "yes", "YES", "Yes"} {
		if !(Mapping{}).active(Cell{Text: yes}) {
			t.Errorf("%q is not taken for yes", yes)
		}
	}
	for _, no := range []string{"", "0", "tRUE", "on", "y", "t", "active", " 1", "1 ", "\x01", "no", "2"} {
		if (Mapping{}).active(Cell{Text: no}) {
			t.Errorf("%q is taken for yes", no)
		}
	}
	if (Mapping{ActiveValues: []string{""}}).active(Cell{Null: true}) {
		t.Error("NULL is taken for yes")
	}
	own := Mapping{ActiveValues: []string{"live"}}
	if !own.active(Cell{Text: "live"}) || own.active(Cell{Text: "1"}) {
		t.Error("activeValues does not replace the seven texts")
	}
}

func TestRowsThatNoTenantCanBeMadeOf(t *testing.T) {
	long := strings.Repeat("a", 64)
	for rule, c := range map[string]struct {
		rows [][4]string
		want []string // uid and reason
	}{
		"no uid":                             {[][4]string{{"NULL", "1", "", "h"}, {"", "1", "", "h"}}, []string{" UIDMissing", " UIDMissing"}},
		"a uid that is no name":              {[][4]string{{"A b", "1", "", "h"}}, []string{"A b UIDInvalid"}},
		"an underscore":                      {[][4]string{{"a_b", "1", "", "h"}}, []string{"a_b UIDInvalid"}},
		"a dash at the end":                  {[][4]string{{"a-", "1", "", "h"}}, []string{"a- UIDInvalid"}},
		"a dot at the end":                   {[][4]string{{"a.", "1", "", "h"}}, []string{"a. UIDInvalid"}},
		"a space before it":                  {[][4]string{{" a", "1", "", "h"}}, []string{" a UIDInvalid"}},
		"longer than a label":                {[][4]string{{long, "1", "", "h"}}, []string{long + " UIDTooLong"}},
		"twice the same":                     {[][4]string{{"a", "1", "", "h"}, {"a", "0", "", "h"}, {"b", "1", "", "h"}}, []string{"a UIDDuplicate"}},
		"twice but for the case":             {[][4]string{{"a", "1", "", "h"}, {"A", "1", "", "h"}}, []string{"A UIDsAlike", "a UIDsAlike"}},
		"active and without its host":        {[][4]string{{"a", "1", "", "NULL"}}, []string{"a HostOrURLEmpty"}},
		"inactive and without a host is one": {[][4]string{{"a", "0", "", "NULL"}}, nil},
	} {
		t.Run(rule, func(t *testing.T) {
			rows, errs := Rows(plainMapping, table(c.rows...))
			var got []string
			for _, e := range errs {
				got = append(got, e.UID+" "+e.Reason)
				for _, r := range rows {
					if r.UID == e.UID {
						t.Errorf("%q has an error and is used", r.UID)
					}
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("errors differ (-want +got):\n%s", diff)
			}
		})
	}
}

// An invalid value makes its own row invalid. Where it is the uid, the tenant of the
// row is unknown.
func TestAValueThatCannotBeUsedSpoilsItsRowOnly(t *testing.T) {
	m := Mapping{UID: "id", Activate: "on", Extra: map[string]string{"note": "note"}}
	rows, errs := Rows(m, Snapshot{Columns: []string{"id", "note", "on"}, Rows: [][]Cell{
		{{Text: "a"}, {Text: "x"}, {Text: "1"}},
		{{Text: "b"}, {Bad: "holds 3 GiB"}, {Text: "0"}},
		{{Bad: "holds bytes"}, {Text: "x"}, {Text: "1"}},
	}})
	if len(rows) != 1 || rows[0].UID != "a" {
		t.Errorf("rows = %+v, want a alone", rows)
	}
	var got []string
	for _, e := range errs {
		got = append(got, e.UID+" "+e.Reason)
	}
	if diff := cmp.Diff([]string{" UIDMissing", "b ValueUnusable"}, got); diff != "" {
		t.Errorf("errors differ (-want +got):\n%s", diff)
	}
}

func TestOnlyRequestedHostsAreNeeded(t *testing.T) {
	m := Mapping{UID: "id", Activate: "on"}
	rows, errs := Rows(m, Snapshot{Columns: []string{"id", "on"}, Rows: [][]Cell{{{Text: "a"}, {Text: "1"}}}})
	if len(rows) != 1 || len(errs) != 0 {
		t.Errorf("Rows() = %v, %v, want one row", rows, errs)
	}
}

// What comes out of any table can be a part of names, and is there once.
func TestRowsAreUsable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		uid := rapid.OneOf(rapid.StringMatching(`[a-cA-C]{0,2}[-._ ]?[a-c]?`), rapid.String())
		var in [][4]string
		for range rapid.IntRange(0, 12).Draw(t, "rows") {
			in = append(in, [4]string{uid.Draw(t, "uid"), rapid.SampledFrom([]string{"1", "0", "NULL", "x"}).Draw(t, "on"), "t", rapid.SampledFrom([]string{"h", ""}).Draw(t, "url")})
		}
		rows, errs := Rows(plainMapping, table(in...))
		seen := map[string]bool{}
		for _, r := range rows {
			if seen[strings.ToLower(r.UID)] || !isName(r.UID) || len(r.UID) > 63 {
				t.Fatalf("row %q must not be used", r.UID)
			}
			seen[strings.ToLower(r.UID)] = true
		}
		for _, e := range errs {
			if e.Reason == "" || e.Message == "" {
				t.Fatalf("an error that says nothing: %+v", e)
			}
		}
		again, _ := Rows(plainMapping, table(in...))
		if diff := cmp.Diff(rows, again); diff != "" {
			t.Fatalf("not the same twice:\n%s", diff)
		}
	})
}
