package shared

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/terrier-iac/terrier/internal/schedule"
	"github.com/terrier-iac/terrier/internal/shard"
)

// stacks are the stacks of a history.
var stacks = strings.Fields("s0 s1 s2 s3 s4 s5 s6 s7 s8 s9 s10 s11")

// groups are how many parts the shards of a history are in: a part is moved as a whole.
const groups = 4

func groupOf(id string) int { return shard.Of(id) * groups / shard.Count }

// shardsOf are the shards of a group.
func shardsOf(group int) []int {
	var out []int
	for i := range shard.Count {
		if i*groups/shard.Count == group {
			out = append(out, i)
		}
	}
	return out
}

// division is what a leader wrote down: as a shard.Map, in parts.
type division struct {
	generation uint64
	leader     int // the server of its leader
	owners     [groups]string
	next       [groups]string
}

// member is one process: its Client, the stacks that were woken, and what it read.
type member struct {
	*Client
	name  string
	read  division
	acked uint64 // generation
	owns  [groups]bool
	woken []string
	due   []func() // timers
}

// message is on its way: to a server, or back.
type message struct {
	member string
	report Report
	answer *Answer
}

// history is a world in which anything may happen to messages and members.
type history struct {
	limits  schedule.Limits
	servers []*Server
	written division
	past    []division
	members map[string]*member // that live
	born    int
	net     []message

	wants map[string]schedule.Candidate // by ID: what stacks that have no run ask for
	pods  map[string]schedule.Candidate // the runs that go on, and, behind a slash, what ended runs have left
	ended map[string]bool               // the runs among them that have ended, and whose pods have not
	ran   []string
}

func newHistory(limits schedule.Limits) *history {
	h := &history{limits: limits, members: map[string]*member{}, wants: map[string]schedule.Candidate{}, pods: map[string]schedule.Candidate{}, ended: map[string]bool{}}
	h.join()
	h.lead()
	return h
}

func (h *history) server() *Server { return h.servers[len(h.servers)-1] }

func (h *history) write(d division) {
	d.generation = h.written.generation + 1
	h.written = d
	h.past = append(h.past, d)
}

func (h *history) names() []string { return slices.Sorted(maps.Keys(h.members)) }

// join adds a member that owns nothing.
func (h *history) join() {
	h.born++
	m := &member{name: fmt.Sprint("m", h.born)}
	m.Client = NewClient(m.name, schedule.Clock{Now: time.Now, After: func(_ time.Duration, f func()) func() bool {
		on := true
		m.due = append(m.due, func() {
			if on {
				f()
			}
		})
		return func() bool { was := on; on = false; return was }
	}})
	m.Listen("stack", schedule.Listener{Wake: func(k schedule.Key) { m.woken = append(m.woken, k.Name) }})
	h.members[m.name] = m
}

// lead has another leader begin. The one before goes on answering.
func (h *history) lead() {
	h.servers = append(h.servers, NewServer(fmt.Sprint("leader", len(h.servers)), h.limits.Always(), time.Now))
	d := h.written
	d.leader = len(h.servers) - 1
	h.settle(&d)
	h.write(d)
}

// settle gives groups without a living owner to a member, and ends moves.
func (h *history) settle(d *division) {
	for g := range groups {
		if d.next[g] != "" && h.members[d.next[g]] == nil {
			d.next[g] = ""
		}
		owner := h.members[d.owners[g]]
		switch {
		case owner == nil && d.next[g] != "":
			d.owners[g], d.next[g] = d.next[g], ""
		case owner == nil:
			d.owners[g] = h.names()[g%len(h.members)]
		case d.next[g] != "" && owner.acked >= d.generation:
			d.owners[g], d.next[g] = d.next[g], ""
		}
	}
}

// reads has a member read what a leader wrote: it gives up, acknowledges and takes over.
func (h *history) reads(m *member, d division) {
	if d.generation <= m.read.generation {
		return
	}
	m.read = d
	for g := range groups {
		if owned := d.owners[g] == m.name && d.next[g] == ""; m.owns[g] && !owned {
			m.Release(shardsOf(g))
			m.owns[g] = false
		}
	}
	m.acked = d.generation
	for g := range groups {
		if d.owners[g] != m.name || d.next[g] != "" || m.owns[g] {
			continue
		}
		running := map[string]schedule.Candidate{}
		for id, r := range h.pods {
			if groupOf(id) != g {
				continue
			}
			if h.ended[id] {
				h.leave(id)
				id += place1
			}
			running[id] = r
		}
		m.Claim(d.generation, shardsOf(g), running)
		m.owns[g] = true
	}
}

// owner is the member that works on a stack; nil if there is none.
func (h *history) owner(id string) *member {
	for _, m := range h.members {
		if m.owns[groupOf(id)] {
			return m
		}
	}
	return nil
}

// place1 is the name of the only place that a run leaves.
const place1 = "/place"

// leave has the pod of a run that has ended be its place.
func (h *history) leave(id string) {
	h.pods[id+place1] = h.pods[id].Ended(time.Now())
	delete(h.pods, id)
	delete(h.ended, id)
}

// pass reconciles a stack, if a member owns it.
func (h *history) pass(id string) {
	m := h.owner(id)
	if m == nil {
		return
	}
	if h.ended[id] {
		h.leave(id)
		m.Running(id+place1, h.pods[id+place1])
		m.Leave(id)
		return
	}
	if r, running := h.pods[id]; running {
		m.Running(id, r)
		return
	}
	r, wants := h.wants[id]
	if !wants {
		m.Leave(id)
		return
	}
	if m.Admit(id, r) == "" {
		delete(h.wants, id)
		r.Began = time.Now()
		h.pods[id] = r
		h.ran = append(h.ran, id)
	}
}

// comes has a member reconcile the stacks that were woken.
func (h *history) comes(m *member) {
	woken := m.woken
	m.woken = nil
	for _, id := range woken {
		h.pass(id)
	}
}

func (h *history) send(m *member, poll bool) {
	leader := fmt.Sprint("leader", m.read.leader)
	r := m.Poll(leader)
	if !poll {
		r = m.Report(leader)
	}
	h.net = append(h.net, message{member: m.name, report: r})
}

// deliver brings a message to where it goes.
func (h *history) deliver(msg message) {
	if msg.answer == nil {
		for _, s := range h.servers {
			if s.leader == msg.report.Leader {
				answer, _ := s.report(msg.report)
				h.net = append(h.net, message{member: msg.member, report: msg.report, answer: &answer})
			}
		}
		return
	}
	if m := h.members[msg.member]; m != nil {
		m.Accept(msg.report, *msg.answer)
	}
}

// check fails if more is running, or may begin to, than the limits allow.
func (h *history) check(t interface{ Fatalf(string, ...any) }) {
	held := maps.Clone(h.pods)
	for _, m := range h.members {
		for i := range m.shards {
			for id, p := range m.shards[i].places {
				if p.State == Holds && h.members[m.name] != nil {
					if _, runs := held[id]; !runs {
						held[id] = p.Candidate
					}
				}
			}
		}
	}
	tenants := map[string]int{}
	var perClass schedule.PerClass
	var memory int64
	for _, r := range held {
		tenants[r.Tenant]++
		perClass[r.Class]++
		memory += r.Memory
	}
	if len(held) > h.limits.Runs {
		t.Fatalf("%d runs with %d allowed: %v", len(held), h.limits.Runs, slices.Sorted(maps.Keys(held)))
	}
	if h.limits.Memory > 0 && memory > h.limits.Memory && len(held) > 1 {
		t.Fatalf("%d runs are charged %d with %d allowed", len(held), memory, h.limits.Memory)
	}
	for c, n := range perClass {
		if most := h.limits.PerClass[c]; most > 0 && n > most {
			t.Fatalf("%d runs of the class %s with %d allowed", n, schedule.Class(c), most)
		}
	}
	for tenant, n := range tenants {
		if h.limits.PerTenant > 0 && n > h.limits.PerTenant {
			t.Fatalf("%d runs of the tenant %s with %d allowed", n, tenant, h.limits.PerTenant)
		}
	}
}

// heal delivers everything, and ends runs until nothing waits.
func (h *history) heal(t interface{ Fatalf(string, ...any) }) {
	for rounds := 0; ; rounds++ {
		if rounds > 2000 {
			t.Fatalf("%d stacks wait and %d run for ever", len(h.wants), len(h.pods))
		}
		d := h.written
		h.settle(&d)
		if d != h.written {
			h.write(d)
		}
		for _, name := range h.names() {
			m := h.members[name]
			h.reads(m, h.written)
			h.send(m, false)
			h.send(m, true)
			for len(h.net) > 0 {
				msg := h.net[0]
				h.net = h.net[1:]
				h.deliver(msg)
				h.check(t)
			}
			h.comes(m)
			h.check(t)
			m.due = nil // it was woken, and has taken its slot
		}
		for _, id := range stacks {
			h.pass(id)
		}
		if h.quiet() {
			return
		}
		if running := slices.Sorted(maps.Keys(h.pods)); len(running) > 0 && rounds%4 == 3 {
			delete(h.pods, running[0])
			delete(h.ended, running[0])
			h.pass(running[0])
		}
	}
}

// quiet reports whether nothing runs, waits or is left to be said.
func (h *history) quiet() bool {
	b := h.server().Queue().Backlog()
	if len(h.wants)+len(h.pods)+b.Running+b.Waiting+len(b.Tenants) > 0 || b.Memory != 0 {
		return false
	}
	for i := range h.server().shards {
		if len(h.server().shards[i].turns) > 0 {
			return false
		}
	}
	for _, m := range h.members {
		if len(m.dirty) > 0 || len(m.woken) > 0 {
			return false
		}
		for i := range m.shards {
			if len(m.shards[i].places) > 0 || m.shards[i].version != 0 {
				return false
			}
		}
	}
	return true
}

// In every history of members that join, are late and die, of leaders that follow one
// another and do not know it, and of messages that are lost, late and doubled, no limit
// is exceeded. When all is well again, every request is served, and no slot is left.
func TestNoLimitIsExceededAndNoRequestIsLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(schedule.Limits{
			Runs: rapid.IntRange(1, 4).Draw(t, "runs"), PerTenant: rapid.IntRange(0, 2).Draw(t, "perTenant"),
			Memory:   rapid.SampledFrom([]int64{0, 6, 9}).Draw(t, "memory"),
			PerClass: schedule.PerClass{schedule.Spec: rapid.IntRange(0, 1).Draw(t, "of the class spec")},
		})
		some := func(t *rapid.T, label string) *member { return h.members[rapid.SampledFrom(h.names()).Draw(t, label)] }
		id := func(t *rapid.T) string { return rapid.SampledFrom(stacks).Draw(t, "id") }
		message := func(t *rapid.T, take bool) message {
			if len(h.net) == 0 {
				t.Skip("no message is on its way")
			}
			i := rapid.IntRange(0, len(h.net)-1).Draw(t, "message")
			msg := h.net[i]
			if take {
				h.net = slices.Delete(h.net, i, i+1)
			}
			return msg
		}
		send := func(t *rapid.T) { h.send(some(t, "member"), rapid.Bool().Draw(t, "poll")) }
		deliver := func(t *rapid.T) { h.deliver(message(t, true)) }
		talk := func(t *rapid.T) { // as it is mostly: a report is answered at once
			m := some(t, "member")
			h.send(m, false)
			for range 2 {
				msg := h.net[len(h.net)-1]
				h.net = h.net[:len(h.net)-1]
				h.deliver(msg)
				if len(h.net) == 0 {
					break
				}
			}
			h.comes(m)
		}
		t.Repeat(map[string]func(*rapid.T){
			"request": func(t *rapid.T) {
				id := id(t)
				if _, running := h.pods[id]; running {
					t.Skip("it runs")
				}
				h.wants[id] = schedule.Candidate{
					Key: schedule.Key{Kind: "stack", Name: id}, Tenant: fmt.Sprint("t", len(id)*7%3, id[len(id)-1]%2),
					Class: rapid.SampledFrom(schedule.Classes()).Draw(t, "class"), Memory: int64(id[len(id)-1]%4) + 1,
				}
				h.pass(id)
			},
			"pass":     func(t *rapid.T) { h.pass(id(t)) },
			"withdraw": func(t *rapid.T) { id := id(t); delete(h.wants, id); h.pass(id) },
			"unread": func(t *rapid.T) {
				id := id(t)
				if m := h.owner(id); m != nil {
					m.Withdraw(id)
				}
			},
			"end": func(t *rapid.T) {
				id := id(t)
				was, running := h.pods[id]
				if _, left := h.pods[id+place1]; running && !left && rapid.Bool().Draw(t, "its pod stays") {
					h.ended[id] = true
					return
				}
				delete(h.pods, id)
				delete(h.ended, id)
				switch rapid.IntRange(0, 2).Draw(t, "then") {
				case 0:
					h.pass(id)
				case 1:
					if running { // the next run follows in its slot, if that suits
						was.Class, was.Began = rapid.SampledFrom(schedule.Classes()).Draw(t, "class"), time.Time{}
						h.wants[id] = was
						h.pass(id)
					}
				}
			},
			"ended": func(t *rapid.T) { // of a stack that was not reconciled
				id := id(t)
				m := h.owner(id)
				if m == nil {
					return
				}
				if h.ended[id] && m.at(id) != nil && m.at(id).Found {
					h.leave(id)
					m.Ended(id, id+place1)
				} else if h.pods[id].Key.Name == "" {
					m.Ended(id)
				}
			},
			"vacated": func(t *rapid.T) {
				id := id(t)
				delete(h.pods, id+place1)
				if m := h.owner(id); m != nil {
					m.Leave(id + place1)
				}
			},
			"comes":      func(t *rapid.T) { h.comes(some(t, "member")) },
			"talk":       talk,
			"talk again": talk,
			"send":       send,
			"send again": send,
			"deliver":    deliver,
			"deliver 2":  deliver,
			"deliver 3":  deliver,
			"double":     func(t *rapid.T) { h.deliver(message(t, false)) },
			"lose":       func(t *rapid.T) { message(t, true) },
			"miss": func(t *rapid.T) {
				if m := some(t, "member"); len(m.due) > 0 {
					rapid.SampledFrom(m.due).Draw(t, "timer")()
				}
			},
			"join": func(t *rapid.T) {
				if len(h.members) < 4 {
					h.join()
				}
			},
			"die": func(t *rapid.T) {
				if len(h.members) > 1 {
					delete(h.members, some(t, "member").name)
				}
			},
			"lead": func(*rapid.T) { h.lead() },
			"move": func(t *rapid.T) {
				d := h.written
				h.settle(&d)
				g := rapid.IntRange(0, groups-1).Draw(t, "group")
				if to := some(t, "to").name; d.owners[g] != to && d.next[g] == "" {
					d.next[g] = to
				}
				h.write(d)
			},
			"divide": func(*rapid.T) {
				d := h.written
				h.settle(&d)
				h.write(d)
			},
			"read": func(t *rapid.T) { h.reads(some(t, "member"), h.written) },
			"read all": func(*rapid.T) {
				for _, n := range h.names() {
					h.reads(h.members[n], h.written)
				}
			},
			"read old": func(t *rapid.T) { h.reads(some(t, "member"), rapid.SampledFrom(h.past).Draw(t, "division")) },
			"":         func(t *rapid.T) { h.check(t) },
		})
		h.heal(t)
	})
}
