package app

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/cli"
	"github.com/terrier-iac/terrier/internal/client"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/dialecttest"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
	"github.com/terrier-iac/terrier/internal/web"
)

// twoKinds is a platform whose cluster has stacks of two kinds: net of both, and
// solo of the second.
type twoKinds struct {
	*testkit.Cluster
	kinds query.Kinds
	auth  *access.KubeAuth
	board *query.Board
	kube  *command.Stacks
	url   string
	ca    string // a file
}

func (k twoKinds) key(name string) query.Key {
	return query.Key{Namespace: k.Namespace, Name: name, Kind: dialecttest.Word}
}

func newTwoKinds(t *testing.T) twoKinds {
	t.Helper()
	k := twoKinds{Cluster: testkit.Kube(t, v1alpha2.AddToScheme), kinds: dialect.NewRegistry(infra.Dialect{}, dialecttest.Second{})}
	testkit.Define(t, k.Cluster, dialecttest.Definition, dialecttest.Second{}.NewList())
	k.Apply(t, `
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: net}
spec: {sourceRef: {kind: GitRepository, name: modules}, interval: 1h}
---
apiVersion: second.example.com/v1
kind: Terraform
metadata: {name: net}
spec: {code: https://git.example.com/net}
---
apiVersion: second.example.com/v1
kind: Terraform
metadata: {name: solo}
spec: {code: https://git.example.com/solo, needs: [{kind: Terraform.infra.contrib.fluxcd.io, name: net}]}
`)
	records := query.NewBlobs(nothingKept{}, nothingKept{}, time.Millisecond)
	var err error
	if k.auth, err = access.NewKubeAuth(k.Config, k.kinds); err != nil {
		t.Fatal(err)
	}
	kube, err := access.NewClient(k.Config, k.kinds)
	if err != nil {
		t.Fatal(err)
	}
	people, err := command.NewPeople(k.Config, k.kinds, records, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	k.kube, k.board = command.New(kube, k.kinds, records, time.Now), boardOf(t, k.Cluster, k.kinds)
	scopes := access.NewKindScopes(k.auth, k.kinds.Words(), func(kind string) func() []string { return query.NamespacesOf(k.board, kind) }, access.ScopeOptions{Now: time.Now})
	h, err := web.New(web.Options{
		Kinds: k.kinds, Stacks: k.kube, Details: query.NewDetails(k.kube.Stacks, records, records), Board: k.board, Auth: k.auth, People: people.As,
		Scopes: scopes.Scope, SoFar: scopes.SoFar, Hosts: []string{"127.0.0.1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewTLSServer(h)
	t.Cleanup(srv.Close)
	k.url, k.ca = srv.URL, filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(k.ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return k
}

// nothingKept is a store without records.
type nothingKept struct{}

func (nothingKept) Get(_ context.Context, key string) ([]byte, error) {
	return nil, fault.New(fault.Missing, "BlobMissing", fmt.Errorf("no %s", key))
}

func (nothingKept) List(context.Context, string) ([]string, error) { return nil, nil }

func (nothingKept) Current(string) (*query.Report, error) { return nil, nil }

func (nothingKept) Open(_, run, _ string) (io.ReadCloser, error) {
	return nil, fault.New(fault.Missing, "FileMissing", fmt.Errorf("no %s", run))
}

// overHTTP is the client of the server.
func (k twoKinds) overHTTP(t *testing.T) command.StackAPI {
	t.Helper()
	base, err := url.Parse(k.url)
	if err != nil {
		t.Fatal(err)
	}
	return client.Dial(base, &http.Client{Transport: bearer{k.Config.BearerToken, trusting(t, k.ca)}}).Stacks
}

// report has the second kind's object say what the controller says.
func (k twoKinds) report(t *testing.T, name string, r dialect.Summary) {
	t.Helper()
	o := k.second(t, name)
	dialecttest.Second{}.Encode(o, r)
	if err := k.Client.Status().Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, testkit.Patience, "the board shows it", func(context.Context) error {
		if row, _ := k.board.Get(k.key(name)); row.Phase != string(r.Decision.Reason) {
			return fmt.Errorf("its phase is %q", row.Phase)
		}
		return nil
	})
}

func (k twoKinds) second(t *testing.T, name string) kubeclient.Object {
	t.Helper()
	o := dialecttest.Second{}.New()
	if err := k.Client.Get(t.Context(), kubeclient.ObjectKey{Namespace: k.Namespace, Name: name}, o); err != nil {
		t.Fatal(err)
	}
	return o
}

// A second kind of stack is listed, described, commanded and watched as the first,
// over a kubeconfig and over the HTTP API, and is never taken for a stack of the same
// name and another kind.
func TestASecondKindIsServed(t *testing.T) {
	k := newTwoKinds(t)
	pending := &stack.Plan{Name: "plan-main-1", Digest: "sha256:1", PlanInputs: stack.PlanInputs{Revision: "main@sha1:1"}, Changes: stack.Changes{Add: 1}}
	k.report(t, "net", dialect.Summary{
		Decision: stack.Decision{Reason: stack.AwaitingApproval, Rule: "approve", Message: "waits for an approval"},
		Status:   stack.Status{Plans: stack.Plans{Pending: pending, Planned: pending.PlanInputs}}, Now: time.Now().Truncate(time.Second),
	})
	first, second := query.Key{Namespace: k.Namespace, Name: "net"}, k.key("net")
	for name, api := range map[string]command.StackAPI{"kubeconfig": k.kube, "HTTP": k.overHTTP(t)} {
		t.Run(name, func(t *testing.T) {
			list, err := api.List(t.Context(), query.Filter{Namespace: k.Namespace})
			if err != nil || len(list) != 3 || list[0].Key() != first || list[1].Key() != second || list[2].Key() != k.key("solo") {
				t.Fatalf("List() = %+v, %v, want net of both kinds, and solo", list, err)
			}
			d, err := api.Describe(t.Context(), second)
			if err != nil || d.Key() != second || d.Source != "https://git.example.com/net" || d.Plan == nil || d.Pending != pending.Name || len(d.Conditions) != 1 {
				t.Errorf("Describe() = %+v, %v, want the second stack", d, err)
			}
			if solo, err := api.Describe(t.Context(), k.key("solo")); err != nil || !slices.Equal(solo.DependsOn, []string{first.String()}) {
				t.Errorf("solo depends on %q, %v, want %s", solo.DependsOn, err, first)
			}
			if e, err := api.Explain(t.Context(), second); err != nil || e.Stack.Phase != string(stack.AwaitingApproval) {
				t.Errorf("Explain() = %+v, %v", e.Stack, err)
			}
			if _, err := api.Get(t.Context(), query.Key{Namespace: k.Namespace, Name: "solo"}); fault.Of(err) != fault.Missing {
				t.Errorf("a stack of the first kind is found under the name of one of the second: %v", err)
			}
			k.commands(t, api)
		})
	}
	var o v1alpha2.Terraform
	if err := k.Client.Get(t.Context(), kubeclient.ObjectKey{Namespace: k.Namespace, Name: "net"}, &o); err != nil {
		t.Fatal(err)
	}
	asked := (infra.Dialect{}).View(&o).Asked
	asked.RequestedBy, asked.Stamped = "", "" // the API server stamps whose stack it is
	if o.Generation != 1 || asked != (dialect.Asked{}) {
		t.Errorf("the stack of the first kind was changed, and asks %+v", asked)
	}
}

// commands carries out the commands of users on the second net, and takes them back.
func (k twoKinds) commands(t *testing.T, api command.StackAPI) {
	t.Helper()
	d, asked := dialecttest.Second{}, func() dialect.Asked { return dialecttest.Second{}.View(k.second(t, "net")).Asked }
	seen, key := query.PlanInfo{Name: "plan-main-1", Digest: "sha256:1"}, k.key("net")
	if st, err := api.Approve(t.Context(), key, seen, "fine"); err != nil || st.Key() != key || st.Approved != seen.Name || asked().Comment != "fine" {
		t.Errorf("Approve() = %+v, %v, and the object asks %+v", st, err, asked())
	}
	if _, err := api.Reject(t.Context(), key, seen, ""); err != nil || asked().Approved != "" || asked().Rejected != seen.Name {
		t.Errorf("Reject() = %v, and the object asks %+v", err, asked())
	}
	request, err := api.Replan(t.Context(), key)
	if err != nil || asked().Replan != request {
		t.Errorf("Replan() = %q, %v, and the object asks %+v", request, err, asked())
	}
	if err := api.Suspend(t.Context(), key); err != nil || !asked().Suspended {
		t.Errorf("Suspend() = %v, and the object asks %+v", err, asked())
	}
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	for c, err := range api.Watch(ctx, key.Filter()) {
		if err != nil || c.Key() != key {
			t.Fatalf("Watch() yields %+v, %v", c, err)
		}
		if c.Suspended {
			break
		}
	}
	if err := api.Resume(t.Context(), key); err != nil || asked().Suspended {
		t.Errorf("Resume() = %v, and the object asks %+v", err, asked())
	}
	if err := api.EndBreakGlass(t.Context(), key); err != nil {
		t.Error(err)
	}
	o := k.second(t, "net")
	d.Ask(o, dialect.Asked{})
	if err := k.Client.Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// Pages have the second kind in lists, and each stack under an address of its own.
func TestPagesOfASecondKind(t *testing.T) {
	k := newTwoKinds(t)
	c := &http.Client{Transport: bearer{k.Config.BearerToken, trusting(t, k.ca)}}
	get := func(path string) (int, string) {
		resp, err := c.Get(k.url + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	firstPath, secondPath := "/stacks/"+k.Namespace+"/net", "/stacks/"+k.Namespace+"/"+dialecttest.Word+":net"
	if code, page := get("/stacks?namespace=" + k.Namespace); code != http.StatusOK || !strings.Contains(page, `href="`+firstPath+`"`) || !strings.Contains(page, `href="`+secondPath+`"`) {
		t.Errorf("the list is %d, and leads not to both stacks:\n%s", code, page)
	}
	for path, source := range map[string]string{firstPath: "GitRepository/modules", secondPath: "https://git.example.com/net"} {
		if code, page := get(path); code != http.StatusOK || !strings.Contains(page, path+"/runs") || !strings.Contains(page, source) {
			t.Errorf("%s is %d, and has no tab of its own, or not the source %s:\n%s", path, code, source, page)
		}
	}
	// The first kind has its own name, too, so that an address can be made of any kind.
	if code, _ := get("/stacks/" + k.Namespace + "/terraform.infra.contrib.fluxcd.io:net"); code != http.StatusOK {
		t.Errorf("the first kind is not known by its name: %d", code)
	}
	if code, _ := get("/stacks/" + k.Namespace + "/terraform.example.com:net"); code != http.StatusUnprocessableEntity {
		t.Errorf("a kind that there is not is answered with %d", code)
	}
	if code, page := get(secondPath + "/graph"); code != http.StatusOK || !strings.Contains(page, "net") {
		t.Errorf("the graph is %d:\n%s", code, page)
	}
}

// A role for the resource of one kind is none for that of another.
func TestRightsBelongToTheKind(t *testing.T) {
	k := newTwoKinds(t)
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: "second"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"second.example.com"}, Resources: []string{"terraforms", "terraforms/plan"}, Verbs: []string{"get", "list"}},
	}}
	bound := &rbacv1.RoleBinding{ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "second"},
		Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: "ann-of-" + k.Namespace}}}
	for _, o := range []kubeclient.Object{role, bound} {
		if err := k.Client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	ann := access.User{Name: "ann-of-" + k.Namespace}
	testkit.Eventually(t, testkit.Patience, "ann may see stacks of the second kind alone", func(ctx context.Context) error {
		for kind, may := range map[string]bool{"": false, dialecttest.Word: true} {
			for _, r := range []access.Resource{access.ResourceStacks, access.ResourcePlan} {
				err := k.auth.Authorize(ctx, ann, access.Request{Verb: "get", Resource: r, Kind: kind, Namespace: k.Namespace, Name: "net"})
				if (err == nil) != may {
					return fmt.Errorf("get %s of the kind %q is %v, want %t", r, kind, err, may)
				}
			}
		}
		return nil
	})
	scopes := access.NewKindScopes(k.auth, k.kinds.Words(), func(kind string) func() []string { return query.NamespacesOf(k.board, kind) }, access.ScopeOptions{Now: time.Now})
	scope, err := scopes.Scope(t.Context(), ann)
	if err != nil {
		t.Fatal(err)
	}
	page, err := k.board.Page(scope, query.BoardQuery{})
	if err != nil || page.Total != 2 || page.Items[0].Key() != k.key("net") || page.Items[1].Key() != k.key("solo") {
		t.Errorf("ann sees %+v, %v, want the stacks of the second kind", page.Items, err)
	}
}

// The command line has a column for the kind, takes KIND/NAME, and asks back where a
// name has two meanings.
func TestCommandLineWithTwoKinds(t *testing.T) {
	k := newTwoKinds(t)
	run := func(args ...string) (code int, out, errs string) {
		var o, e bytes.Buffer
		code = cli.Main(cli.Env{
			Args: args, Environ: []string{"TERRIER_SERVER=" + k.url, "TERRIER_TOKEN=" + k.Config.BearerToken, "TERRIER_SERVER_CA=" + k.ca},
			Stdin: strings.NewReader(""), Stdout: &o, Stderr: &e, Dir: t.TempDir(), Now: time.Now, Version: "v1", Kinds: k.kinds,
		})
		return code, o.String(), e.String()
	}
	for _, tt := range []struct {
		args string
		code int
		says []string
	}{
		{"get", 0, []string{"KIND", "terraform.infra.contrib.fluxcd.io", dialecttest.Word, "solo"}},
		{"get -o name", 0, []string{"net\n" + dialecttest.Word + "/net\n" + dialecttest.Word + "/solo\n"}},
		{"get solo", 0, []string{dialecttest.Word}},
		{"get net", 2, []string{"terraform.infra.contrib.fluxcd.io/" + k.Namespace + "/net, " + dialecttest.Word + "/" + k.Namespace + "/net"}},
		{"describe " + dialecttest.Word + "/net", 0, []string{"https://git.example.com/net"}},
		{"describe terraform.infra.contrib.fluxcd.io/net", 0, []string{"GitRepository/modules"}},
		{"suspend " + dialecttest.Word + "/net", 0, []string{"Suspended " + dialecttest.Word + "/" + k.Namespace + "/net."}},
		{"resume solo", 0, []string{"Resumed " + dialecttest.Word + "/" + k.Namespace + "/solo."}},
		{"get nothing", 4, []string{"does not exist"}},
	} {
		code, out, errs := run(append(strings.Fields(tt.args), "-n", k.Namespace)...)
		if code != tt.code {
			t.Errorf("terrier %s ends with %d, want %d: %s%s", tt.args, code, tt.code, out, errs)
		}
		for _, s := range tt.says {
			if !strings.Contains(out+errs, s) {
				t.Errorf("terrier %s does not say %q:\n%s%s", tt.args, s, out, errs)
			}
		}
	}
	_, completed, _ := run("__complete", "get", "-n", k.Namespace, "")
	for _, name := range []string{"solo", dialecttest.Word + "/net", "terraform.infra.contrib.fluxcd.io/net"} {
		if !slices.ContainsFunc(strings.Fields(completed), func(s string) bool { return s == name }) {
			t.Errorf("%s is not completed:\n%s", name, completed)
		}
	}
}

// bearer adds a token to requests.
type bearer struct {
	token string
	next  http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r)
}

// trusting is a transport that trusts the certificate in a file.
func trusting(t *testing.T, file string) http.RoundTripper {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(raw) {
		t.Fatal("the file holds no certificate")
	}
	return &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
}
