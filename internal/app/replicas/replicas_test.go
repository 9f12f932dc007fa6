package replicas

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/peers"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/runner/remote/wire"
	"github.com/terrier-iac/terrier/internal/shard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// group is some replicas of which the first is the leader.
type group struct {
	all    []*member
	leader *member           // nil while there is none
	owners map[string]string // the IDs of owners by stack
	now    time.Time
}

type member struct {
	*Replicas
	group  *group
	me     shard.Member
	server *httptest.Server
}

func (m *member) Me() shard.Member { return m.me }

func (m *member) Leader() (shard.Member, bool) {
	if m.group.leader == nil {
		return shard.Member{}, false
	}
	return m.group.leader.me, true
}

func (m *member) Owner(stack string) (shard.Member, bool) {
	for _, o := range m.group.all {
		if o.me.ID == m.group.owners[stack] {
			return o.me, true
		}
	}
	return shard.Member{}, false
}

func (m *member) Members() []shard.Member {
	var all []shard.Member
	for _, o := range m.group.all {
		all = append(all, o.me)
	}
	return all
}

// newGroup starts replicas of these names, each with an agent API that says its name.
func newGroup(t *testing.T, names ...string) *group {
	t.Helper()
	g := &group{owners: map[string]string{}}
	for _, id := range names {
		m := &member{group: g, me: shard.Member{ID: id}}
		var handler atomic.Pointer[http.Handler]
		m.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*handler.Load()).ServeHTTP(w, r) }))
		m.server.EnableHTTP2 = true
		m.server.StartTLS()
		m.me.URL = m.server.URL
		ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: m.server.Certificate().Raw})
		p, err := peers.New(peers.Config{Me: m.Me, Key: []byte(strings.Repeat("k", 32)), CA: ca, ServerName: "example.com"})
		if err != nil {
			t.Fatal(err)
		}
		m.Replicas = New(Config{Members: m, Peers: p, Now: func() time.Time { return g.now }, Log: slog.New(slog.DiscardHandler), UID: func(k query.Key) (string, bool) { return k.Name, k.Namespace != "early" }})
		says := func(what string) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, what, " of ", id) })
		}
		h := m.Handler(says("agents"), says("pages"))
		handler.Store(&h)
		g.all = append(g.all, m)
		t.Cleanup(func() { p.Close(); m.server.Close() })
	}
	g.leader = g.all[0]
	return g
}

// The agent of a run reaches the owner of its stack through any replica, and asks again
// while the stack moves.
func TestAgentsReachTheOwner(t *testing.T) {
	g := newGroup(t, "a", "b")
	g.owners["stack"] = "b"
	for name, tt := range map[string]struct {
		hint string
		through,
		status int
		want string
	}{
		"through another replica":         {"stack", 0, 200, "agents of b"},
		"through the owner":               {"stack", 1, 200, "agents of b"},
		"a run beside the stack":          {"stack_policy", 0, 200, "agents of b"},
		"a stack that moves":              {"other", 0, 503, "ask again"},
		"an agent of an earlier release":  {"", 0, 200, "agents of a"},
		"another one, at another replica": {"", 1, 200, "agents of b"},
	} {
		t.Run(name, func(t *testing.T) {
			at := g.all[tt.through].server
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at.URL+wire.AskWish, nil)
			if err != nil {
				t.Fatal(err)
			}
			if tt.hint != "" {
				req.Header.Set(wire.HeaderStack, tt.hint)
			}
			client := at.Client()
			defer client.CloseIdleConnections()
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != tt.status || !strings.Contains(string(body), tt.want) {
				t.Errorf("%s %s %v, want %d with %q", resp.Status, body, err, tt.status, tt.want)
			}
			if tt.status == 503 && resp.Header.Get("Retry-After") == "" {
				t.Error("it does not say when to come again")
			}
		})
	}
}

// A page is this replica's, another one's, or no replica has it now.
func TestWhoAnswers(t *testing.T) {
	g := newGroup(t, "a", "b")
	g.owners["net"], g.owners["web"] = "a", "b"
	a := g.all[0]
	for name, tt := range map[string]struct {
		key          query.Key
		other, known bool
	}{
		"its own stack":                        {query.Key{Namespace: "apps", Name: "net"}, false, true},
		"the stack of another replica":         {query.Key{Namespace: "apps", Name: "web"}, true, true},
		"a stack that moves":                   {query.Key{Namespace: "apps", Name: "db"}, false, false},
		"a stack that does not exist":          {query.Key{Namespace: "apps"}, false, true},
		"before this replica knows all stacks": {query.Key{Namespace: "early", Name: "net"}, false, false},
	} {
		if r, known := a.Replicas.Owner(tt.key); (r != nil) != tt.other || known != tt.known {
			t.Errorf("%s: Owner() = %v, %v", name, r, known)
		}
	}
	if r, known := a.Replicas.Leader(); r != nil || !known {
		t.Errorf("Leader() of the leader = %v, %v", r, known)
	}
	r, known := g.all[1].Replicas.Leader()
	if r == nil || !known {
		t.Fatalf("Leader() = %v, %v, want the other one", r, known)
	}
	rec := httptest.NewRecorder()
	r.Answer(rec, httptest.NewRequest(http.MethodGet, "/queue", nil), func(err error) { t.Error(err) })
	if rec.Body.String() != "pages of a" {
		t.Errorf("the leader answers %q", rec.Body)
	}
}

// A replica is ready while it reaches the leader, or while there is none.
func TestReady(t *testing.T) {
	g := newGroup(t, "a", "b")
	for _, m := range g.all {
		if err := m.Ready(t.Context()); err != nil {
			t.Errorf("%s is not ready: %v", m.me.ID, err)
		}
	}
	g.all[0].server.Close()
	if err := g.all[1].Ready(t.Context()); err != nil {
		t.Errorf("while the next leader is found: %v", err)
	}
	g.now = g.now.Add(withoutLeader)
	if err := g.all[1].Ready(t.Context()); err == nil {
		t.Error("a replica that does not reach the leader is ready")
	}
	g.leader = nil
	if err := g.all[1].Ready(t.Context()); err != nil {
		t.Errorf("while there is no leader: %v", err)
	}
}

// All replicas learn that a session ended, and one that is gone delays the others by no more than a moment.
func TestSessionEnded(t *testing.T) {
	g := newGroup(t, "a", "b", "c", "gone")
	until := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	heard := make(chan string, 4)
	for _, m := range g.all {
		m.OnSessionEnded(func(_ context.Context, id string, at time.Time) error {
			if !at.Equal(until) {
				t.Errorf("the session lasts until %s, want %s", at, until)
			}
			heard <- m.me.ID + " " + id
			return nil
		})
	}
	g.all[3].server.Close()
	g.all[0].SessionEnded(t.Context(), "session", until)
	got := map[string]bool{<-heard: true, <-heard: true}
	if !got["b session"] || !got["c session"] || len(heard) > 0 {
		t.Errorf("heard by %v", got)
	}
}

// kept is the audit log of one replica.
type kept struct {
	query.AuditLog
	name string
}

func (k kept) Entries(_ context.Context, s query.AuditSight, q query.AuditQuery) (query.AuditPage, error) {
	var p query.AuditPage
	for _, namespace := range []string{"apps", "other", ""} {
		if s.Has(namespace) {
			p.Items = append(p.Items, query.AuditEntry{Who: k.name, Why: q.Text, Object: query.AuditObject{Namespace: namespace}})
		}
	}
	return p, nil
}

// Each replica reads the audit log of the leader, and no more of it than its user may see.
func TestAuditLogIsTheLeaders(t *testing.T) {
	g := newGroup(t, "a", "b")
	var logs []query.AuditLog
	for _, m := range g.all {
		logs = append(logs, m.AuditLog(kept{name: m.me.ID}))
	}
	apps := query.AuditSight{In: func(namespace string) bool { return namespace == "apps" }}
	for i, log := range logs {
		for name, tt := range map[string]struct {
			sight query.AuditSight
			of    string
			want  int
		}{
			"all of it":             {query.AuditSight{All: true}, "", 3},
			"one namespace":         {apps, "apps", 1},
			"a namespace of others": {apps, "other", 0},
		} {
			if i == 0 && name == "a namespace of others" {
				continue // the leader's own log filters by itself
			}
			page, err := log.Entries(t.Context(), tt.sight, query.AuditQuery{Namespace: tt.of, Text: "why"})
			if err != nil || len(page.Items) != tt.want || len(page.Items) > 0 && (page.Items[0].Who != "a" || page.Items[0].Why != "why") {
				t.Errorf("%s through %s: %+v, %v, want %d entries of the leader", name, g.all[i].me.ID, page.Items, err, tt.want)
			}
		}
	}
	g.leader = nil
	if _, err := logs[1].Entries(t.Context(), query.AuditSight{All: true}, query.AuditQuery{}); fault.Of(err) != fault.Later {
		t.Errorf("without a leader: %v, want Later", err)
	}
	g.leader = &member{me: shard.Member{ID: "gone", URL: "https://127.0.0.1:1"}}
	if _, err := logs[1].Entries(t.Context(), query.AuditSight{All: true}, query.AuditQuery{}); fault.Of(err) != fault.Later || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with a leader that is gone: %v, want Later", err)
	}
}
