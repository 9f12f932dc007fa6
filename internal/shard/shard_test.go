package shard

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// process is a controller as the histories below know it: what it works on, and what
// it acknowledged.
type process struct {
	live Live
	held map[int]bool
	read uint64 // the newest generation that it read
}

// read has a process see a Map, as kube/members does: it gives up first, then
// acknowledges, then takes.
func (p *process) see(m Map) {
	if m.Generation <= p.read {
		return
	}
	p.read = m.Generation
	for i := range p.held {
		if !m.Shards[i].Owned(p.live.ID) {
			delete(p.held, i)
		}
	}
	if m.Unacknowledged(p.live.ID, p.live.Seen) {
		p.live.Seen = m.Generation
	}
	for _, i := range m.OwnedBy(p.live.ID) {
		p.held[i] = true
	}
}

// In every history of members that come, go, read late and acknowledge late, no shard
// has two owners that work on it; and when nothing changes any more, every shard has one, and
// the shares differ by at most one.
func TestNoShardHasTwoOwners(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		var m Map
		var maps []Map // those that were written; a process may read an old one
		processes := map[string]*process{}
		plan := func(leader string) bool {
			var live []Live
			for _, p := range processes {
				live = append(live, p.live)
			}
			next, changed := Plan(m, leader, live)
			if changed {
				m, maps = next, append(maps, next)
			}
			return changed
		}
		check := func() {
			owners := map[int]string{}
			for id, p := range processes {
				for i := range p.held {
					if other := owners[i]; other != "" {
						t.Fatalf("seed %d: shard %d has two owners that work on it, %s and %s", seed, i, id, other)
					}
					owners[i] = id
				}
			}
		}
		born := 0
		join := func() {
			id := fmt.Sprint("m", born)
			born++
			processes[id] = &process{live: Live{Member: Member{ID: id, URL: "https://" + id}}, held: map[int]bool{}}
		}
		join()
		for range 200 {
			ids := make([]string, 0, len(processes))
			for id := range processes {
				ids = append(ids, id)
			}
			slices.Sort(ids)
			who := ids[random.IntN(len(ids))]
			switch n := random.IntN(20); {
			case n == 0 && len(ids) < 6:
				join()
			case n == 1 && len(ids) > 1:
				delete(processes, who) // its Lease has expired, so it does nothing any more
			case n < 8:
				plan(who)
			case len(maps) > 0:
				late := min(len(maps), 1+random.IntN(3))
				processes[who].see(maps[len(maps)-late])
			}
			check()
		}
		for plan("m") {
			for _, p := range processes {
				p.see(m)
				check()
			}
		}
		least, most := Count, 0
		for id, p := range processes {
			if !slices.Equal(m.OwnedBy(id), sorted(p.held)) {
				t.Fatalf("seed %d: %s works on %v, want %v", seed, id, sorted(p.held), m.OwnedBy(id))
			}
			least, most = min(least, len(p.held)), max(most, len(p.held))
		}
		if total := most - least; total > 1 {
			t.Fatalf("seed %d: shares from %d to %d", seed, least, most)
		}
		for i, s := range m.Shards {
			if s.Owner == "" || s.Next != "" {
				t.Fatalf("seed %d: shard %d is %+v at the end", seed, i, s)
			}
		}
	}
}

func sorted(set map[int]bool) []int {
	var out []int
	for i := range set {
		out = append(out, i)
	}
	slices.Sort(out)
	return out
}

// A member that joins gets its share and no more is moved; one that goes gives its
// share to the others, at once.
func TestFewShardsAreMoved(t *testing.T) {
	a, b, c := Live{Member: Member{ID: "a"}}, Live{Member: Member{ID: "b"}}, Live{Member: Member{ID: "c"}}
	m, _ := Plan(Map{}, "a", []Live{a, b})
	if n := len(m.OwnedBy("a")); n != Count/2 {
		t.Fatalf("a owns %d shards, want %d", n, Count/2)
	}
	m, _ = Plan(m, "a", []Live{a, b, c})
	moved := 0
	for _, s := range m.Shards {
		if s.Next != "" {
			if s.Next != "c" {
				t.Errorf("a shard goes to %s", s.Next)
			}
			moved++
		}
	}
	if moved != Count/3 {
		t.Errorf("%d shards are moved, want %d", moved, Count/3)
	}
	if _, changed := Plan(m, "a", []Live{a, b, c}); changed {
		t.Error("a Map changes although nobody acknowledged it")
	}
	a.Seen, b.Seen = m.Generation, m.Generation
	m, _ = Plan(m, "a", []Live{a, b, c})
	if n := len(m.OwnedBy("c")); n != Count/3 {
		t.Errorf("c owns %d shards after the moves, want %d", n, Count/3)
	}
	m, _ = Plan(m, "b", []Live{b, c})
	if n := len(m.OwnedBy("b")) + len(m.OwnedBy("c")); n != Count || m.Leader != "b" {
		t.Errorf("b and c own %d shards after a is gone, leader %s", n, m.Leader)
	}
}

func TestMapAsJSON(t *testing.T) {
	a, b := Live{Member: Member{ID: "a", URL: "https://a"}}, Live{Member: Member{ID: "b"}}
	m, _ := Plan(Map{}, "a", []Live{a})
	m, _ = Plan(m, "a", []Live{a, b}) // with moves
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var got Map
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if again, _ := json.Marshal(got); string(again) != string(text) || got.Shards != m.Shards {
		t.Errorf("read again:\n%s\nwant\n%s", again, text)
	}
	for bad, want := range map[string]string{
		`{"owners":{"a":[1],"b":[1]}}`:      "two owners",
		`{"owners":{"a":[256]}}`:            "0 to 255",
		`{"moves":[{"shard":-1,"to":"a"}]}`: "0 to 255",
	} {
		if err := json.Unmarshal([]byte(bad), &got); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", bad, err, want)
		}
	}
}

// The shard of a stack is the same for ever.
func TestOf(t *testing.T) {
	if got := Of("0f3c1a52-6b0e-4c2a-9a53-7f1f7d2f8f11"); got != 70 {
		t.Errorf("shard %d, want 70: stacks would have two owners during an upgrade", got)
	}
	counts := [Count]int{}
	random := rand.New(rand.NewPCG(1, 2))
	for range 10000 {
		counts[Of(fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", random.Uint32(), random.IntN(1<<16), random.IntN(1<<12), random.IntN(1<<12), random.Uint64N(1<<48)))]++
	}
	if most := slices.Max(counts[:]); most > 80 {
		t.Errorf("%d of 10,000 stacks are in one shard, want about 39", most)
	}
}
