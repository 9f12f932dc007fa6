package shared

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/schedule"
	"github.com/terrier-iac/terrier/internal/shard"
)

// pair is a Client that owns every stack, and its Server.
func pair(limits schedule.Limits) (*Client, *Server, func()) {
	server := NewServer("leader", limits.Always(), time.Now)
	client := owner("m", 1, nil)
	return client, server, func() {
		for range 20 {
			r := client.Report("leader")
			a, _ := server.report(r)
			client.Accept(r, a)
		}
	}
}

func of(id string) schedule.Candidate {
	return schedule.Candidate{Key: schedule.Key{Kind: "stack", Namespace: "ns", Name: id}, Tenant: "ns", Class: schedule.Spec}
}

// What waits keeps its place in the line when the leader changes.
func TestTheNextLeaderKeepsTheOrder(t *testing.T) {
	client, _, talk := pair(schedule.Limits{Runs: 1})
	var woken []string
	client.Listen("stack", schedule.Listener{Wake: func(k schedule.Key) { woken = append(woken, k.Name) }})
	now := time.Now()
	client.clock.Now = func() time.Time { now = now.Add(time.Second); return now }
	ids := []string{"running", "c", "a", "d", "b"}
	for _, id := range ids {
		client.Admit(id, of(id))
		talk()
	}
	client.Admit("running", of("running"))
	next := NewServer("next", schedule.Limits{Runs: 1}.Always(), time.Now)
	tell := func() {
		for range 3 {
			r := client.Report("next")
			a, _ := next.report(r)
			client.Accept(r, a)
		}
	}
	tell()
	for _, id := range ids {
		client.Leave(id)
		tell()
	}
	if got := strings.Join(woken, " "); got != "running c a d b" {
		t.Errorf("woken: %s, want the order in which they asked", got)
	}
	if b := next.Queue().Backlog(); b.Running+b.Waiting != 0 {
		t.Errorf("%d run and %d wait at the end", b.Running, b.Waiting)
	}
}

// A report has a bounded size, however much there is to say, and so has an answer.
func TestMessagesAreBounded(t *testing.T) {
	client, server, talk := pair(schedule.Limits{Runs: 1})
	for i := range 3 * maxRecords {
		client.Admit(fmt.Sprint(i), of(fmt.Sprint(i)))
	}
	if n := len(client.Report("leader").Stacks); n == 0 || n > maxRecords {
		t.Errorf("a report has %d records, want at most %d", n, maxRecords)
	}
	talk()
	if b := server.Queue().Backlog(); b.Running != 1 || b.Waiting != 3*maxRecords-1 {
		t.Errorf("%d run and %d wait, want all that asked", b.Running, b.Waiting)
	}
	r := client.Poll("leader")
	r.Seen = 0
	answer, _ := server.report(r)
	if len(answer.Turns) > maxRecords {
		t.Errorf("an answer has %d turns, want at most %d", len(answer.Turns), maxRecords)
	}
	if len(client.dirty) != 0 {
		t.Errorf("%d records are not confirmed", len(client.dirty))
	}
	for i := range 3 * maxRecords {
		if p, ok := client.Place(fmt.Sprint(i)); ok && p.Why == unanswered {
			t.Fatalf("the stack %d has no answer", i)
		}
	}
}

// A stack that was not granted yet is told why it waits.
func TestWhyItWaits(t *testing.T) {
	client, _, talk := pair(schedule.Limits{Runs: 1})
	if why := client.Admit("a", of("a")); why != unanswered {
		t.Errorf("Admit() = %q, want %q", why, unanswered)
	}
	talk()
	client.Admit("b", of("b"))
	talk()
	if why := client.Admit("b", of("b")); why != "Waiting for its turn: 1 run may run at once" {
		t.Errorf("Admit() = %q, want the limit", why)
	}
	if why := client.Admit("a", of("a")); why != "" {
		t.Errorf("Admit() = %q, want the slot", why)
	}
	client.Release([]int{shard.Of("b")})
	if why := client.Admit("b", of("b")); why != takingOver {
		t.Errorf("Admit() = %q, want %q", why, takingOver)
	}
}
