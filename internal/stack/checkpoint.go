package stack

import "slices"

// Checkpoint is what of a status is kept a second time, in the records: without it
// something would be created twice, or released although it exists, or steps after an
// apply would run again. A status is lost more easily than a record: people edit it, and
// tools write objects back without it.
type Checkpoint struct {
	Untracked *Untracked `json:"gap,omitempty"`
	Created   bool       `json:"built,omitempty"`
	Destroyed bool       `json:"destroyed,omitempty"`
	Snapshot  string     `json:"snapshot,omitempty"`
	LastWrite string     `json:"wrote,omitempty"`

	DestroyScript bool `json:"destroyScript,omitempty"`

	LastState LastState `json:"lastState,omitzero"`

	AfterApply *AfterApply `json:"afterApply,omitempty"` // without what the steps are now; earlier releases never say so

	Recovery
}

// Checkpoint returns what must survive the status.
func (m Status) Checkpoint() Checkpoint {
	return Checkpoint{Untracked: m.Untracked, Created: m.Created, Destroyed: m.Destroyed, Snapshot: m.Snapshot, LastWrite: m.LastWrite, DestroyScript: m.DestroyScript, LastState: m.LastState, AfterApply: m.AfterApply.kept(), Recovery: m.Recovery}
}

// Same reports whether l says what other says. Untracked resources are others if
// they are of another run, or if fewer are left.
func (l Checkpoint) Same(other Checkpoint) bool {
	if (l.Untracked == nil) != (other.Untracked == nil) {
		return false
	}
	if l.Untracked != nil && (l.Untracked.Run != other.Untracked.Run || !slices.Equal(l.Untracked.Objects, other.Untracked.Objects)) {
		return false
	}
	return l.Created == other.Created && l.Destroyed == other.Destroyed && l.Snapshot == other.Snapshot && l.LastWrite == other.LastWrite &&
		l.DestroyScript == other.DestroyScript && l.LastState == other.LastState && l.AfterApply.same(other.AfterApply) && l.Recovery.same(other.Recovery)
}

// Blank reports whether Terrier never wrote anything down here, or all of it was
// lost.
func (m Status) Blank() bool {
	return m.LastRun == "" && m.LastWrite == "" && m.Snapshot == "" && m.Untracked == nil && m.Pending == nil && m.Planned == PlanInputs{}
}

// Restored is a status that was lost, as far as l knows what was in it. Another
// controller may have created since what the rest of the status says exists: it is
// not released because l knows that everything was destroyed.
func (m Status) Restored(l Checkpoint) Status {
	m.Untracked, m.Snapshot, m.LastWrite = l.Untracked, l.Snapshot, l.LastWrite
	m.DestroyScript, m.LastState, m.AfterApply, m.Recovery = l.DestroyScript, l.LastState, l.AfterApply, l.Recovery
	m.Destroyed = l.Destroyed && !m.Created
	m.Created = m.Created || l.Created
	return m
}
