package shared

import (
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/schedule"
	"github.com/terrier-iac/terrier/internal/shard"
)

// What requests wait for before the leader has answered.
const (
	unanswered = "Waiting for the leader of the replicas to answer"
	takingOver = "Waiting for this replica to take the stack over"
)

// Client is the queue as one member has it. It answers at once, from what it knows, and
// has the stacks of its shards woken:
//
//	            Admit                 granted                Admit
//	(nothing) ────────▶ waiting ◀────────────────▶ granted ─────────▶ running
//	                       │        not taken in time  │                 │
//	                       └──────────── Leave ────────┴───── Leave ─────┘
//
// A slot that is granted or taken is one that the leader counts.
type Client struct {
	// Patience is how long Admit waits for the leader while that answers: mostly the slot
	// is free, and then the run starts in the same reconcile.
	Patience time.Duration

	member string
	clock  schedule.Clock

	mu        sync.Mutex
	answers   bool                         // the leader answered the last report
	listeners map[string]schedule.Listener // by Key.Kind
	leader    string                       // whose answers it takes
	number    uint64                       // of the newest report
	seen      uint64                       // of the answers of this leader
	tickets   uint64
	records
}

// place is what one stack has in the queue.
type place struct {
	StackRecord
	since  time.Time // when it was taken
	asked  time.Time
	taken  bool        // a slot that is held
	expiry func() bool // stops the timer of a slot that was not taken
	why    string
	hears  chan struct{} // closed when the leader has answered an Admit that waits for that
}

// NewClient returns the queue of a member that owns no shard yet. The ID of a member is
// used by one process only.
func NewClient(member string, clock schedule.Clock) *Client {
	return &Client{
		member: member, clock: clock, listeners: map[string]schedule.Listener{},
		records: records{dirty: map[string]*place{}, changed: make(chan struct{}, 1)},
	}
}

// Listen has the stacks of a kind woken.
func (c *Client) Listen(kind string, l schedule.Listener) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listeners[kind] = l
}

// Admit lets a stack start a run, or says what the run waits for. A stack that waits is
// woken when its turn has come.
func (c *Client) Admit(id string, r schedule.Candidate) (why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	in := &c.shards[shard.Of(id)]
	if !in.owned {
		return takingOver
	}
	p := in.place(id)
	same := p.Candidate.Class == r.Class && p.Candidate.Tenant == r.Tenant
	if p.State == Holds && same {
		c.take(p, r)
		return ""
	}
	if p.State != Waits || !same {
		// The leader knows whether a slot that it has can be one of the other class.
		keeps := p.State == Holds || p.Keeps
		c.ask(p)
		p.Keeps = keeps
	}
	r.Asked = p.asked
	p.Candidate = r
	c.touch(p)
	if p.why != unanswered || !c.answers || c.Patience <= 0 || p.hears != nil {
		return p.why
	}
	c.await(p)
	if c.at(id) != p {
		return takingOver
	}
	if p.State == Holds && !p.taken {
		c.take(p, r)
		return ""
	}
	return p.why
}

// await waits for the answer to a request.
func (c *Client) await(p *place) {
	heard := make(chan struct{})
	p.hears = heard
	late := make(chan struct{})
	stop := c.clock.After(c.Patience, func() { close(late) })
	c.mu.Unlock()
	select {
	case <-heard:
		stop()
	case <-late:
	}
	c.mu.Lock()
	if p.hears == heard {
		p.hears = nil
	}
}

// heard ends the wait for an answer.
func (p *place) heard() (waited bool) {
	if p.hears == nil {
		return false
	}
	close(p.hears)
	p.hears = nil
	return true
}

// ask begins a request.
func (c *Client) ask(p *place) {
	p.keep()
	if p.State == Free {
		p.asked = c.clock.Now()
	}
	c.tickets++
	p.Ticket, p.State, p.Keeps, p.Found, p.taken, p.since, p.why = c.tickets, Waits, false, false, false, time.Time{}, unanswered
}

// keep ends the reservation.
func (p *place) keep() {
	if p.expiry != nil {
		p.expiry()
		p.expiry = nil
	}
}

// take says that a stack has taken its slot, and for which run.
func (c *Client) take(p *place, r schedule.Candidate) {
	p.keep()
	before, found := p.Candidate, p.Found
	switch {
	case !r.Began.IsZero():
		p.since = r.Began
	case p.since.IsZero():
		p.since = c.clock.Now()
		if started := c.listeners[r.Key.Kind].Started; started != nil {
			started(r.Class, p.since.Sub(p.asked))
		}
	}
	r.Asked, r.Began = p.asked, p.since
	p.Candidate, p.Found = r, false
	if !p.taken || found || r != before {
		p.taken = true
		c.touch(p)
	}
}

// Running counts a run that is already running, beyond the limits if need be.
func (c *Client) Running(id string, r schedule.Candidate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if in := &c.shards[shard.Of(id)]; in.owned {
		c.count(in.place(id), r)
	}
}

// Found is Running for a run whose stack was not reconciled yet.
func (c *Client) Found(id string, r schedule.Candidate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if in := &c.shards[shard.Of(id)]; in.owned {
		c.count(in.place(id), r).Found = true
	}
}

func (c *Client) count(p *place, r schedule.Candidate) *place {
	if p.State != Holds {
		p.State, p.Keeps = Holds, false
		if p.asked.IsZero() {
			p.asked = c.clock.Now()
		}
	}
	c.take(p, r)
	return p
}

// Leave frees the slot, or the place in the line, of a stack that has no run and wants
// none.
func (c *Client) Leave(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.at(id); p != nil {
		c.free(p)
	}
}

func (c *Client) free(p *place) {
	if p.State == Free {
		return
	}
	p.keep()
	p.StackRecord = StackRecord{ID: p.ID, State: Free, version: p.version}
	p.taken, p.since, p.asked, p.why = false, time.Time{}, time.Time{}, ""
	c.touch(p)
}

// Withdraw gives up the place in the line of a stack of which the controller does not
// know whether it has a run: the slot of a run stays.
func (c *Client) Withdraw(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.at(id); p != nil && !p.taken {
		c.free(p)
	}
}

// Ended frees the slot of a run that ended and whose stack was never reconciled here. The
// places that the run left are counted as it was, until each Leaves.
func (c *Client) Ended(id string, left ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.at(id)
	if p == nil || !p.Found {
		return
	}
	for _, place := range left {
		c.count(c.shards[shard.Of(place)].place(place), p.Candidate.Ended(c.clock.Now()))
	}
	c.free(p)
}

// Idle reports whether nothing of a tenant is running or waits, of the stacks of this
// member.
func (c *Client) Idle(tenant string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.shards {
		for _, p := range c.shards[i].places {
			if p.State != Free && p.Candidate.Tenant == tenant {
				return false
			}
		}
	}
	return true
}

// Waited is how long the stack that has a slot waited for it, in tenths of a second.
func (c *Client) Waited(id string) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.at(id); p != nil && p.taken {
		return max(0, p.since.Sub(p.asked)).Truncate(100 * time.Millisecond)
	}
	return 0
}

// HandOver hands no slot over: only the leader knows whose turn it would be.
func (c *Client) HandOver(string, func(schedule.Candidate) bool) (to string, others bool) {
	return "", true
}

// Place returns where a stack is in the line, as far as this member knows: not what comes
// before it. It is false if the stack does not wait.
func (c *Client) Place(id string) (schedule.Place, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.at(id)
	if p == nil || p.State == Free || p.taken {
		return schedule.Place{}, false
	}
	return schedule.Place{
		Class: p.Candidate.Class.String(), Tenant: p.Candidate.Tenant, Since: p.asked, Why: p.why, Called: p.State == Holds,
	}, true
}

// Claim says that this member owns shards since a generation of the shard.Map, and which
// of their runs go on.
func (c *Client) Claim(generation uint64, shards []int, running map[string]schedule.Candidate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, i := range shards {
		in := &c.shards[i]
		if !in.owned {
			in.owned, in.places = true, map[string]*place{}
		}
		c.record(in, ShardRecord{Shard: i, Generation: generation})
	}
	for id, r := range running {
		in := &c.shards[shard.Of(id)]
		if p := in.places[id]; in.owned && (p == nil || !p.taken) {
			c.count(in.place(id), r).Found = true
		}
	}
}

// Release says that this member works on shards no more. Their runs stay counted until
// the next owner claims them.
func (c *Client) Release(shards []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, i := range shards {
		in := &c.shards[i]
		if !in.owned {
			continue
		}
		for _, p := range in.places {
			p.keep()
		}
		c.drop(in)
		c.record(in, ShardRecord{Shard: i, Generation: in.Generation, Released: true})
	}
}

// Report is what the leader has not confirmed yet. A leader that the Client has not
// reported to before gets everything, and from then on no other one is heard: the caller
// never returns to an earlier leader.
func (c *Client) Report(leader string) Report {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.follow(leader)
	r := Report{Member: c.member, Leader: leader, Seen: c.seen}
	c.fill(&r)
	if len(r.Shards)+len(r.Stacks) > 0 {
		c.number++
		r.Number = c.number
	}
	return r
}

// Poll is a report without records, whose answer may be late.
func (c *Client) Poll(leader string) Report {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.follow(leader)
	return Report{Member: c.member, Leader: leader, Seen: c.seen, Wait: true}
}

// follow changes the leader. The next one counts every slot that an earlier one granted.
func (c *Client) follow(leader string) {
	if leader != c.leader {
		c.leader, c.seen, c.answers = leader, 0, false
		c.renew()
	}
}

// Accept takes the answer to a report.
func (c *Client) Accept(r Report, a Answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.Leader != c.leader || r.Leader != c.leader {
		return // of an earlier leader
	}
	c.answers = true
	if a.Applied {
		c.confirm(r)
	}
	for _, t := range a.Turns {
		p := c.at(t.ID)
		switch {
		case p == nil || p.State != Waits || p.Ticket != t.Ticket: // it asks for something else by now, or for nothing
		case t.Granted:
			c.granted(p)
		default:
			p.why = t.Why
			p.heard()
		}
	}
	c.seen = max(c.seen, a.Version)
}

// Unanswered says that the leader did not answer.
func (c *Client) Unanswered() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers = false
}

// granted has a stack take its slot. One that does not asks again.
func (c *Client) granted(p *place) {
	p.State, p.Keeps, p.why = Holds, false, ""
	p.expiry = c.clock.After(slotReservation, func() { c.expire(p, p.Ticket) })
	if wake := c.listeners[p.Candidate.Key.Kind].Wake; wake != nil && !p.heard() {
		wake(p.Candidate.Key)
	}
}

func (c *Client) expire(p *place, ticket uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.State != Holds || p.taken || p.Ticket != ticket || c.at(p.ID) != p {
		return // it was taken in the meantime
	}
	c.ask(p)
	c.touch(p)
}
