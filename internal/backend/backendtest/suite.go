// Package backendtest holds the tests that every backend plug-in has to pass. It speaks the
// protocol, so that it takes a program in any language.
package backendtest

import (
	"bytes"
	"encoding/json"
	"maps"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/backend"
)

// Plugin is a backend under test. Ask sends one request.
type Plugin struct {
	Ask      func(t *testing.T, r backend.Request) backend.Reply
	Backend  string
	Settings map[string]string // right ones, of a place that is not there yet
	Type     string            // of the engine's backend

	Stands bool // the place of those settings is its user's, and is there already

	// Writes counts what was changed outside since the last call; nil if the backend makes
	// nothing. Store puts a state where the block says.
	Writes func() int
	Store  func(t *testing.T, b backend.Block)
}

// Program asks a program, as a run does: one process for each request, with this
// environment alone. It is for Plugin.Ask.
func Program(path string, environ ...string) func(*testing.T, backend.Request) backend.Reply {
	return func(t *testing.T, r backend.Request) backend.Reply {
		t.Helper()
		question, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var answer, log bytes.Buffer
		cmd := exec.CommandContext(t.Context(), path)
		cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = append([]string{"PATH=/usr/bin:/bin"}, environ...), bytes.NewReader(question), &answer, &log
		if err := cmd.Run(); err != nil {
			t.Fatalf("%s: %v\n%s", r.Operation, err, log.String())
		}
		reply, err := backend.ReadReply(answer.Bytes(), r.Operation)
		if err != nil && reply.Error == nil {
			t.Fatalf("%s: %v\n%s%s", r.Operation, err, answer.String(), log.String())
		}
		return reply
	}
}

func (p Plugin) request(o backend.Operation, change ...func(*backend.Request)) backend.Request {
	r := backend.Request{
		Version: backend.Version, Operation: o, Backend: p.Backend, Settings: maps.Clone(p.Settings),
		Stack: backend.Stack{Namespace: "team", Name: "network", Cluster: "cluster-a"}, Engine: "tofu 1.12.6",
	}
	for _, c := range change {
		c(&r)
	}
	return r
}

func (p Plugin) must(t *testing.T, r backend.Request) backend.Reply {
	t.Helper()
	reply := p.Ask(t, r)
	if reply.Error != nil {
		t.Fatalf("%s = %v", r.Operation, reply.Error)
	}
	return reply
}

func (p Plugin) refused(t *testing.T, r backend.Request) *backend.Error {
	t.Helper()
	reply := p.Ask(t, r)
	if reply.Error == nil || reply.Error.Message == "" || reply.Block != nil {
		t.Fatalf("%s of %+v = %+v, want an error with a message", r.Operation, r, reply)
	}
	return reply.Error
}

func expected(r *backend.Request) { r.Expected = true }
func forced(r *backend.Request)   { r.Force = true }

// Run runs the suite.
func Run(t *testing.T, p Plugin) {
	t.Run("protocol", func(t *testing.T) {
		p.refused(t, p.request(backend.Validate, func(r *backend.Request) { r.Version = backend.Version + 1 }))
		p.refused(t, p.request("grow"))
	})
	t.Run("settings", func(t *testing.T) {
		p.must(t, p.request(backend.Validate))
		for _, o := range []backend.Operation{backend.Validate, backend.Ensure, backend.Render} {
			if e := p.refused(t, p.request(o, func(r *backend.Request) { r.Settings["nonsense"] = "x" })); e.Field != "nonsense" {
				t.Errorf("%s names the setting %q, want nonsense", o, e.Field)
			}
		}
	})
	t.Run("block", func(t *testing.T) {
		first, second := p.must(t, p.request(backend.Render)), p.must(t, p.request(backend.Render))
		if diff := cmp.Diff(first, second); diff != "" {
			t.Errorf("a second render differs:\n%s", diff)
		}
		if first.Block.Type != p.Type {
			t.Errorf("the type is %q, want %q", first.Block.Type, p.Type)
		}
		if _, err := first.Block.File(); err != nil {
			t.Error(err)
		}
	})
	if p.Writes != nil {
		t.Run("place", p.place)
	}
}

// owner lets two clusters have a stack of one name.
func (p Plugin) owner(t *testing.T) {
	of := func(cluster string, formerly ...string) backend.Request {
		return p.request(backend.Ensure, func(r *backend.Request) { r.Stack.Cluster, r.Formerly = cluster, formerly })
	}
	p.Writes()
	for _, r := range []backend.Request{of("cluster-b"), of("cluster-b", "cluster-c")} {
		if e := p.refused(t, r); !strings.Contains(e.Message, "cluster-a") || p.Writes() != 0 {
			t.Errorf("ensure for a stack of another cluster says %q, want the name of the first one, and no write", e.Message)
		}
	}
	p.must(t, of(""))
	if n := p.Writes(); n != 0 {
		t.Errorf("ensure for a cluster that is not known has written %d times", n)
	}
	if reply := p.must(t, of("cluster-b", "cluster-a")); len(reply.Messages) == 0 || p.Writes() == 0 {
		t.Errorf("a cluster that takes the place of the first one was told %q", reply.Messages)
	}
	p.must(t, of("cluster-b"))
	if e := p.refused(t, of("cluster-a")); !strings.Contains(e.Message, "cluster-b") || p.Writes() != 0 {
		t.Errorf("ensure for the cluster that was replaced says %q, want the name of the other one, and no write", e.Message)
	}
}

// place follows a place from its beginning to its end.
func (p Plugin) place(t *testing.T) {
	p.Writes()
	if !p.Stands {
		p.refused(t, p.request(backend.Ensure, expected))
	}
	if n := p.Writes(); n != 0 {
		t.Fatalf("a place that was expected and is gone was made again with %d writes", n)
	}
	if reply := p.must(t, p.request(backend.Ensure)); len(reply.Messages) == 0 || p.Writes() == 0 {
		t.Fatalf("the first ensure says %q, want what it has made", reply.Messages)
	}
	for _, change := range []func(*backend.Request){func(*backend.Request) {}, expected} {
		if reply := p.must(t, p.request(backend.Ensure, change)); p.Writes() != 0 {
			t.Errorf("a second ensure has written: %q", reply.Messages)
		}
	}
	p.Store(t, *p.must(t, p.request(backend.Render)).Block)
	p.owner(t)
	p.Writes()
	p.refused(t, p.request(backend.Destroy))
	if n := p.Writes(); n != 0 {
		t.Errorf("destroy without force has written %d times although the state is there", n)
	}
	p.must(t, p.request(backend.Destroy, forced))
	if p.Writes() == 0 {
		t.Error("destroy with force has removed nothing")
	}
	p.must(t, p.request(backend.Destroy)) // of what is gone
}
