package tenant

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/plural"
)

// RowError is a problem with a row. A row with an error changes nothing: the
// tenants of its uid are neither created nor changed nor deleted.
type RowError struct {
	UID     string // as it is in the row; empty if it has none
	Reason  string
	Message string
	Next    time.Time // the next attempt at a refused write; zero if there is none
}

func (e RowError) Error() string { return e.Message }

// Reasons of row errors.
const (
	RowUIDMissing     = "UIDMissing"
	RowUIDInvalid     = "UIDInvalid"
	RowUIDTooLong     = "UIDTooLong"
	RowUIDDuplicate   = "UIDDuplicate"
	RowUIDsAlike      = "UIDsAlike"
	RowHostEmpty      = "HostOrURLEmpty"
	RowValueUnusable  = "ValueUnusable"
	RowColumnMissing  = "ColumnMissing"
	RowNameTooLong    = "NameTooLong"
	RowNameTaken      = "NameTaken"
	RowTenantConflict = "NameAmbiguous"
)

// longestUID is the longest value of a label, such as kubernetes-tenants.org/uid.
const longestUID = 63

// operatorTruths are the values that Tenant Operator takes for true.
var operatorTruths = []string{"1", "true", "TRUE", "True", "yes", "YES", "Yes"}

// Columns are the columns of m, each once, in order.
func (m Mapping) Columns() []string {
	all := []string{m.UID, m.Activate}
	if m.HostOrURL != "" {
		all = append(all, m.HostOrURL)
	}
	for _, column := range m.Extra {
		all = append(all, column)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// active reports whether a value of the activate column means true. NULL does not.
func (m Mapping) active(c Cell) bool {
	truths := m.ActiveValues
	if truths == nil {
		truths = operatorTruths
	}
	return !c.Null && slices.Contains(truths, c.Text)
}

// Rows returns the rows that tenants can be made of, by uid, and the errors of the
// others.
func Rows(m Mapping, s Snapshot) ([]Row, []RowError) {
	at, missing := m.places(s.Columns)
	if len(missing) > 0 {
		return nil, []RowError{{Reason: RowColumnMissing, Message: "columns that the query did not return: " + strings.Join(missing, ", ")}}
	}
	var rows []Row
	var errs []RowError
	alike := map[string][]string{} // by uid without case
	for i, cells := range s.Rows {
		if len(cells) != len(s.Columns) {
			errs = append(errs, RowError{Reason: RowColumnMissing, Message: fmt.Sprintf("row %d has %s for %s", i+1, plural.Count(len(cells), "value"), plural.Count(len(s.Columns), "column"))})
			continue
		}
		row := m.row(at, cells)
		if bad := cells[at[m.UID]].Bad; bad != "" {
			errs = append(errs, RowError{Reason: RowUIDMissing, Message: fmt.Sprintf("row %d: its uid in %q %s", i+1, m.UID, bad)})
			continue
		}
		if cells[at[m.UID]].Null || row.UID == "" {
			errs = append(errs, RowError{Reason: RowUIDMissing, Message: fmt.Sprintf("row %d has no value in %q", i+1, m.UID)})
			continue
		}
		alike[folded(row.UID)] = append(alike[folded(row.UID)], row.UID)
		if i := slices.IndexFunc(cells, func(c Cell) bool { return c.Bad != "" }); i >= 0 {
			errs = append(errs, RowError{UID: row.UID, Reason: RowValueUnusable, Message: fmt.Sprintf("%q of uid %s %s; its tenants stay as they are", s.Columns[i], quoted(row.UID), cells[i].Bad)})
			continue
		}
		rows = append(rows, row)
	}
	kept := rows[:0]
	for _, row := range rows {
		if err := m.fault(row, alike[folded(row.UID)]); err != nil {
			errs = append(errs, *err)
			continue
		}
		kept = append(kept, row)
	}
	slices.SortFunc(kept, func(a, b Row) int { return strings.Compare(a.UID, b.UID) })
	return kept, sortRowErrors(errs)
}

// places finds the columns of m among those that were read.
func (m Mapping) places(columns []string) (at map[string]int, missing []string) {
	at = map[string]int{}
	for _, column := range m.Columns() {
		i := slices.Index(columns, column)
		if i < 0 {
			missing = append(missing, column)
		}
		at[column] = i
	}
	return at, missing
}

func (m Mapping) row(at map[string]int, cells []Cell) Row {
	activate := cells[at[m.Activate]]
	r := Row{UID: cells[at[m.UID]].Text, Activate: activate.Text, Active: m.active(activate), Extra: map[string]string{}}
	if m.HostOrURL != "" {
		r.HostOrURL = cells[at[m.HostOrURL]].Text
	}
	for variable, column := range m.Extra {
		r.Extra[variable] = cells[at[column]].Text
	}
	return r
}

// fault is the error of a row, given the uids that differ from its own at most in
// case, its own among them.
func (m Mapping) fault(r Row, alike []string) *RowError {
	e := RowError{UID: r.UID}
	switch {
	case len(alike) > 1 && slices.Equal(slices.Compact(slices.Clone(alike)), []string{r.UID}):
		e.Reason, e.Message = RowUIDDuplicate, fmt.Sprintf("uid %s is in %d rows; none of them is used", quoted(r.UID), len(alike))
	case len(alike) > 1:
		e.Reason, e.Message = RowUIDsAlike, fmt.Sprintf("uid %s is in %d rows that differ only in case; none of them is used", quoted(r.UID), len(alike))
	case len(r.UID) > longestUID:
		e.Reason, e.Message = RowUIDTooLong, fmt.Sprintf("uid %s has %d characters; a label holds at most %d", quoted(r.UID), len(r.UID), longestUID)
	case !isName(r.UID):
		e.Reason, e.Message = RowUIDInvalid, fmt.Sprintf("uid %s cannot be part of a name: use lower-case letters, digits, - and ., with a letter or digit first and last", quoted(r.UID))
	case m.HostOrURL != "" && r.HostOrURL == "" && r.Active:
		e.Reason, e.Message = RowHostEmpty, fmt.Sprintf("%q of uid %s is empty; its tenants stay as they are", m.HostOrURL, quoted(r.UID))
	default:
		return nil
	}
	return &e
}

// folded is the same for uids that are too similar to be distinct.
func folded(uid string) string { return strings.ToLower(strings.TrimSpace(uid)) }

// quoted is a text of the database, shortened for a message.
func quoted(s string) string {
	const most = 80
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return fmt.Sprintf("%q", s)
}

// isName reports whether s can be the name of an object: labels of lower-case
// letters, digits and dashes, with dots between.
func isName(s string) bool { return subdomainError(s) == nil }

// longestName is the greatest length of names of objects.
const longestName = 253

// sortRowErrors puts errors in order, each once: all rows of one uid have one.
func sortRowErrors(errs []RowError) []RowError {
	slices.SortStableFunc(errs, func(a, b RowError) int {
		return cmp.Or(strings.Compare(a.UID, b.UID), strings.Compare(a.Reason, b.Reason), strings.Compare(a.Message, b.Message))
	})
	return slices.Compact(errs)
}
