package tenant

// Snapshot is one complete and consistent read of a registry's rows.
type Snapshot struct {
	Columns []string // as they were asked for
	Rows    [][]Cell // one cell for each column
	Mark    string   // greatest value of the high-water column; empty without one

	Notes []RowNote // what users should know of rows that are valid
}

// RowNote is something to know of a row that is no error.
type RowNote struct{ UID, Text string }

// Cell is one value, as the database writes it.
type Cell struct {
	Text string
	Null bool

	// Bad says why a value cannot be used; Text is empty then. Such a value
	// invalidates its row and not the read: otherwise the author of one row could
	// stop a whole registry.
	Bad string
}

// Mapping gives columns their meanings.
type Mapping struct {
	UID, HostOrURL, Activate string            // HostOrURL may be empty
	Extra                    map[string]string // variable → column
	ActiveValues             []string          // nil: those of Tenant Operator
}
