package aftersteps

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/terrier-iac/terrier/internal/afterapply"
	"github.com/terrier-iac/terrier/internal/archive/archivetest"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
)

const byHand = `# written by hand
all:
  children:
    web:
      hosts:
        web00: {ansible_host: 10.0.0.100} # stays
`

// estate is a repository with a hosts.yml, and what Terrier needs to write to it.
type estate struct {
	*testkit.Git
	writer *Hosts
	client client.Client
}

func newEstate(t *testing.T) *estate {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), sourcev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	e := &estate{Git: testkit.NewGit(t)}
	e.AllowPush()
	e.Commit(map[string]string{"inv/hosts.yml": byHand, "main.tf": "1"})
	e.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "push"}, Data: map[string][]byte{"username": []byte(e.Username), "password": []byte(e.Password)}},
		&sourcev1.GitRepository{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "estate"}, Spec: sourcev1.GitRepositorySpec{URL: e.URL, Reference: &sourcev1.GitRepositoryRef{Branch: "main"}, SecretRef: &fluxmeta.LocalObjectReference{Name: "push"}}},
		&sourcev1.GitRepository{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "tagged"}, Spec: sourcev1.GitRepositorySpec{URL: e.URL, Reference: &sourcev1.GitRepositoryRef{Tag: "v1"}}},
	).Build()
	e.writer = &Hosts{Client: e.client, Out: outboundTo(t), Scratch: t.TempDir(), Now: func() time.Time { return time.Unix(1700000000, 0) }}
	return e
}

// file is a file of a branch.
func (e *estate) file(branch, name string) string { return e.Bare("show", branch+":"+name) }

func outboundTo(t *testing.T) *outbound.Client {
	t.Helper()
	allow, err := outbound.ParseAllow("127.0.0.0/8")
	if err != nil {
		t.Fatal(err)
	}
	out := outbound.New(outbound.Policy{Allow: allow, PlainHTTP: true})
	t.Cleanup(out.Close)
	return out
}

func (e *estate) write(t *testing.T, stackName, branch, hosts string) (string, error) {
	t.Helper()
	f := For{Namespace: "a", Name: stackName, By: ManagedBy("Terraform", "a", stackName), Run: "r1", Secrets: e.client}
	return e.writer.Write(t.Context(), f, Order{Step: "hosts", Path: "inv/hosts.yml", HostsFrom: "hosts", Source: "estate", Branch: branch}, map[string]kube.Output{"hosts": {Value: json.RawMessage(hosts)}})
}

// Hosts are written on top of what is there, to the branch that the source follows. What others
// wrote stays, and hosts that are destroyed vanish.
func TestHostsAreWritten(t *testing.T) {
	e := newEstate(t)
	said, err := e.write(t, "net", "", `{"web01": {"ip": "10.0.0.1", "groups": ["web"]}, "db01": "10.0.0.2"}`)
	if err != nil || !strings.HasPrefix(said, "wrote inv/hosts.yml to the branch main: ") {
		t.Fatalf("Write() = %q, %v", said, err)
	}
	text := e.file("main", "inv/hosts.yml")
	for _, want := range []string{"# written by hand", "web00: {ansible_host: 10.0.0.100} # stays", "web01", "10.0.0.2"} {
		if !strings.Contains(text, want) {
			t.Errorf("the file has no %q:\n%s", want, text)
		}
	}
	if e.file("main", "main.tf") != "1" {
		t.Error("a file beside it is another one")
	}
	if said, err = e.write(t, "net", "", `{"web01": {"ip": "10.0.0.1", "groups": ["web"]}, "db01": "10.0.0.2"}`); err != nil || said != "inv/hosts.yml of the branch main has the 2 hosts of the output hosts" {
		t.Errorf("Write() of the same = %q, %v, want that nothing was to be done", said, err)
	}
	if _, err = e.write(t, "net", "", `{"web01": {"ip": "10.0.0.9", "groups": ["web"]}}`); err != nil {
		t.Fatal(err)
	}
	if text = e.file("main", "inv/hosts.yml"); strings.Contains(text, "db01") || !strings.Contains(text, "10.0.0.9") || !strings.Contains(text, "# stays") {
		t.Errorf("after a host was destroyed the file is:\n%s", text)
	}
	gone := Order{Step: "hosts", Path: "inv/hosts.yml", HostsFrom: "hosts", Source: "estate", Remove: true}
	for _, of := range []For{{Namespace: "a", Name: "other", By: ManagedBy("Terraform", "a", "other")}, {Namespace: "a", Name: "net", By: ManagedBy("Terraform", "a", "net")}} {
		of.Secrets = e.client
		if _, err := e.writer.Write(t.Context(), of, gone, nil); err != nil {
			t.Fatal(err)
		}
		if text := e.file("main", "inv/hosts.yml"); strings.Contains(text, "web01") != (of.Name == "other") || !strings.Contains(text, "# stays") {
			t.Errorf("after the resources of %s were destroyed the file is:\n%s", of.Name, text)
		}
	}
	if _, err = e.write(t, "net", "", `{"web01": {"ip": "10.0.0.9", "groups": ["web"]}}`); err != nil {
		t.Fatal(err)
	}
	if _, err = e.write(t, "other", "", `{"web01": "10.0.0.3"}`); fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), "is managed by") {
		t.Errorf("Write() of the host of another stack = %v, want Invalid", err)
	}
}

// A branch for a review begins with the one that the source follows, and goes on from itself.
func TestHostsAreWrittenForAReview(t *testing.T) {
	e := newEstate(t)
	if said, err := e.write(t, "net", "hosts/net", `{"web01": "10.0.0.1"}`); err != nil || !strings.HasSuffix(said, ". Merge it into main") {
		t.Fatalf("Write() = %q, %v", said, err)
	}
	if e.file("main", "inv/hosts.yml") != byHand || e.file("hosts/net", "main.tf") != "1" || !strings.Contains(e.file("hosts/net", "inv/hosts.yml"), "10.0.0.1") {
		t.Errorf("main has %s\nand the branch %s", e.file("main", "inv/hosts.yml"), e.file("hosts/net", "inv/hosts.yml"))
	}
	if said, err := e.write(t, "net", "hosts/net", `{"web01": "10.0.0.1"}`); err != nil || !strings.HasSuffix(said, "hosts/net has the 1 host of the output hosts: merge it into main") {
		t.Errorf("Write() of the same = %q, %v", said, err)
	}
	if _, err := e.write(t, "net", "hosts/net", `{"web02": "10.0.0.2"}`); err != nil || strings.Contains(e.file("hosts/net", "inv/hosts.yml"), "web01") {
		t.Errorf("Write() of others = %v, and the branch has\n%s", err, e.file("hosts/net", "inv/hosts.yml"))
	}
}

// Several stacks write one file at once, and none loses the hosts of another.
func TestHostsOfSeveralStacksInOneFile(t *testing.T) {
	e := newEstate(t)
	var all sync.WaitGroup
	names := []string{"one", "two", "three"}
	errs := make([]error, len(names))
	for i, name := range names {
		all.Go(func() { _, errs[i] = e.write(t, name, "", `{"`+name+`": "10.0.0.1"}`) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	text := e.file("main", "inv/hosts.yml")
	for _, name := range names {
		if !strings.Contains(text, name+":") {
			t.Errorf("the hosts of %s are lost:\n%s", name, text)
		}
	}
}

// A file that cannot be written says why, and what to do.
func TestHostsThatCannotBeWritten(t *testing.T) {
	e := newEstate(t)
	outputs := map[string]kube.Output{"hosts": {Value: json.RawMessage(`{"a": "10.0.0.1"}`)}, "hidden": {Value: json.RawMessage(`{"a": "10.0.0.1"}`), Sensitive: true}}
	for want, o := range map[string]Order{
		"the GitRepository none does not exist":      {Path: "hosts.yml", HostsFrom: "hosts", Source: "none"},
		"the GitRepository tagged follows no branch": {Path: "hosts.yml", HostsFrom: "hosts", Source: "tagged"},
		"reading the credentials for the repository": {Path: "hosts.yml", HostsFrom: "hosts", Source: "estate", Secret: "none"},
		"it is sensitive":                            {Path: "hosts.yml", HostsFrom: "hidden", Source: "estate"},
		"main.yml: hosts.yml:1":                      {Path: "main.yml", HostsFrom: "hosts", Source: "estate"},
	} {
		e.Commit(map[string]string{"inv/hosts.yml": byHand, "main.yml": "all: [1]\n"})
		if _, err := e.writer.Write(t.Context(), For{Namespace: "a", By: "x", Secrets: e.client}, o, outputs); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Write(%+v) = %v, want %q", o, err, want)
		}
	}
}

// What a step says of a repository that refuses it has no credentials: neither those of the
// Secret, nor those in the URL of a GitRepository.
func TestHostsSayNoCredentials(t *testing.T) {
	e := newEstate(t)
	const canary = "canary-4be1"
	loud := strings.Replace(e.URL, "://", "://"+e.Username+":"+canary+"@", 1)
	for _, o := range []client.Object{
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "wrong"}, Data: map[string][]byte{"username": []byte(e.Username), "password": []byte(canary)}},
		&sourcev1.GitRepository{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "loud"}, Spec: sourcev1.GitRepositorySpec{URL: loud, Reference: &sourcev1.GitRepositoryRef{Branch: "main"}}},
	} {
		if err := e.client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	outputs := map[string]kube.Output{"hosts": {Value: json.RawMessage(`{"a": "10.0.0.1"}`)}}
	for _, o := range []Order{{Path: "inv/hosts.yml", HostsFrom: "hosts", Source: "estate", Secret: "wrong"}, {Path: "inv/hosts.yml", HostsFrom: "hosts", Source: "loud"}} {
		if said, err := e.writer.Write(t.Context(), For{Namespace: "a", By: "x", Secrets: e.client}, o, outputs); err == nil || strings.Contains(err.Error(), canary) || strings.Contains(said, canary) {
			t.Errorf("Write(%+v) = %q, %v, want a failure without the password", o, said, err)
		}
	}
}

// A file that is not what the outputs say fails the step with what is different; a step that
// writes names what it would write, and needs a repository to write to.
func TestInventoryOfAStep(t *testing.T) {
	outputs := map[string]kube.Output{"hosts": {Value: json.RawMessage(`{"web00": {"ip": "10.0.0.1", "groups": ["web"]}, "web01": "10.0.0.2"}`)}}
	git := &stack.Ref{Kind: "GitRepository", Name: "estate"}
	tree := Tree{Archive: archivetest.Pack(t, map[string]string{"inv/hosts.yml": byHand, "inv/net/main.tf": "1"}), Module: "inv/net", Source: git, Namespace: "a", By: "x"}
	inline, bucket, elsewhere := tree, tree, tree
	inline.Archive, inline.Source = "", nil
	bucket.Source = &stack.Ref{Kind: "Bucket", Name: "b"}
	elsewhere.Source = &stack.Ref{Kind: "GitRepository", Name: "estate", Namespace: "b"}
	for name, tt := range map[string]struct {
		tree         Tree
		of           afterapply.Inventory
		said, broken string
	}{
		"another value and a host that is missing": {tree, afterapply.Inventory{Path: "../hosts.yml"}, "", "~ web00: ansible_host is 10.0.0.100, want 10.0.0.1\n+ web01: ansible_host 10.0.0.2\ninv/hosts.yml is not what the output hosts says: 2 differences."},
		"no file":                      {tree, afterapply.Inventory{Path: "hosts.yml"}, "", "inventory.path: the source has no file inv/net/hosts.yml"},
		"no source":                    {inline, afterapply.Inventory{Path: "hosts.yml"}, "", "inventory: the stack has no source"},
		"a commit":                     {tree, afterapply.Inventory{Path: "../hosts.yml", Mode: afterapply.Commit}, "Terrier writes 2 hosts to inv/hosts.yml", ""},
		"a commit to a bucket":         {bucket, afterapply.Inventory{Path: "hosts.yml", Mode: afterapply.Commit}, "", "inventory: the source of the stack is no GitRepository"},
		"a commit to another's source": {elsewhere, afterapply.Inventory{Path: "hosts.yml", Mode: afterapply.Commit}, "", "inventory: the GitRepository is in another namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			tt.of.HostsFrom = "hosts"
			steps := []afterapply.Step{{Name: "hosts", Inventory: &tt.of}}
			made := Job(steps, outputs, nil, tt.tree)
			if got := made[0]; got.Said != tt.said || !strings.HasPrefix(got.Broken, tt.broken) || (got.Broken == "") != (tt.broken == "") {
				t.Errorf("Job() says %q and is broken by %q, want %q and %q", got.Said, got.Broken, tt.said, tt.broken)
			}
			if got := len(Orders(steps, made, tt.tree)); (got == 1) != (tt.of.Writes() && tt.broken == "") {
				t.Errorf("Orders() has %d orders", got)
			}
		})
	}
	writes := []afterapply.Step{{Name: "hosts", Inventory: &afterapply.Inventory{Path: "../hosts.yml", HostsFrom: "hosts", Mode: afterapply.Commit}}, {Name: "verify", Inventory: &afterapply.Inventory{Path: "../other.yml", HostsFrom: "hosts"}}}
	if got := Removals(writes, tree); len(got) != 1 || got[0].Path != "inv/hosts.yml" || !got[0].Remove || Removals(writes, bucket) != nil || Removals(writes, inline) != nil {
		t.Errorf("Removals() = %+v, want that of the file that is written, and none without a repository", got)
	}
	if got := Orders([]afterapply.Step{{Name: "say", Command: []string{"true"}}}, []runner.AfterStep{{Name: "say"}}, tree); got != nil {
		t.Errorf("Orders() of a program = %v", got)
	}
}
