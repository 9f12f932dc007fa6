package stack

import "slices"

// Lasting is what of a memory is kept a second time, in the records: without it
// something would be built twice, or be let go of. A status is lost more easily
// than a record is; people edit it, and tools write objects back without it.
type Lasting struct {
	Untracked *Untracked `json:"gap,omitempty"`
	Built     bool       `json:"built,omitempty"`
	Destroyed bool       `json:"destroyed,omitempty"`
	Snapshot  string     `json:"snapshot,omitempty"`
	Wrote     string     `json:"wrote,omitempty"`
}

// Lasting returns what must outlast the status.
func (m Status) Lasting() Lasting {
	return Lasting{Untracked: m.Untracked, Built: m.Built, Destroyed: m.Destroyed, Snapshot: m.Snapshot, Wrote: m.Wrote}
}

// Same reports whether l says what other says. A gap is another one if it is of
// another run, or if less is missing.
func (l Lasting) Same(other Lasting) bool {
	if (l.Untracked == nil) != (other.Untracked == nil) {
		return false
	}
	if l.Untracked != nil && (l.Untracked.Run != other.Untracked.Run || !slices.Equal(l.Untracked.Objects, other.Untracked.Objects)) {
		return false
	}
	l.Untracked, other.Untracked = nil, nil
	return l == other
}

// Blank reports whether nothing of ours was ever written down, or all of it was
// lost.
func (m Status) Blank() bool {
	return m.LastRun == "" && m.Wrote == "" && m.Snapshot == "" && m.Untracked == nil && m.Pending == nil && m.Planned == PlanInputs{}
}

// Restored is a memory that was lost, as far as l knows what was in it. What the
// rest of a status says exists may have been built by another controller since l
// was written: that l knows it to be taken down lets go of nothing.
func (m Status) Restored(l Lasting) Status {
	m.Untracked, m.Snapshot, m.Wrote = l.Untracked, l.Snapshot, l.Wrote
	m.Destroyed = l.Destroyed && !m.Built
	m.Built = m.Built || l.Built
	return m
}
