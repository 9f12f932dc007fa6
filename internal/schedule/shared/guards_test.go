package shared

import (
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/schedule"
	"github.com/terrier-iac/terrier/internal/shard"
)

// owner returns a Client that owns every shard since a generation.
func owner(member string, generation uint64, running map[string]schedule.Candidate) *Client {
	client := NewClient(member, schedule.Clock{Now: time.Now, After: func(time.Duration, func()) func() bool { return func() bool { return true } }})
	all := make([]int, shard.Count)
	for i := range all {
		all[i] = i
	}
	client.Claim(generation, all, running)
	return client
}

// tells brings the records of a Client to a Server, and no answer back.
func tells(server *Server, c *Client) (Report, Answer) {
	r := c.Report("leader")
	a, _ := server.report(r)
	return r, a
}

// A grant of an earlier request is none of the request that the stack has now: its slot
// may be another one's.
func TestAGrantOfAnEarlierRequestCountsForNothing(t *testing.T) {
	client, server, talk := pair(schedule.Limits{Runs: 1})
	talk()
	client.Admit("a", of("a"))
	r, late := tells(server, client)
	if len(late.Turns) != 1 || !late.Turns[0].Granted {
		t.Fatalf("the leader answers %+v, want a grant", late)
	}
	client.Leave("a")
	client.Admit("a", of("a"))
	client.Accept(r, late)
	if why := client.Admit("a", of("a")); why != unanswered {
		t.Errorf("Admit() = %q, want %q", why, unanswered)
	}
	talk()
	if why := client.Admit("a", of("a")); why != "" {
		t.Errorf("Admit() = %q, want the slot of its own request", why)
	}
}

// A late claim of a former owner takes no shard from its owner, whose run would be
// counted no more.
func TestALateClaimCountsForNothing(t *testing.T) {
	for name, generation := range map[string]uint64{"of an earlier generation": 1, "of the same generation": 2} {
		t.Run(name, func(t *testing.T) {
			server := NewServer("leader", schedule.Limits{Runs: 1}.Always(), time.Now)
			former, now := owner("former", generation, nil), owner("now", 2, map[string]schedule.Candidate{"a": of("a")})
			tells(server, now)
			tells(server, former)
			if b := server.Queue().Backlog(); b.Running != 1 {
				t.Errorf("%d runs are counted, want that of the owner", b.Running)
			}
			now.Leave("a")
			tells(server, now)
			if b := server.Queue().Backlog(); b.Running != 0 {
				t.Errorf("%d runs are counted, want none: the owner says so", b.Running)
			}
		})
	}
}

// A late record of a former owner says nothing about a stack.
func TestALateRecordCountsForNothing(t *testing.T) {
	server := NewServer("leader", schedule.Limits{Runs: 1}.Always(), time.Now)
	former := owner("former", 1, nil)
	former.Accept(tells(server, former))
	former.Admit("a", of("a"))
	late := former.Report("leader")
	if len(late.Shards) != 0 || len(late.Stacks) != 1 {
		t.Fatalf("the report has %d shards and %d stacks, want the stack alone", len(late.Shards), len(late.Stacks))
	}
	tells(server, owner("now", 2, nil))
	server.report(late)
	if b := server.Queue().Backlog(); b.Running+b.Waiting != 0 {
		t.Errorf("%d run and %d wait, want none", b.Running, b.Waiting)
	}
}

// A former owner hears nothing about the requests of the next one, whose tickets may be
// the same: it would take a slot that is not its own.
func TestAFormerOwnerHearsNoMore(t *testing.T) {
	server := NewServer("leader", schedule.Limits{Runs: 1}.Always(), time.Now)
	former, now := owner("former", 1, nil), owner("now", 2, nil)
	former.Admit("a", of("a"))
	now.Admit("a", of("a"))
	tells(server, former)
	if _, a := tells(server, now); len(a.Turns) != 1 || !a.Turns[0].Granted {
		t.Fatalf("the leader answers %+v, want a grant", a)
	}
	poll := former.Poll("leader")
	a, _ := server.report(poll)
	former.Accept(poll, a)
	if why := former.Admit("a", of("a")); why != unanswered {
		t.Errorf("Admit() of the former owner = %q, want %q", why, unanswered)
	}
}

// The place that a run has left keeps the slot of the run from others, whether its stack was
// never reconciled, or the next owner of the stack finds the place alone.
func TestAPlaceKeepsTheSlotOfItsRun(t *testing.T) {
	for name, leave := range map[string]func(former *Client) (owner *Client){
		"its stack was never reconciled": func(former *Client) *Client {
			former.Ended("a", "a/place")
			return former
		},
		"the next owner finds it": func(*Client) *Client {
			now := NewClient("now", schedule.Clock{Now: time.Now, After: func(time.Duration, func()) func() bool { return func() bool { return true } }})
			now.Claim(2, []int{shard.Of("a")}, map[string]schedule.Candidate{"a/place": of("a").Ended(time.Now())})
			return now
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := NewServer("leader", schedule.Limits{Runs: 1}.Always(), time.Now)
			former := owner("former", 1, map[string]schedule.Candidate{"a": of("a")})
			former.Accept(tells(server, former))
			former.Admit("b", of("b"))
			former.Accept(tells(server, former))
			now := leave(former)
			now.Accept(tells(server, now))
			former.Accept(tells(server, former))
			if why := former.Admit("b", of("b")); why == "" {
				t.Error("another run has the slot, and the place has not ended")
			}
			now.Leave("a/place")
			now.Accept(tells(server, now))
			former.Accept(tells(server, former))
			if why := former.Admit("b", of("b")); why != "" {
				t.Errorf("Admit() = %q once the place has ended, want the slot", why)
			}
		})
	}
}
