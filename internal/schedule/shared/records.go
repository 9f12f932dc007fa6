package shared

import (
	"slices"

	"github.com/terrier-iac/terrier/internal/shard"
)

// records are what a Client has to say, and which of it the leader has confirmed.
type records struct {
	versions uint64
	shards   [shard.Count]part
	dirty    map[string]*place // places whose records the leader has not confirmed
	changed  chan struct{}
}

// part is a shard. The version of its record is 0 once the leader has confirmed it.
type part struct {
	ShardRecord
	owned  bool
	places map[string]*place // by the ID of the stack
}

// place finds the place of a stack, or adds it.
func (in *part) place(id string) *place {
	p := in.places[id]
	if p == nil {
		p = &place{StackRecord: StackRecord{ID: id, State: Free}}
		in.places[id] = p
	}
	return p
}

// at is the place of a stack; nil if it has none.
func (s *records) at(id string) *place { return s.shards[shard.Of(id)].places[id] }

// Changed has an element when there is something to report.
func (s *records) Changed() <-chan struct{} { return s.changed }

func (s *records) signal() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// touch has the record of a place reported.
func (s *records) touch(p *place) {
	s.versions++
	p.version = s.versions
	s.dirty[p.ID] = p
	s.signal()
}

// record has the record of a shard reported.
func (s *records) record(in *part, r ShardRecord) {
	s.versions++
	in.ShardRecord = r
	in.version = s.versions
	s.signal()
}

// drop forgets the places of a shard, which another member owns from now on.
func (s *records) drop(in *part) {
	for id := range in.places {
		delete(s.dirty, id)
	}
	in.owned, in.places = false, nil
}

// renew has everything reported, to a leader that knows of nothing.
func (s *records) renew() {
	for i := range s.shards {
		in := &s.shards[i]
		if !in.owned {
			in.version = 0
			continue
		}
		s.record(in, in.ShardRecord)
		for id, p := range in.places {
			if p.State == Free {
				delete(in.places, id)
				delete(s.dirty, id)
			} else {
				s.touch(p)
			}
		}
	}
}

// fill adds to a report what was not confirmed, as much as fits. A shard is claimed with
// all its places.
func (s *records) fill(r *Report) {
	claimed := map[int]bool{}
	for i := range s.shards {
		in := &s.shards[i]
		if in.version == 0 || len(r.Stacks) > 0 && len(r.Stacks)+len(in.places) > maxRecords {
			continue // or it is reported next time
		}
		r.Shards = append(r.Shards, in.ShardRecord)
		claimed[i] = true
		for _, p := range in.places {
			r.Stacks = append(r.Stacks, p.StackRecord)
		}
	}
	for _, holds := range []bool{true, false} { // a slot is not freed before the report that counts the place of its run
		for id, p := range s.dirty {
			if len(r.Stacks) >= maxRecords {
				return
			}
			if i := shard.Of(id); !claimed[i] && s.shards[i].version == 0 && (p.State == Holds) == holds {
				r.Stacks = append(r.Stacks, p.StackRecord)
			}
		}
	}
}

// confirm says that the leader has the records of a report.
func (s *records) confirm(r Report) {
	for _, record := range r.Shards {
		if in := &s.shards[record.Shard]; in.version == record.version {
			in.version = 0
		}
	}
	for _, record := range r.Stacks {
		if p := s.at(record.ID); p != nil && p.version == record.version {
			delete(s.dirty, record.ID)
			if p.State == Free {
				delete(s.shards[shard.Of(record.ID)].places, record.ID)
			}
		}
	}
	if len(s.dirty) > 0 || slices.ContainsFunc(s.shards[:], func(in part) bool { return in.version != 0 }) {
		s.signal()
	}
}
