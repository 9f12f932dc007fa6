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

// An API server refuses an object of more than a megabyte or two, and an apply may create more
// than fits: the machine of an apply of thousands of resources is lost, or an engine is killed
// whose state is kept elsewhere. A status that cannot be written would hold the stack up for
// ever. So the status shows some of them, and the Checkpoint in the records has all.

const (
	untrackedShown = 200      // resources in a status
	untrackedBytes = 64 << 10 // of their addresses and IDs
	untrackedTold  = 20       // resources in a message
	longResource   = 4 << 10  // bytes; a key of for_each may be a file
)

// Count is how many untracked resources there are.
func (u *Untracked) Count() int {
	if u == nil {
		return 0
	}
	return len(u.Objects) + u.More
}

// Shown is what the status of an object has of u: first the resources that a user has to say
// something about, since their identifiers are not known. It is u if all of it fits.
func (u *Untracked) Shown() *Untracked {
	if u == nil || u.fits() {
		return u
	}
	all := slices.Clone(u.Objects)
	slices.SortStableFunc(all, func(a, b UntrackedResource) int { return known(a) - known(b) })
	some, left := all[:0:0], untrackedBytes
	for _, r := range all {
		if size := r.size(); len(some) < untrackedShown && size <= min(left, longResource) {
			some, left = append(some, r), left-size
		}
	}
	if len(some) == 0 { // never none, and never a part of a name
		some = append(some, slices.MinFunc(all, func(a, b UntrackedResource) int { return a.size() - b.size() }))
	}
	is := *u
	is.Objects, is.More = some, u.Count()-len(some)
	return &is
}

func (u *Untracked) fits() bool {
	bytes := 0
	for _, r := range u.Objects {
		bytes += r.size()
	}
	return len(u.Objects) <= untrackedShown && bytes <= untrackedBytes
}

func (r UntrackedResource) size() int { return len(r.Address) + len(r.ID) }

func known(r UntrackedResource) int {
	if r.ID == "" {
		return 0
	}
	return 1
}

// Shown is the status as the object has it.
func Shown(m Status) Status {
	m.Untracked = m.Untracked.Shown()
	return m
}

// Incomplete reports whether an object shows less of its status than there is.
func Incomplete(m Status) bool { return m.Untracked != nil && m.Untracked.More > 0 }

// Completed is the status that an object shows, with what the checkpoint has of it. The checkpoint
// is written before the status, so that it may be one step ahead: then the resources of a later run
// are among its own, and those of the status that are still missing.
func Completed(m Status, l Checkpoint) Status {
	if !Incomplete(m) || l.Untracked == nil {
		return m
	}
	all := *m.Untracked
	if all.More = l.Untracked.More; l.Untracked.Run == all.Run {
		all.Objects = l.Untracked.Objects
	} else {
		shown := map[string]bool{}
		for _, r := range all.Objects {
			shown[r.Address] = true
		}
		others := slices.DeleteFunc(slices.Clone(l.Untracked.Objects), func(r UntrackedResource) bool { return shown[r.Address] })
		all.Objects = slices.Concat(all.Objects, others)
	}
	m.Untracked = &all
	return m
}
