package e2e

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/encryption"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// stateRepository is a git server for states, which can be out, or hang.
type stateRepository struct {
	*testkit.Git
	out  atomic.Bool
	gate atomic.Pointer[chan struct{}] // requests wait until it is closed; nil while the server answers
	url  string
}

func newStateRepository(t *testing.T) *stateRepository {
	t.Helper()
	r := &stateRepository{Git: testkit.NewGit(t)}
	r.AllowPush()
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if r.out.Load() {
			panic(http.ErrAbortHandler)
		}
		if gate := r.gate.Load(); gate != nil {
			select {
			case <-*gate:
			case <-q.Context().Done():
				return
			}
		}
		r.ServeHTTP(w, q)
	}))
	t.Cleanup(front.Close)
	r.url = front.URL + "/repository.git"
	return r
}

// login is the Secret with which states are pushed.
func (r *stateRepository) login() string {
	return "apiVersion: v1\nkind: Secret\nmetadata: {name: push}\nstringData: {username: " + r.Username + ", password: " + r.Password + "}\n"
}

// holds makes a stack keep its state in the repository.
func (r *stateRepository) holds(manifest string) string {
	return strings.Replace(manifest, "metadata: {", `metadata: {annotations: {terrier.dev/backend: git, terrier.dev/backend-settings: '{"repository": "`+r.url+`", "secretRef": "push"}'}, `, 1)
}

// objects is the content of every object that the repository has.
func (r *stateRepository) objects() string {
	return r.Bare("cat-file", "--batch-all-objects", "--batch")
}

// path is where a stack has its state.
func (r *stateRepository) path(c *testkit.Cluster, name string) string {
	return "states/" + c.Namespace + "/" + name + ".tfstate"
}

// put makes the file of a stack another one, as a user does who may push; nil removes it.
func (r *stateRepository) put(t *testing.T, path string, content []byte) {
	t.Helper()
	r.Do("fetch", "--quiet", "origin", stack.GitBranch)
	r.Do("checkout", "--quiet", "--force", "-B", "work", "FETCH_HEAD")
	r.Do("rm", "--quiet", "--force", "--ignore-unmatch", path)
	if content != nil {
		file := filepath.Join(strings.TrimSpace(r.Do("rev-parse", "--show-toplevel")), path)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		r.Do("add", "--force", path)
	}
	r.Do("commit", "--quiet", "--allow-empty", "--message=manual")
	r.Do("push", "--quiet", "origin", "HEAD:"+stack.GitBranch)
}

// TB-15: a stack keeps its state in git, encrypted, with a commit for each state that is
// stored, and users see and change it as any other. It moves there from a Secret and back
// without a change of a resource.
func TestAStateInGit(t *testing.T) {
	t.Parallel()
	r := newStateRepository(t)
	c := cluster(t)
	w := platform(t).World(t)
	const text = "what only this state in git holds"
	canary := fmt.Sprintf("%x", sha256.Sum256([]byte(text)))
	module := func(names ...string) string {
		return things(w, "x", names...) + "\nresource \"terraform_data\" \"kept\" {\n  input = sensitive(sha256(\"" + text + "\"))\n}\n"
	}
	c.Apply(t, r.login())
	c.Apply(t, r.holds(inline("stack", kept, module("a"))))
	c.AwaitReady(t, "stack")
	made(t, w, "a")
	document := r.Bare("show", stack.GitBranch+":"+r.path(c, "stack"))
	if !encryption.Encrypted([]byte(document)) {
		t.Errorf("the repository has %s", document)
	}
	last := r.Bare("log", "-1", "--format=%an%n%B", stack.GitBranch)
	for _, part := range []string{"Terrier\nstore the state of " + c.Namespace + "/stack: serial ", "Run: apply-", "Lineage: "} {
		if !strings.Contains(last, part) {
			t.Errorf("the commit lacks %q:\n%s", part, last)
		}
	}
	c.Apply(t, r.holds(inline("stack", kept, module("a", "b"))))
	c.AwaitReady(t, "stack")
	made(t, w, "a", "b")

	file := filepath.Join(t.TempDir(), "state")
	c.Terrier(t, "state", "pull", "stack", "-o", file)
	if pulled, err := os.ReadFile(file); err != nil || !strings.Contains(string(pulled), canary) {
		t.Errorf("terrier state pull wrote %s, %v", pulled, err)
	}
	if shown := c.Terrier(t, "state", "show", "stack"); strings.Contains(shown, canary) || !strings.Contains(shown, "terraform_data.kept") {
		t.Errorf("terrier state show says %s, want the resource and no value", shown)
	}
	if listed := c.Terrier(t, "state", "list"); !strings.Contains(listed, r.path(c, "stack")) {
		t.Errorf("terrier state list says %s, want where the state is", listed)
	}
	if told := c.Terrier(t, "explain", "stack"); !strings.Contains(told, r.path(c, "stack")) {
		t.Errorf("terrier explain says %s, want where the state is", told)
	}
	c.Terrier(t, "state", "push", "stack", file, "--force", "--yes")
	if by := r.Bare("log", "-1", "--format=%B", stack.GitBranch); !strings.Contains(by, "Person: ") {
		t.Errorf("the commit of a user says %s", by)
	}
	c.Terrier(t, "replan", "stack", "--wait")
	c.AwaitReady(t, "stack")
	c.Terrier(t, "state", "rollback", "stack", serials(t, c, "stack")[0], "--yes")
	c.AwaitReady(t, "stack")
	if all := r.objects(); strings.Contains(all, canary) || strings.Count(all, "encrypted_data") < 3 {
		t.Errorf("the repository holds a value of the state, or too few of its versions:\n%s", all)
	}

	// Into a Secret, and back. The old place is named, and nothing is created again.
	move := func(manifest, old string) {
		t.Helper()
		c.Apply(t, manifest)
		c.Terrier(t, "replan", "stack")
		s := c.AwaitReason(t, "stack", "StateTampered")
		rollback := "terrier state rollback stack " + serials(t, c, "stack")[0]
		for _, part := range []string{old, rollback} {
			if !strings.Contains(message(s), part) {
				t.Errorf("the message is %q, want %q in it", message(s), part)
			}
		}
		c.Terrier(t, "state", "rollback", "stack", serials(t, c, "stack")[0], "--yes")
		if s := c.AwaitReady(t, "stack"); s.Status.Terrier.Phase == "DriftFound" {
			t.Errorf("after the move: %s", message(s))
		}
	}
	c.Kubectl(t, "annotate", "terraforms.infra.contrib.fluxcd.io/stack", "terrier.dev/backend-", "terrier.dev/backend-settings-")
	move(inline("stack", kept, module("a", "b")), r.path(c, "stack"))
	if len(packed(t, c, "stack")) == 0 {
		t.Error("the Secret has no state")
	}
	// The Secret moves back into another file, since the first one holds what it held.
	elsewhere := strings.Replace(r.holds(inline("stack", kept, module("a", "b"))), `"secretRef"`, `"path": "moved.tfstate", "secretRef"`, 1)
	move(elsewhere, "the Secret "+c.Namespace+"/tfstate-default-stack")
	c.Kubectl(t, "delete", "secret", "tfstate-default-stack") // nothing reads it any more
	for _, name := range []string{"a", "b"} {
		if n := began(w, "create", name); n != 1 {
			t.Errorf("%s was created %d times, want once", name, n)
		}
	}
	c.Delete(t, "stack")
	c.AwaitGone(t, "stack")
	made(t, w)
	if all := r.objects(); strings.Contains(all, canary) {
		t.Error("the repository holds a value of the state")
	}
}

// TB-16: whatever others did to the file, no run begins on it before a user has decided, by
// name.
func TestAStateInGitThatOthersChanged(t *testing.T) {
	t.Parallel()
	r := newStateRepository(t)
	c := cluster(t)
	p := platform(t)
	w := p.World(t)
	c.Apply(t, r.login())
	c.Apply(t, r.holds(inline("stack", kept+"\nretryInterval: 1s", things(w, "x", "a"))))
	c.AwaitReady(t, "stack")
	path := r.path(c, "stack")
	first := []byte(r.Bare("show", stack.GitBranch+":"+path))
	c.Apply(t, r.holds(inline("stack", kept+"\nretryInterval: 1s", things(w, "x", "a", "b"))))
	c.AwaitReady(t, "stack")
	newest := serials(t, c, "stack")[0]
	file := filepath.Join(t.TempDir(), "state")
	c.Terrier(t, "state", "pull", "stack", "-o", file)
	plain, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		what, reason string
		change       func()
	}{
		{"an older version", "StateRegressed", func() { r.put(t, path, first) }},
		{"a state in clear", "StateTampered", func() { r.put(t, path, plain) }},
		{"no file", "StateTampered", func() { r.put(t, path, nil) }},
		{"no branch", "StateTampered", func() { r.Bare("update-ref", "-d", "refs/heads/"+stack.GitBranch) }},
	} {
		step.change()
		c.Terrier(t, "replan", "stack")
		s := c.AwaitReason(t, "stack", step.reason)
		if !strings.Contains(message(s), path) || !strings.Contains(message(s), "terrier state rollback stack") {
			t.Errorf("%s: the message is %q, want the file and a way out", step.what, message(s))
		}
		c.Terrier(t, "state", "rollback", "stack", newest, "--yes")
		c.AwaitReady(t, "stack")
	}
	made(t, w, "a", "b")

	// A user may also accept what is there, and the audit log has their name.
	r.put(t, path, first)
	c.Terrier(t, "replan", "stack")
	c.AwaitReason(t, "stack", "StateRegressed")
	c.Terrier(t, "state", "accept", "stack", "--yes", "--reason", "b is to be made again")
	c.AwaitReady(t, "stack")
	accepted := 0
	for _, e := range auditLog(t, p, c.Namespace) {
		if e.What == audit.StateAccepted {
			if accepted++; e.Who == "" || e.Why != "b is to be made again" {
				t.Errorf("the audit log has %+v, want who and why", e)
			}
		}
	}
	if accepted == 0 {
		t.Error("the audit log does not have that the state was accepted")
	}
}

// A server that is out while a run ends loses nothing: the state is kept, the stack says
// so, nothing begins, and the state is pushed once the server is there.
func TestAStateInGitWhoseServerIsOut(t *testing.T) {
	t.Parallel()
	r := newStateRepository(t)
	c := cluster(t)
	p := platform(t)
	w := p.World(t)
	g := newGate(t, p)
	c.Apply(t, r.login())
	c.Apply(t, r.holds(inline("stack", kept+"\nretryInterval: 1s", g.held(w, "a"))))
	g.reached(t)
	r.out.Store(true)
	g.open(t)
	c.Await(t, "stack", func(s *v1alpha2.Terraform) error {
		if text := message(s); !strings.Contains(text, "not in its repository yet") || !strings.Contains(text, "starts no run before") {
			return errNot("told that the state waits: " + text)
		}
		return nil
	})
	made(t, w, "a")
	c.Terrier(t, "replan", "stack")
	r.out.Store(false)
	c.AwaitReady(t, "stack")
	if n := began(w, "create", "a"); n != 1 {
		t.Errorf("a was created %d times, want once", n)
	}
	if last := r.Bare("log", "-1", "--format=%B", stack.GitBranch); !strings.Contains(last, "Run: apply-") {
		t.Errorf("the newest commit is %s", last)
	}
}

// A git server that hangs stops the stacks whose states it keeps, which say so, and no others.
func TestAStateInGitWhoseServerHangs(t *testing.T) {
	t.Parallel()
	r := newStateRepository(t)
	c := cluster(t)
	w := platform(t).World(t)
	c.Apply(t, r.login())
	c.Apply(t, r.holds(inline("stack", kept+"\nretryInterval: 2s", things(w, "x", "a"))))
	c.AwaitReady(t, "stack")
	gate := make(chan struct{})
	r.gate.Store(&gate)
	opened := sync.OnceFunc(func() { close(gate) })
	t.Cleanup(opened)

	c.Apply(t, r.holds(inline("stack", kept+"\nretryInterval: 2s", things(w, "x", "a", "b"))))
	var more []string
	for i := range 4 {
		more = append(more, fmt.Sprintf("more-%d", i))
		c.Apply(t, r.holds(inline(more[i], "approvePlan: auto\ninterval: 1h\nretryInterval: 2s", things(w, "x", more[i]))))
	}
	host := strings.TrimSuffix(strings.TrimPrefix(r.url, "http://"), "/repository.git")
	for _, name := range append(more, "stack") {
		c.Await(t, name, func(s *v1alpha2.Terraform) error {
			if text := message(s); !strings.Contains(text, "the git server "+host+" has not answered in time since") {
				return errNot("told that the server does not answer: " + text)
			}
			return nil
		})
	}
	c.Apply(t, inline("elsewhere", "approvePlan: auto\ninterval: 1h", things(w, "x", "c")))
	c.AwaitReady(t, "elsewhere")
	made(t, w, "a", "c")

	opened()
	r.gate.Store(nil)
	for _, name := range append(more, "stack") {
		c.AwaitReady(t, name)
	}
	made(t, w, "a", "b", "c", "more-0", "more-1", "more-2", "more-3")
}
