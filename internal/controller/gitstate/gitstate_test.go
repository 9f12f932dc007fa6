package gitstate

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"

	"github.com/terrier-iac/terrier/internal/encryption"
	"github.com/terrier-iac/terrier/internal/failpoint"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// canary is a value that only the states of these tests hold.
const canary = "a-value-of-the-state-alone"

const lineage = "0b1c0f6e-4c02-4a35-b9f5-6c7a1d5d8d10"

func stateOf(serial int, besides string) []byte {
	return fmt.Appendf(nil, `{"version":4,"terraform_version":"1.12.6","serial":%d,"lineage":%q,"outputs":{"o":{"value":"%s%s","type":"string"}},"resources":[],"check_results":null}
`, serial, lineage, canary, besides)
}

// objects are the Secrets and GitRepositories of a namespace, by kind and name.
type objects map[string]client.Object

func (o objects) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	switch into := into.(type) {
	case *corev1.Secret:
		if found, ok := o["Secret "+key.Name].(*corev1.Secret); ok {
			found.DeepCopyInto(into)
			return nil
		}
	case *sourcev1.GitRepository:
		if found, ok := o["GitRepository "+key.Name].(*sourcev1.GitRepository); ok {
			found.DeepCopyInto(into)
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: "objects"}, key.Name)
}

func (objects) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("nothing is listed")
}

// keys derive a key from a place and an ID.
func keys(ids ...string) encryption.Cipher {
	return encryption.Cipher{Keys: func(_ context.Context, place, id string) (all []encryption.Key, err error) {
		for _, known := range ids {
			if b := sha256.Sum256([]byte(place + known)); id == "" || id == known {
				all = append(all, encryption.Key{ID: known, Bytes: b[:]})
			}
		}
		return all, nil
	}}
}

// repository is a git server that can be out, with a controller that may push.
type repository struct {
	*testkit.Git
	objects objects
	out     atomic.Bool // the server answers nothing
	ref     kube.StateRef
}

func newRepository(t *testing.T) *repository {
	t.Helper()
	r := &repository{Git: testkit.NewGit(t)}
	r.AllowPush()
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if r.out.Load() {
			panic(http.ErrAbortHandler)
		}
		r.ServeHTTP(w, q)
	}))
	t.Cleanup(front.Close)
	r.URL = front.URL + "/repository.git"
	r.objects = objects{
		"Secret push":          &corev1.Secret{Data: map[string][]byte{"username": []byte(r.Username), "password": []byte(r.Password)}},
		"GitRepository states": &sourcev1.GitRepository{Spec: sourcev1.GitRepositorySpec{URL: r.URL, SecretRef: &fluxmeta.LocalObjectReference{Name: "push"}}},
	}
	r.ref = r.of("net")
	return r
}

// of is the reference of a state of a stack.
func (r *repository) of(name string) kube.StateRef {
	return kube.RefOf(stack.Configuration{Backend: stack.Backend{Suffix: name, Git: &stack.GitPlace{Repository: r.URL, Secret: "push"}}}, "apps")
}

// controller is a controller with keys of an ID.
func (r *repository) controller(t *testing.T, ids ...string) *States {
	t.Helper()
	allow, err := outbound.ParseAllow("127.0.0.0/8")
	if err != nil {
		t.Fatal(err)
	}
	out := outbound.New(outbound.Policy{Allow: allow, PlainHTTP: true})
	t.Cleanup(out.Close)
	return &States{Client: r.objects, Cipher: keys(append(ids, "one")...), Out: out, Scratch: t.TempDir(), Hosts: []string{"*"}, Now: func() time.Time { return time.Unix(1700000000, 0) }}
}

// file is the document of the stack net.
func (r *repository) file(t *testing.T) []byte {
	t.Helper()
	return []byte(r.Bare("show", stack.GitBranch+":states/apps/net.tfstate"))
}

// put commits a file as a user does who may push.
func (r *repository) put(t *testing.T, content []byte) {
	t.Helper()
	r.Do("fetch", "--quiet", "origin", stack.GitBranch)
	r.Do("checkout", "--quiet", "--force", "-B", "work", "FETCH_HEAD")
	r.Do("rm", "--quiet", "--force", "--ignore-unmatch", "states/apps/net.tfstate")
	if content != nil {
		dir := r.Do("rev-parse", "--show-toplevel")
		path := filepath.Join(strings.TrimSpace(dir), "states/apps/net.tfstate")
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, content, 0o600)); err != nil {
			t.Fatal(err)
		}
		r.Do("add", "--force", "states/apps/net.tfstate")
	}
	r.Do("commit", "--quiet", "--allow-empty", "--message=manual")
	r.Do("push", "--quiet", "origin", "HEAD:"+stack.GitBranch)
}

// clear fails if any object of the repository holds a value of a state.
func (r *repository) clear(t *testing.T) {
	t.Helper()
	all := r.Bare("cat-file", "--batch-all-objects", "--batch")
	if n := strings.Count(r.Bare("cat-file", "--batch-all-objects", "--batch-check"), "\n"); n < 4 {
		t.Errorf("the repository has %d objects", n)
	}
	if strings.Contains(all, canary) {
		t.Errorf("an object of the repository holds a value of a state:\n%s", all)
	}
}

var owner = kube.Owner{Name: "net", UID: "uid", Run: "apply-1"}

func save(t *testing.T, s *States, ref kube.StateRef, state []byte) {
	t.Helper()
	if err := s.Save(t.Context(), ref, owner, state); err != nil {
		t.Fatal(err)
	}
}

// A state is committed encrypted, once for each version, with a message that says whose it is.
func TestAStateInGit(t *testing.T) {
	r := newRepository(t)
	s := r.controller(t)
	if none, err := s.Load(t.Context(), r.ref); err != nil || none.Digest != "" {
		t.Fatalf("Load() of an empty repository = %+v, %v", none, err)
	}
	one, two := stateOf(1, ""), stateOf(2, "")
	save(t, s, r.ref, one)
	save(t, s, r.ref, one)
	save(t, s, r.ref, two)
	for name, s := range map[string]*States{"the writer": s, "another controller": r.controller(t)} {
		found, err := s.Load(t.Context(), r.ref)
		if err != nil || !bytes.Equal(found.State, two) || found.Digest != stack.Sum(two) || found.Owner != "net" || found.OwnerUID != "uid" || found.Foreign || found.Outdated(r.ref) {
			t.Errorf("%s reads %+v, %v", name, found, err)
		}
	}
	if err := s.Replace(t.Context(), r.ref, kube.Replacement{State: stateOf(3, ""), Over: stack.Sum(one), Owner: owner, Person: "ann"}); fault.Reason(err, "") != kube.StateConflict {
		t.Errorf("Replace() over another state = %v, want a conflict", err)
	}
	if err := s.Replace(t.Context(), r.ref, kube.Replacement{State: stateOf(3, ""), Over: stack.Sum(two), Owner: owner, Person: "ann"}); err != nil {
		t.Fatal(err)
	}
	if found, err := s.Load(t.Context(), r.ref); err != nil || found.Person != "ann" {
		t.Errorf("after a user stored a state it reads %+v, %v", found, err)
	}
	log := r.Bare("log", "--format=%an|%cn|%B", stack.GitBranch)
	for _, want := range []string{
		"Terrier|Terrier|store the state of apps/net: serial 2\n", "Stack: apps/net\nRun: apply-1\nSerial: 2\nLineage: " + lineage, "Person: ann\nSerial: 3",
	} {
		if !strings.Contains(log, want) {
			t.Errorf("the history lacks %q:\n%s", want, log)
		}
	}
	if n := strings.TrimSpace(r.Bare("rev-list", "--count", stack.GitBranch)); n != "3" {
		t.Errorf("there are %s commits, want one for each version", n)
	}
	r.clear(t)
}

// A repository is named by its object as well, whose credentials count if the stack names none.
func TestAGitRepositoryNamesTheRepository(t *testing.T) {
	r := newRepository(t)
	s := r.controller(t)
	ref := kube.RefOf(stack.Configuration{Backend: stack.Backend{Suffix: "net", Git: &stack.GitPlace{Repository: "states"}}}, "apps")
	save(t, s, ref, stateOf(1, ""))
	if found, err := s.Load(t.Context(), r.ref); err != nil || found.Digest != stack.Sum(stateOf(1, "")) {
		t.Errorf("by its URL it reads %+v, %v", found, err)
	}
	for what, tt := range map[string]struct {
		lose   func()
		says   string
		reason string
	}{
		"a GitRepository that is gone": {func() { delete(r.objects, "GitRepository states") }, "GitRepository apps/states does not exist", ReasonNoAccess},
		"a Secret that is gone":        {func() { delete(r.objects, "Secret push") }, "push", ReasonNoAccess},
		"a password that is wrong": {func() {
			r.objects["Secret push"] = &corev1.Secret{Data: map[string][]byte{"username": []byte("reader"), "password": []byte("wrong-canary")}}
		}, "secretRef", string(stack.StateFailed)},
	} {
		t.Run(what, func(t *testing.T) {
			was := objects{}
			for k, v := range r.objects {
				was[k] = v
			}
			tt.lose()
			_, err := r.controller(t).Load(t.Context(), ref)
			r.objects = was
			if fault.Of(err) != fault.Later || fault.Reason(err, "") != tt.reason || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), "canary") {
				t.Errorf("Load() = %v (%s %s), want %q in it", err, fault.Of(err), fault.Reason(err, ""), tt.says)
			}
		})
	}
}

// OpenTofu alone reads the file with the exported key, and continues it.
func TestTheEngineReadsAStateInGit(t *testing.T) {
	bin, err := filepath.Abs("../../../bin/tofu")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(bin); err != nil {
		t.Skip("bin/tofu is not built")
	}
	r := newRepository(t)
	s := r.controller(t)
	save(t, s, r.ref, stateOf(7, ""))
	dir := t.TempDir()
	key, err := keys("one").Keys(t.Context(), r.ref.KeyPlace(), "one")
	if err != nil {
		t.Fatal(err)
	}
	answer, err := encryption.KeyFile(key[0])
	if err != nil {
		t.Fatal(err)
	}
	config, err := encryption.ConfigWithFiles(filepath.Join(dir, "key.json"))
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"key.json": answer, "cli.tfrc": []byte("disable_checkpoint = true\n"), "terraform.tfstate": r.file(t),
		"main.tf": []byte("resource \"terraform_data\" \"x\" {}\noutput \"o\" {\n  value = \"" + canary + "\"\n}\n"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), bin, args...)
		cmd.Dir, cmd.Env = dir, []string{"TF_CLI_CONFIG_FILE=" + filepath.Join(dir, "cli.tfrc"), "HOME=" + dir, "TF_IN_AUTOMATION=1", "PATH=" + os.Getenv("PATH"), "TF_ENCRYPTION=" + config}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("tofu %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	run("init", "-no-color")
	if out := run("output", "-raw", "o"); !strings.Contains(out, canary) {
		t.Errorf("the engine reads %q", out)
	}
	run("apply", "-auto-approve", "-no-color")
	by, err := os.ReadFile(filepath.Join(dir, "terraform.tfstate"))
	if err != nil {
		t.Fatal(err)
	}
	// A state that the engine continued manually is read, and nothing is stored over it.
	r.put(t, by)
	found, err := s.Load(t.Context(), r.ref)
	if err != nil || !found.Foreign || !bytes.Contains(found.State, []byte("terraform_data")) {
		t.Errorf("what the engine committed reads %+v, %v; want it foreign", found, err)
	}
	if err := s.Save(t.Context(), r.ref, owner, stateOf(99, "")); fault.Reason(err, "") != kube.StateConflict {
		t.Errorf("Save() over it = %v, want a conflict", err)
	}
	if err := s.Reform(t.Context(), r.ref); err != nil {
		t.Fatal(err)
	}
	again, err := s.Load(t.Context(), r.ref)
	if err != nil || again.Foreign || again.Digest != found.Digest {
		t.Errorf("once a user accepted it it reads %+v, %v", again, err)
	}
	r.clear(t)
}

// Every change of the file by others is found.
func TestAFileThatOthersChanged(t *testing.T) {
	r := newRepository(t)
	s := r.controller(t)
	save(t, s, r.ref, stateOf(1, ""))
	first := r.file(t)
	save(t, s, r.ref, stateOf(2, ""))
	second := r.file(t)
	save(t, s, r.of("other"), stateOf(2, ""))
	other := []byte(r.Bare("show", stack.GitBranch+":states/apps/other.tfstate"))
	for name, tt := range map[string]struct {
		content []byte
		state   []byte // that is read; nil if none is
		foreign bool
	}{
		"an older version":         {first, stateOf(1, ""), false},
		"a plain state":            {stateOf(9, ""), nil, false},
		"no state":                 {[]byte("hello"), nil, false},
		"another serial":           {bytes.Replace(second, []byte(`"serial": 2`), []byte(`"serial": 3`), 1), nil, false},
		"another lineage":          {bytes.ReplaceAll(second, []byte(lineage), []byte("other")), nil, false},
		"a bit of what is sealed":  {bytes.Replace(second, []byte(`"encrypted_data": "`), []byte(`"encrypted_data": "AAAA`), 1), nil, false},
		"the state of another":     {other, nil, false},
		"the note of another":      {bytes.Replace(second, []byte(`"of": "sha256:`), []byte(`"of": "sha256:0`), 1), stateOf(2, ""), true},
		"an empty file":            {[]byte{}, nil, false},
		"the same file once again": {second, stateOf(2, ""), false},
	} {
		t.Run(name, func(t *testing.T) {
			r.put(t, tt.content)
			found, err := s.Load(t.Context(), r.ref)
			if tt.state == nil && (fault.Reason(err, "") != kube.StateUnreadable || !strings.HasPrefix(found.Digest, "unreadable:") || found.State != nil) {
				t.Errorf("Load() = %+v, %v; want it unreadable", found, err)
			}
			if tt.state != nil && (err != nil || !bytes.Equal(found.State, tt.state) || found.Foreign != tt.foreign) {
				t.Errorf("Load() = %+v, %v; want %s", found, err, tt.state)
			}
			if err := s.Save(t.Context(), r.ref, owner, stateOf(3, "")); tt.state == nil || tt.foreign {
				if fault.Reason(err, "") != kube.StateConflict {
					t.Errorf("Save() over it = %v, want a conflict", err)
				}
			}
		})
	}
	r.put(t, nil)
	for _, gone := range []struct {
		what string
		lose func()
	}{
		{"the file is deleted", func() {}},
		{"the branch is deleted", func() { r.Bare("update-ref", "-d", "refs/heads/"+stack.GitBranch) }},
		{"the repository is emptied", func() { r.Bare("gc", "--quiet", "--prune=now") }},
	} {
		gone.lose()
		if found, err := s.Load(t.Context(), r.ref); err != nil || found.Digest != "" {
			t.Errorf("%s: %+v, %v; want no state", gone.what, found, err)
		}
	}
}

// History that was rewritten around a file that is the same changes nothing. The next commit
// is on top of it.
func TestHistoryThatIsRewritten(t *testing.T) {
	r := newRepository(t)
	s := r.controller(t)
	save(t, s, r.ref, stateOf(1, ""))
	save(t, s, r.ref, stateOf(2, ""))
	tree := strings.TrimSpace(r.Bare("rev-parse", stack.GitBranch+"^{tree}"))
	squashed := strings.TrimSpace(r.Bare("commit-tree", "-m", "squashed", tree))
	r.Bare("update-ref", "refs/heads/"+stack.GitBranch, squashed)
	if found, err := s.Load(t.Context(), r.ref); err != nil || !bytes.Equal(found.State, stateOf(2, "")) || found.Foreign {
		t.Errorf("Load() = %+v, %v", found, err)
	}
	save(t, s, r.ref, stateOf(3, ""))
	if parent := strings.TrimSpace(r.Bare("rev-parse", stack.GitBranch+"^")); parent != squashed {
		t.Errorf("the parent is %s, want %s", parent, squashed)
	}
}

// Of two controllers that store different states one wins, and the other is told. States of
// different stacks do not hinder each other.
func TestTwoWriters(t *testing.T) {
	r := newRepository(t)
	a, b := r.controller(t), r.controller(t)
	save(t, a, r.ref, stateOf(1, ""))
	var all sync.WaitGroup
	errs := make([]error, 2)
	for i, s := range []*States{a, b} {
		all.Go(func() { errs[i] = s.Save(t.Context(), r.ref, owner, stateOf(2, fmt.Sprint(i))) })
		all.Go(func() {
			if err := s.Save(t.Context(), r.of(fmt.Sprintf("other-%d", i)), owner, stateOf(1, "")); err != nil {
				t.Errorf("the state of another stack: %v", err)
			}
		})
	}
	all.Wait()
	if (errs[0] == nil) == (errs[1] == nil) || fault.Reason(errors.Join(errs...), "") != kube.StateConflict {
		t.Fatalf("the writers end with %v and %v; want that one wins", errs[0], errs[1])
	}
	winner := 0
	if errs[0] != nil {
		winner = 1
	}
	if found, err := r.controller(t).Load(t.Context(), r.ref); err != nil || !bytes.Equal(found.State, stateOf(2, fmt.Sprint(winner))) {
		t.Errorf("stored is %s, %v; want that of the winner", found.State, err)
	}
	r.clear(t)
}

// A server that is out loses nothing: the same state is stored later.
func TestAServerThatIsOut(t *testing.T) {
	r := newRepository(t)
	s := r.controller(t)
	save(t, s, r.ref, stateOf(1, ""))
	r.out.Store(true)
	for name, err := range map[string]error{
		"Save()": s.Save(t.Context(), r.ref, owner, stateOf(2, "")),
		"Load()": func() error { _, err := s.Load(t.Context(), r.ref); return err }(),
	} {
		if fault.Of(err) != fault.Later || fault.Reason(err, "") != string(stack.StateFailed) || !strings.Contains(err.Error(), "tries again") {
			t.Errorf("%s = %v, want Later", name, err)
		}
	}
	r.out.Store(false)
	save(t, s, r.ref, stateOf(2, ""))
	if found, err := s.Load(t.Context(), r.ref); err != nil || !bytes.Equal(found.State, stateOf(2, "")) {
		t.Errorf("Load() = %s, %v", found.State, err)
	}
}

// A new key of the platform encrypts the state again, and a controller without the key of a
// state takes it for none.
func TestKeysOfStatesInGit(t *testing.T) {
	r := newRepository(t)
	save(t, r.controller(t), r.ref, stateOf(1, ""))
	s := r.controller(t, "two")
	found, err := s.Load(t.Context(), r.ref)
	if err != nil || !found.Outdated(r.ref) {
		t.Fatalf("with a new key it reads %+v, %v; want it outdated", found, err)
	}
	if err := s.Reform(t.Context(), r.ref); err != nil {
		t.Fatal(err)
	}
	if id := encryption.KeyOf(r.file(t)); id != "two" {
		t.Errorf("it is encrypted with the key %q", id)
	}
	if again, err := s.Load(t.Context(), r.ref); err != nil || again.Digest != found.Digest || again.Owner != "net" || again.OwnerUID != "uid" || again.Outdated(r.ref) {
		t.Errorf("encrypted again it reads %+v, %v", again, err)
	}
	if _, err := r.controller(t).Load(t.Context(), r.ref); fault.Reason(err, "") != kube.StateUnreadable {
		t.Errorf("without the key: %v, want it unreadable", err)
	}
	r.clear(t)
}

// A controller that is killed between the commit and the push, or before it hears of the
// push, stores the state once, and the next one finds what it needs.
func TestAControllerThatIsKilled(t *testing.T) {
	if at := os.Getenv("GITSTATE_CRASH"); at != "" {
		crash(t, at)
		return
	}
	for _, when := range []string{"before", "after"} {
		t.Run(when, func(t *testing.T) {
			r := newRepository(t)
			save(t, r.controller(t), r.ref, stateOf(1, ""))
			acts := filepath.Join(t.TempDir(), "acts")
			if err := os.WriteFile(acts, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAControllerThatIsKilled$")
			command.Env = append(os.Environ(), "TMPDIR="+t.TempDir(), "GITSTATE_CRASH="+r.URL, "GITSTATE_LOGIN="+r.Username+":"+r.Password,
				fmt.Sprintf("%s=crash:%s:git/push@%s", failpoint.Env, when, acts))
			out, err := command.CombinedOutput()
			text, readErr := os.ReadFile(acts)
			if readErr != nil {
				t.Fatal(readErr)
			}
			if _, crashed := failpoint.Crashed(text); !crashed || err == nil {
				t.Fatalf("the process ended with %v, its acts are %s, and it said %s", err, text, out)
			}
			s := r.controller(t)
			if found, err := s.Load(t.Context(), r.ref); err != nil || bytes.Equal(found.State, stateOf(2, "")) != (when == "after") {
				t.Errorf("after the crash it reads %s, %v", found.State, err)
			}
			save(t, s, r.ref, stateOf(2, ""))
			if n := strings.TrimSpace(r.Bare("rev-list", "--count", stack.GitBranch)); n != "2" {
				t.Errorf("there are %s commits, want one for each version", n)
			}
			r.clear(t)
		})
	}
}

// crash is the controller that is killed.
func crash(t *testing.T, url string) {
	if err := failpoint.Arm(os.Getenv(failpoint.Env)); err != nil {
		t.Fatal(err)
	}
	user, password, _ := strings.Cut(os.Getenv("GITSTATE_LOGIN"), ":")
	r := &repository{Git: &testkit.Git{URL: url}, objects: objects{"Secret push": &corev1.Secret{Data: map[string][]byte{"username": []byte(user), "password": []byte(password)}}}}
	save(t, r.controller(t), r.of("net"), stateOf(2, ""))
}
