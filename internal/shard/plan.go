package shard

import (
	"cmp"
	"slices"
	"strings"
)

// Live is a member whose Lease is held.
type Live struct {
	Member
	Seen uint64 // the generation of the Map that it acknowledged last
}

// Plan is the next Map: shards of members that are not live are free and get an owner at
// once, moves that were acknowledged are carried out, and the shares of the members
// differ by at most one shard once all moves are over. It moves as few shards as it can.
// Without a live member nothing changes. It reports whether the Map differs.
//
// That a member is missing from live has to be certain: it can work on nothing any more.
func Plan(m Map, leader string, live []Live) (Map, bool) {
	if len(live) == 0 {
		return m, false
	}
	next := m
	next.Leader = leader
	next.Members = make([]Member, 0, len(live))
	seen := map[string]uint64{}
	for _, l := range live {
		next.Members = append(next.Members, l.Member)
		seen[l.ID] = l.Seen
	}
	slices.SortFunc(next.Members, func(a, b Member) int { return strings.Compare(a.ID, b.ID) })
	for i := range next.Shards {
		next.Shards[i].settle(seen)
	}
	next.balance(m.Generation + 1)
	if next.Leader == m.Leader && slices.Equal(next.Members, m.Members) && next.Shards == m.Shards {
		return m, false
	}
	next.Generation = m.Generation + 1
	return next, true
}

// settle drops members that are gone, and ends a move that the owner acknowledged.
func (s *Shard) settle(seen map[string]uint64) {
	if _, there := seen[s.Next]; !there {
		// The owner may have given it up already. It takes it again.
		s.Next, s.Since = "", 0
	}
	ack, there := seen[s.Owner]
	if !there || s.Next != "" && ack >= s.Since {
		*s = Shard{Owner: s.Next}
	}
}

// goesTo is the member that owns the shard, or will.
func (s Shard) goesTo() string { return cmp.Or(s.Next, s.Owner) }

// balance gives free shards to the members with the fewest, and then moves shards from
// those with the most to those with the fewest.
func (m *Map) balance(generation uint64) {
	shares := map[string][]int{}
	for _, member := range m.Members {
		shares[member.ID] = nil
	}
	var free []int
	for i, s := range m.Shards {
		if to := s.goesTo(); to != "" {
			shares[to] = append(shares[to], i)
		} else {
			free = append(free, i)
		}
	}
	for _, i := range free {
		least, _ := m.extremes(shares)
		m.Shards[i] = Shard{Owner: least}
		shares[least] = append(shares[least], i)
	}
	for {
		least, most := m.extremes(shares)
		if len(shares[most])-len(shares[least]) <= 1 {
			return
		}
		from := shares[most]
		i := from[len(from)-1]
		shares[most], shares[least] = from[:len(from)-1], append(shares[least], i)
		m.Shards[i].send(least, generation)
	}
}

// send moves a shard to a member. One that was on its way keeps the generation in which
// its owner was asked.
func (s *Shard) send(to string, generation uint64) {
	switch {
	case s.Next == "":
		s.Next, s.Since = to, generation
	case s.Owner == to: // back to where it was; it may have been given up
		s.Next, s.Since = "", 0
	default:
		s.Next = to
	}
}

// extremes are the members with the fewest and with the most shards, the first by ID
// among equals.
func (m *Map) extremes(shares map[string][]int) (least, most string) {
	for _, member := range m.Members {
		n := len(shares[member.ID])
		if least == "" || n < len(shares[least]) {
			least = member.ID
		}
		if most == "" || n > len(shares[most]) {
			most = member.ID
		}
	}
	return least, most
}
