// Package shard divides stacks among the controllers that share them: which of them
// owns a stack, and which ones have to be moved when controllers come and go. It knows
// no cluster and no clock: package kube/members writes its Map down.
//
// A shard is moved in two steps. The Map first says where it goes; its owner ends its
// work on it and acknowledges the generation of the Map; only then it gets the next
// owner. So no two controllers ever own a shard, whatever they know of one another.
//
// Start reading at Map and Plan.
package shard

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
)

// Count is how many shards there are. It is the same for all controllers and for ever:
// another number would give stacks to two owners during an upgrade. With 256 shards,
// the shares of up to 25 controllers differ by at most a tenth.
const Count = 256

// Of is the shard of a stack, by its UID. What belongs to the stack may be named behind
// a slash.
func Of(stack string) int {
	stack, _, _ = strings.Cut(stack, "/")
	h := fnv.New32a()
	_, _ = h.Write([]byte(stack)) // never fails
	return int(h.Sum32() % Count)
}

// In reports which stacks, by their UID, are in some shards.
func In(shards []int) func(stack string) bool {
	var in [Count]bool
	for _, i := range shards {
		in[i] = true
	}
	return func(stack string) bool { return in[Of(stack)] }
}

// Member is a controller that shares stacks with others.
type Member struct {
	ID  string `json:"id"`  // of the process: one that was started again is another member
	URL string `json:"url"` // where others reach its HTTP API
}

// Shard is who owns a shard.
type Shard struct {
	Owner string // the ID of a member; empty if it has none
	Next  string // the member that it goes to once its owner gave it up; empty if it stays
	Since uint64 // the generation in which Next was set
}

// Owned reports whether a member may work on the shard.
func (s Shard) Owned(by string) bool { return s.Owner == by && s.Next == "" && by != "" }

// Map is who owns which shard, as the leader wrote it down.
type Map struct {
	Generation uint64
	Leader     string   // the ID of the member that wrote it
	Members    []Member // by ID
	Shards     [Count]Shard
}

// Member finds a member by its ID.
func (m *Map) Member(id string) (Member, bool) {
	i, ok := slices.BinarySearchFunc(m.Members, id, func(e Member, id string) int { return strings.Compare(e.ID, id) })
	if !ok {
		return Member{}, false
	}
	return m.Members[i], true
}

// Owner finds the owner of a stack. There is none while its shard is moved.
func (m *Map) Owner(stack string) (Member, bool) {
	s := m.Shards[Of(stack)]
	if s.Next != "" {
		return Member{}, false
	}
	return m.Member(s.Owner)
}

// OwnedBy lists the shards on which a member may work.
func (m *Map) OwnedBy(id string) []int {
	var out []int
	for i, s := range m.Shards {
		if s.Owned(id) {
			out = append(out, i)
		}
	}
	return out
}

// Unacknowledged reports whether the Map asks a member to give up shards that it did
// not give up when it acknowledged the generation seen.
func (m *Map) Unacknowledged(id string, seen uint64) bool {
	return slices.ContainsFunc(m.Shards[:], func(s Shard) bool { return s.Owner == id && s.Next != "" && s.Since > seen })
}

// mapJSON is a Map as it is written: shards by their owner, and moves apart.
type mapJSON struct {
	Generation uint64           `json:"generation"`
	Leader     string           `json:"leader"`
	Members    []Member         `json:"members"`
	Owners     map[string][]int `json:"owners"`
	Moves      []moveJSON       `json:"moves,omitempty"`
}

type moveJSON struct {
	Shard int    `json:"shard"`
	To    string `json:"to"`
	Since uint64 `json:"since"`
}

// MarshalJSON implements json.Marshaler.
func (m Map) MarshalJSON() ([]byte, error) {
	out := mapJSON{Generation: m.Generation, Leader: m.Leader, Members: m.Members, Owners: map[string][]int{}}
	for i, s := range m.Shards {
		if s.Owner != "" {
			out.Owners[s.Owner] = append(out.Owners[s.Owner], i)
		}
		if s.Next != "" {
			out.Moves = append(out.Moves, moveJSON{i, s.Next, s.Since})
		}
	}
	return json.Marshal(out)
}

// UnmarshalJSON implements json.Unmarshaler. It refuses a shard with two owners.
func (m *Map) UnmarshalJSON(data []byte) error {
	var in mapJSON
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	out := Map{Generation: in.Generation, Leader: in.Leader, Members: in.Members}
	slices.SortFunc(out.Members, func(a, b Member) int { return strings.Compare(a.ID, b.ID) })
	for owner, shards := range in.Owners {
		for _, i := range shards {
			if i < 0 || i >= Count || owner == "" {
				return fmt.Errorf("shard %d of owner %q: want an owner, and 0 to %d", i, owner, Count-1)
			}
			if other := out.Shards[i].Owner; other != "" {
				return fmt.Errorf("shard %d has two owners, %s and %s", i, other, owner)
			}
			out.Shards[i].Owner = owner
		}
	}
	for _, move := range in.Moves {
		if move.Shard < 0 || move.Shard >= Count {
			return fmt.Errorf("shard %d is moved: want 0 to %d", move.Shard, Count-1)
		}
		s := &out.Shards[move.Shard]
		s.Next, s.Since = move.To, move.Since
	}
	*m = out
	return nil
}
