package tenant

// Snapshot is one complete read of a registry's rows, all from one moment.
type Snapshot struct {
	Columns []string // as they were asked for
	Rows    [][]Cell // one cell for each column
	Mark    string   // greatest value of the high-water column; empty without one
}

// Cell is one value, as the database writes it.
type Cell struct {
	Text string
	Null bool

	// Bad says why a value cannot be used: its text is left out then. One such
	// value spoils its row and not the read, or whoever writes one row could stop
	// a whole registry.
	Bad string
}

// Mapping says what columns mean.
type Mapping struct {
	UID, HostOrURL, Activate string            // HostOrURL may be empty
	Extra                    map[string]string // variable → column
	ActiveValues             []string          // nil: those of Tenant Operator
}
