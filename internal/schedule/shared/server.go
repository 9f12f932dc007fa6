package shared

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/schedule"
	"github.com/terrier-iac/terrier/internal/shard"
)

// counting is what requests wait for under a new leader.
const counting = "Waiting for all replicas: the leader has changed, and counts the runs of each replica first"

// Server is the leader's end: it answers the reports of all Clients from one queue.
type Server struct {
	leader string

	mu       sync.Mutex
	queue    *schedule.Queue
	kinds    map[string]bool // to whose turns it listens
	shards   [shard.Count]claims
	open     bool // every shard was claimed
	sessions map[string]*session
}

// claims is what the Server knows of one shard.
type claims struct {
	session    *session // of its owner; nil if there is none
	generation uint64
	claimed    bool // at any time
	turns      map[string]*turn
}

// session is one Client.
type session struct {
	number  uint64 // of the newest report
	version uint64
	news    map[string]uint64 // the versions of the turns that it has not seen
	changed chan struct{}     // closed when there are news
}

// turn is what one stack has in the queue.
type turn struct {
	StackRecord
	granted bool
	why     string
}

// NewServer returns the queue of a leader, which grants nothing yet.
func NewServer(leader string, room schedule.Room, now func() time.Time) *Server {
	// Only a Client knows whether its stack has taken a slot, so that none expires here.
	never := func(time.Duration, func()) func() bool { return func() bool { return true } }
	return &Server{
		leader: leader, queue: schedule.New(room, schedule.Clock{Now: now, After: never}),
		kinds: map[string]bool{}, sessions: map[string]*session{},
	}
}

// Queue is what runs and waits, to be shown.
func (s *Server) Queue() *schedule.Queue { return s.queue }

// Exchange takes a report and answers it. If the report may wait, and there is nothing
// new for its Client, the answer comes when there is, or when ctx ends.
func (s *Server) Exchange(ctx context.Context, r Report) Answer {
	if r.Leader != s.leader {
		return Answer{Leader: s.leader} // its Client has not heard of this leader yet
	}
	for {
		answer, changed := s.report(r)
		if !r.Wait || answer.Applied || len(answer.Turns) > 0 || answer.Version > r.Seen {
			return answer
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return answer
		}
	}
}

// report takes a report. The channel is closed when there is more for its Client.
func (s *Server) report(r Report) (Answer, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := s.sessions[r.Member]
	if from == nil {
		from = &session{news: map[string]uint64{}, changed: make(chan struct{})}
		s.sessions[r.Member] = from
	}
	answer := Answer{Leader: s.leader}
	if r.Number > from.number {
		from.number = r.Number
		s.apply(from, r)
		answer.Applied = true
	}
	s.answer(from, r.Seen, &answer)
	return answer, from.changed
}

// apply takes the records of a Client. Slots that are held are counted before any is freed:
// the place of a run may have taken the place of that run in between.
func (s *Server) apply(from *session, r Report) {
	listed := map[string]bool{}
	for _, record := range r.Stacks {
		listed[record.ID] = true
	}
	var gone []string
	for _, record := range r.Shards {
		gone = append(gone, s.claim(from, record, listed)...)
	}
	take := func(holds bool) {
		for _, record := range r.Stacks {
			if in := &s.shards[shard.Of(record.ID)]; in.session == from && (record.State == Holds) == holds {
				s.take(in, record)
			}
		}
	}
	take(true)
	for _, id := range gone {
		s.drop(&s.shards[shard.Of(id)], id)
	}
	take(false)
	s.begin()
}

// claim has a shard belong to a Client, or to none. Stacks of the shard that the report of
// its owner does not list have nothing: they are gone.
func (s *Server) claim(from *session, record ShardRecord, listed map[string]bool) (gone []string) {
	if record.Shard < 0 || record.Shard >= shard.Count {
		return nil
	}
	in := &s.shards[record.Shard]
	if record.Generation < in.generation || record.Generation == in.generation && in.session != from && in.claimed {
		return nil // of an owner from before
	}
	before := in.session
	if before != nil {
		maps.DeleteFunc(before.news, func(id string, _ uint64) bool { return in.turns[id] != nil })
	}
	in.session, in.generation = nil, record.Generation
	if !record.Released {
		in.session, in.claimed = from, true
	}
	for id, t := range in.turns {
		switch {
		case record.Released && t.State == Waits && !t.granted, !record.Released && !listed[id]:
			gone = append(gone, id)
		case before != from:
			t.Ticket = 0 // the tickets of another Client
		}
	}
	return gone
}

// drop forgets a stack, which has neither a slot nor a request.
func (s *Server) drop(in *claims, id string) {
	s.queue.Leave(id)
	delete(in.turns, id)
	if in.session != nil {
		delete(in.session.news, id)
	}
}

// take replaces the record of a stack.
func (s *Server) take(in *claims, record StackRecord) {
	t := in.turns[record.ID]
	switch record.State {
	case Free:
		if t != nil {
			s.drop(in, record.ID)
		}
	case Holds:
		s.hold(in, record)
	case Waits:
		switch {
		case t != nil && t.State == Waits && t.Ticket == record.Ticket && t.granted:
			in.session.tell(record.ID) // the Client had not heard it yet
			return
		case t != nil && record.Keeps && t.Ticket != 0: // the queue knows whether the slot suits
			t.granted = false
		case t != nil && (t.State != Waits || t.Ticket != record.Ticket):
			s.drop(in, record.ID) // it has given up what it had, and asks again
			t = nil
		}
		if t == nil {
			t = &turn{}
			in.put(record.ID, t)
		}
		t.StackRecord = record
		if s.open {
			s.ask(in, t)
			return
		}
		t.why = counting
		in.session.tell(record.ID)
	}
}

func (in *claims) put(id string, t *turn) {
	if in.turns == nil {
		in.turns = map[string]*turn{}
	}
	in.turns[id] = t
}

// hold counts a slot that a stack has, beyond the limits if need be.
func (s *Server) hold(in *claims, record StackRecord) {
	in.put(record.ID, &turn{StackRecord: record, granted: true})
	delete(in.session.news, record.ID)
	if record.Found {
		s.queue.Found(record.ID, record.Candidate)
	} else {
		s.queue.Running(record.ID, record.Candidate)
	}
}

// ask has a stack wait in the queue, or grants its request at once.
func (s *Server) ask(in *claims, t *turn) {
	if kind := t.Candidate.Key.Kind; !s.kinds[kind] {
		s.kinds[kind] = true
		s.queue.Listen(kind, schedule.Listener{Called: s.call})
	}
	t.why = s.queue.Admit(t.ID, t.Candidate)
	t.granted = t.why == ""
	in.session.tell(t.ID)
}

// begin asks for everything that waits, what has waited for longest first, once every
// shard was claimed.
func (s *Server) begin() {
	if s.open || slices.ContainsFunc(s.shards[:], func(in claims) bool { return !in.claimed }) {
		return
	}
	s.open = true
	var waiting []*turn
	for i := range s.shards {
		for _, t := range s.shards[i].turns {
			if t.State == Waits {
				waiting = append(waiting, t)
			}
		}
	}
	slices.SortFunc(waiting, func(a, b *turn) int {
		return cmp.Or(a.Candidate.Asked.Compare(b.Candidate.Asked), cmp.Compare(a.ID, b.ID))
	})
	for _, t := range waiting {
		s.ask(&s.shards[shard.Of(t.ID)], t)
	}
}

// call grants the request of a stack whose turn has come.
func (s *Server) call(id string) {
	in := &s.shards[shard.Of(id)]
	if t := in.turns[id]; t != nil && t.State == Waits {
		t.granted, t.why = true, ""
		if in.session != nil { // else its next owner has not claimed it yet
			in.session.tell(id)
		}
	}
}

// tell has a Client hear of a turn.
func (c *session) tell(id string) {
	c.version++
	c.news[id] = c.version
	close(c.changed)
	c.changed = make(chan struct{})
}

// answer adds to an answer what a Client has not seen.
func (s *Server) answer(to *session, seen uint64, a *Answer) {
	maps.DeleteFunc(to.news, func(_ string, version uint64) bool { return version <= seen })
	ids := slices.SortedFunc(maps.Keys(to.news), func(a, b string) int { return cmp.Compare(to.news[a], to.news[b]) })
	a.Version = to.version
	if len(ids) > maxRecords {
		ids = ids[:maxRecords]
		a.Version = to.news[ids[maxRecords-1]]
	}
	for _, id := range ids {
		if t := s.shards[shard.Of(id)].turns[id]; t != nil {
			a.Turns = append(a.Turns, Turn{ID: id, Ticket: t.Ticket, Granted: t.granted, Why: t.why})
		}
	}
}
