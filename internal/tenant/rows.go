package tenant

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// RowError is something wrong with a row. A row with an error changes nothing:
// the tenants of its uid are neither made nor changed nor taken away.
type RowError struct {
	UID     string // as it is in the row, all of it; empty if it has none
	Reason  string
	Message string
	Next    time.Time // when what was refused is tried again; zero if it is not
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

// longestUID is what a label, such as kubernetes-tenants.org/uid, can hold.
const longestUID = 63

// operatorTruths are what Tenant Operator takes for yes, letter by letter.
var operatorTruths = []string{"1", "true", "TRUE", "True", "yes", "YES", "Yes"}

// Columns are what has to be read for m, each once, in order.
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

// active says what a value of the activate column means. No value is no yes.
func (m Mapping) active(c Cell) bool {
	truths := m.ActiveValues
	if truths == nil {
		truths = operatorTruths
	}
	return !c.Null && slices.Contains(truths, c.Text)
}

// Rows returns the rows that tenants can be made of, by uid, and what is wrong
// with the others.
func Rows(m Mapping, s Snapshot) ([]Row, []RowError) {
	at, missing := m.places(s.Columns)
	if len(missing) > 0 {
		return nil, []RowError{{Reason: RowColumnMissing, Message: "not read: " + strings.Join(missing, ", ")}}
	}
	var rows []Row
	var errs []RowError
	alike := map[string][]string{} // by uid without case
	for i, cells := range s.Rows {
		if len(cells) != len(s.Columns) {
			errs = append(errs, RowError{Reason: RowColumnMissing, Message: fmt.Sprintf("row %d has %d values for %d columns", i+1, len(cells), len(s.Columns))})
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

// fault is what is wrong with a row, given the uids that are the same but for
// their case, its own among them.
func (m Mapping) fault(r Row, alike []string) *RowError {
	e := RowError{UID: r.UID}
	switch {
	case len(alike) > 1 && slices.Equal(slices.Compact(slices.Clone(alike)), []string{r.UID}):
		e.Reason, e.Message = RowUIDDuplicate, fmt.Sprintf("uid %s is in %d rows; none of them is used", quoted(r.UID), len(alike))
	case len(alike) > 1:
		e.Reason, e.Message = RowUIDsAlike, fmt.Sprintf("uid %s is in %d rows that differ in nothing but case; none of them is used", quoted(r.UID), len(alike))
	case len(r.UID) > longestUID:
		e.Reason, e.Message = RowUIDTooLong, fmt.Sprintf("uid %s has %d characters; %d are the most that fit into a label", quoted(r.UID), len(r.UID), longestUID)
	case !IsName(r.UID):
		e.Reason, e.Message = RowUIDInvalid, fmt.Sprintf("uid %s cannot be part of a name: lower-case letters, digits, - and . can, with a letter or digit first and last", quoted(r.UID))
	case m.HostOrURL != "" && r.HostOrURL == "" && r.Active:
		e.Reason, e.Message = RowHostEmpty, fmt.Sprintf("%q of uid %s is empty; its tenants stay as they are", m.HostOrURL, quoted(r.UID))
	default:
		return nil
	}
	return &e
}

// folded is what uids have in common that nobody should tell apart.
func folded(uid string) string { return strings.ToLower(strings.TrimSpace(uid)) }

// quoted shows a text of the database, no more of it than is good for a message.
func quoted(s string) string {
	const most = 80
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return fmt.Sprintf("%q", s)
}

// IsName reports whether s can be the name of an object: labels of lower-case
// letters, digits and dashes, with dots between.
func IsName(s string) bool {
	for label := range strings.SplitSeq(s, ".") {
		for i, c := range []byte(label) {
			inner := i > 0 && i < len(label)-1
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && (c != '-' || !inner) {
				return false
			}
		}
		if label == "" {
			return false
		}
	}
	return len(s) <= longestName
}

// longestName is how long names of objects can be.
const longestName = 253

// sortRowErrors puts errors in order, each once: all rows of one uid have one.
func sortRowErrors(errs []RowError) []RowError {
	slices.SortStableFunc(errs, func(a, b RowError) int {
		return cmp.Or(strings.Compare(a.UID, b.UID), strings.Compare(a.Reason, b.Reason), strings.Compare(a.Message, b.Message))
	})
	return slices.Compact(errs)
}
