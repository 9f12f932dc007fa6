package cli

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/access/regtoken"
	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/dialect/kinds"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/query/usedby"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
	"github.com/terrier-iac/terrier/internal/web"
)

// platform is a cluster with stacks and tenants, and a server that answers for
// all of it.
type platform struct {
	estate
	url string
}

// newPlatform makes two equal platforms comparable: each has a namespace of its own,
// and the same objects and records.
func newPlatform(t *testing.T) platform {
	t.Helper()
	p := platform{estate: estate{Env: env(t), cluster: testkit.Kube(t, v1alpha2.AddToScheme, tenantsv1.AddToScheme), records: kept{}}}
	ns := p.cluster.Namespace
	p.cluster.Apply(t, strings.Replace(manifest, ", namespace: apps", "", 1)+"---\n"+strings.Replace(shopManifest, ", namespace: shop", "", 1)+`---
apiVersion: v1
kind: Secret
metadata: {name: network-outputs, annotations: {terrier.dev/public-outputs: '["cidr"]'}}
stringData: {cidr: 10.0.0.0/8, password: hunter22}
---
apiVersion: operator.kubernetes-tenants.org/v1
kind: Tenant
metadata:
  name: acme-web
  labels: {kubernetes-tenants.org/registry: customers, kubernetes-tenants.org/uid: acme}
  annotations: {kubernetes-tenants.org/template-generation: "1", kubernetes-tenants.org/extra: '{"replicas":"3"}'}
spec: {uid: acme, templateRef: web}
`)
	now := p.object(t).CreationTimestamp.Add(time.Hour)
	p.Now = func() time.Time { return now }
	p.planned(t)
	p.withStates(t, aState(3, "a", "b"), aState(7, "b"))
	p.left(t, "old", "uid-1", kube.Retained{Why: "terrier.dev/deletion is retain", Resources: []string{"t.a"}, State: &kube.StateRef{Namespace: ns, Workspace: "default", Suffix: "old"}})
	p.blockDeletions(t)
	p.serveAll(t)
	return p
}

// blockDeletions has a guard block deletions of the registry, and stops the rollout
// of the template.
func (p platform) blockDeletions(t *testing.T) {
	t.Helper()
	at := metav1.NewTime(p.ago(time.Minute))
	var r tenantsv1.TenantRegistry
	var tpl tenantsv1.TenantTemplate
	for name, o := range map[string]kubeclient.Object{"customers": &r, "web": &tpl} {
		if err := p.cluster.Client.Get(t.Context(), types.NamespacedName{Namespace: p.cluster.Namespace, Name: name}, o); err != nil {
			t.Fatal(err)
		}
	}
	r.Status = tenantsv1.TenantRegistryStatus{
		ReferencingTemplates: 1, Desired: 1, Failed: 1, LastRead: &tenantsv1.Read{Time: at, Rows: 4, Active: 1},
		Blocked: &tenantsv1.Blocked{Reason: "TooManyDeletions", Message: "3 of 4 tenants", Since: at, Count: 3, Token: "7c1e", Tenants: []string{"bolt-web"}},
	}
	tpl.Status.Rollout = &tenantsv1.RolloutStatus{Phase: tenantsv1.RolloutFailed, TargetGeneration: 1, TotalNodes: 1, FailedNodes: 1, StartTime: &at, Message: "acme-web failed"}
	for _, o := range []kubeclient.Object{&r, &tpl} {
		if err := p.cluster.Client.Status().Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

// board reads the cluster before each answer, in the place of the cache that a
// server has.
type board struct {
	*query.Board
	p platform
}

func (b board) Page(scope access.Scope, q query.BoardQuery) (query.BoardPage, error) {
	var all v1alpha2.TerraformList
	if err := b.p.cluster.Client.List(context.Background(), &all, kubeclient.InNamespace(b.p.cluster.Namespace)); err != nil {
		return query.BoardPage{}, err
	}
	for i := range all.Items {
		b.Set(&all.Items[i])
	}
	b.Synced()
	return b.Board.Page(scope, q)
}

// serveAll serves everything that the command line asks a server.
func (p *platform) serveAll(t *testing.T) {
	t.Helper()
	records := query.NewBlobs(p.records, p.records, time.Millisecond)
	auth, err := access.NewKubeAuth(p.cluster.Config, kinds.All())
	if err != nil {
		t.Fatal(err)
	}
	c, err := access.NewClient(p.cluster.Config, kinds.All())
	if err != nil {
		t.Fatal(err)
	}
	people, err := command.NewPeople(p.cluster.Config, kinds.All(), records, p.Now)
	if err != nil {
		t.Fatal(err)
	}
	auditLogIn(t, p.Dir)
	files, err := audit.Open(filepath.Join(p.Dir, "audit"), audit.Options{Now: p.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := files.Close(); err != nil {
			t.Error(err)
		}
	})
	stacks := query.New(c, kinds.All(), records, p.Now)
	anchor := kube.Anchor{Client: p.cluster.Client, Key: types.NamespacedName{Namespace: p.cluster.Namespace, Name: "anchor"}}
	sent := delivered{{ID: "1", At: noon, Namespace: p.cluster.Namespace, Kind: "Terraform", Name: "network", Event: "DriftDetected", Provider: "chat", Attempts: 1, Outcome: "delivered", Message: "2 objects differ"}}
	tokens, err := blob.OpenFiles(t.TempDir(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tokens.Close(); err != nil {
			t.Error(err)
		}
	})
	uses := usedby.New(query.NewBlobs(p.records, p.records, time.Millisecond), slog.New(slog.DiscardHandler))
	uses.Synced()
	namespaces, err := access.NewNamespaces(p.cluster.Config)
	if err != nil {
		t.Fatal(err)
	}
	url, ca := listen(t, web.Options{
		UsedBy: uses, Tokens: regtoken.NewBook(tokens, namespaces.Namespace, p.Now, slog.New(slog.DiscardHandler)), Now: p.Now,
		Kinds: kinds.All(), Stacks: stacks, Former: stacks.OfFormer(), Tenants: query.NewTenants(stacks, p.cluster.Config), Retained: command.NewRetained(p.records, c, kinds.All()),
		Board: board{query.NewBoard(query.BoardOptions{Kinds: kinds.All(), Now: p.Now}), *p}, Notices: query.NewNotices(sent, query.NamespacesIn(c)), AuditLog: query.NewAuditLog(files, anchor, query.NamespacesIn(c)),
		Auth: auth, People: people.As, Hosts: []string{"127.0.0.1"},
	})
	p.url = url
	write(t, p.Env, "ca.crt", ca)
	p.cluster.Apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+access.ServerNamespace+"}\n---\n"+
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: "+access.ServerConfigMap+", namespace: "+access.ServerNamespace+"}\ndata: {ca.crt: "+quoted(ca)+"}\n")
}

func quoted(s string) string { return `"` + strings.ReplaceAll(s, "\n", `\n`) + `"` }

// overKubeconfig and overHTTP are the two ways of the command line. Over a
// kubeconfig it asks the server for records and for what only a server has.
func (p platform) overKubeconfig() []string {
	return []string{"KUBECONFIG=" + p.cluster.Kubeconfig, "TERRIER_SERVER=" + p.url}
}

func (p platform) overHTTP() []string {
	return []string{"TERRIER_SERVER=" + p.url, "TERRIER_TOKEN=" + p.cluster.Config.BearerToken, "TERRIER_SERVER_CA=ca.crt"}
}

var (
	lockID    = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	linkCode  = regexp.MustCompile(`code=[^ \n]+`)
	ageText   = regexp.MustCompile(`\b\d+[smhd]\b`) // the clock goes on between two calls
	timestamp = regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?`)
)

// comparable takes out what differs between two platforms.
func (p platform) comparable(t *testing.T, s said) said {
	t.Helper()
	for _, text := range []*string{&s.out, &s.err} {
		*text = strings.NewReplacer(p.cluster.Namespace, "NS", string(p.object(t).UID), "UID", p.url, "SERVER", strings.TrimPrefix(p.url, "https://"), "SERVER").Replace(*text)
		*text = lockID.ReplaceAllString(*text, "ID")
		*text = linkCode.ReplaceAllString(*text, "code=CODE")
		*text = ageText.ReplaceAllString(timestamp.ReplaceAllString(*text, "TIME"), "AGE")
	}
	return s
}

// begin has the stack do what a controller does when a break-glass session is
// asked for and a command in it has ended.
func (p platform) begin(t *testing.T, ended *stack.CommandResult) {
	t.Helper()
	glass := &stack.BreakGlass{Session: "s", At: p.ago(time.Minute), Until: p.Now().Add(time.Hour)}
	p.remember(t, stack.Status{Answers: stack.Answers{BreakGlass: glass, LastCommand: ended}})
	o := p.object(t)
	metav1.SetMetaDataAnnotation(&o.ObjectMeta, infra.BreakTheGlassAt, "s")
	if err := p.cluster.Client.Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// What the command line does over a kubeconfig, it does over HTTP: the same words
// on both channels, and the same exit codes.
func TestCommandsOverHTTP(t *testing.T) {
	viaCluster, viaServer := newPlatform(t), newPlatform(t)
	viaCluster.Environ, viaServer.Environ = viaCluster.overKubeconfig(), viaServer.overHTTP()
	tried, module := map[string]bool{}, t.TempDir()
	if err := os.WriteFile(filepath.Join(module, "main.tf"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		args  string
		code  int
		stdin string
		first func(platform, *testing.T)
	}{
		{args: "get"},
		{args: "get network -o wide"},
		{args: "get -o json"},
		{args: "get -l team=none"},
		{args: "get nothing", code: 4},
		{args: "get ../etc", code: 2},
		{args: "describe network"},
		{args: "describe network -o yaml"},
		{args: "explain network --rules"},
		{args: "explain nothing", code: 4},
		{args: "plan network"},
		{args: "plan network -o json --exit-code", code: 2},
		{args: "plan network --destroy --timeout 1s", code: 6},
		{args: "runs network"},
		{args: "logs network"},
		{args: "logs network -f"},
		{args: "logs network --timestamps"},
		{args: "logs network --run nothing", code: 4},
		{args: "outputs network"},
		{args: "outputs network --show -o json"},
		{args: "policy eval network --policy auto-approval", code: 1}, // it destroys a resource
		{args: "policy eval network --policy no-such-policy", code: 4},
		{args: "policy dry-run --policy auto-approval"},
		{args: "approve network plan-main-0000000000", code: 5},
		{args: "reject network -m later"},
		{args: "approve network", code: 2}, // it destroys a resource
		{args: "approve network --yes"},
		{args: "approve network --yes"},
		{args: "drift show network"},
		{args: "drift accept network", code: 4},
		{args: "drift accept network --branch b", code: 4},
		{args: "repair network --yes", code: 5},
		{args: "rollback network --reason slow", code: 5}, // there was one apply
		{args: "rollback network --end", code: 5},
		{args: "cancel network", code: 5},
		{args: "suspend network"},
		{args: "replan network", code: 2},
		{args: "resume --all"},
		{args: "replan network"},
		{args: "replan network --wait --timeout 1s", code: 6},
		{args: "steps"},
		{args: "steps -o json"},
		{args: "steps network", code: 4},
		{args: "steps rerun network", code: 4},
		{args: "force-unlock network --lock-id nothing", code: 5},
		{args: "state list"},
		{args: "state list -o json"},
		{args: "state list network"},
		{args: "state show network"},
		{args: "state show network t.b --reveal"},
		{args: "state versions network"},
		{args: "state pull network"},
		{args: "state pull network --version 3"},
		{args: "state pull network --rescued apply-0"},
		{args: "state pull network --version 4", code: 4},
		{args: "state rollback network 3", code: 2},
		{args: "state rollback network 3 --yes"},
		{args: "state push network - --force --yes", stdin: string(aState(5, "c"))},
		{args: "state push network - --yes", stdin: "{}", code: 2},
		{args: "state lock network --reason moving"},
		{args: "state unlock network nonsense", code: 5},
		{args: "state unlock network"},
		{args: "state unlock network", code: 5},
		{args: "state accept network", code: 2},
		{args: "state accept network --yes"},
		{args: "break-glass network --timeout 5s", first: func(p platform, t *testing.T) { p.begin(t, nil) }},
		{args: "break-glass network --timeout 2s -- state list", code: 6},
		{args: "break-glass network --timeout 2s -- state rm t.b", code: 2},
		{args: "break-glass network --end"},
		{args: "retained"},
		{args: "retained show old"},
		{args: "retained state old"},
		{args: "retained forget old --yes"},
		{args: "retained forget old --yes", code: 4},
		{args: "tenants"},
		{args: "tenants -o json"},
		{args: "tenants --registry others"},
		{args: "tenant acme-web"},
		{args: "tenant nobody", code: 4},
		{args: "inventory --list"},
		{args: "inventory --list --tenant nothing"},
		{args: "inventory --host nothing", code: 4},
		{args: "inventory", code: 2},
		{args: "rows customers"},
		{args: "rows customers --now --timeout 1s", code: 6},
		{args: "rows customers --allow --yes"},
		{args: "suspend tenantregistry/customers"},
		{args: "resume tenantregistry/customers"},
		{args: "render web"},
		{args: "render web --uid acme"},
		{args: "render web --row uid=try --row replicas=2 --row hostOrUrl=https://try.example.com -o json"},
		{args: "render web --row uid=try --row replicas=many", code: 2},
		{args: "rollout status web"},
		{args: "rollout resume web"},
		{args: "rollout undo web --yes", code: 4},
		{args: "audit list"},
		{args: "audit list --who ann -o json"},
		{args: "audit verify"},
		{args: "notifications"},
		{args: "ui"},
		{args: "push . oci://SERVER/NS/module:v1", code: 4},
		{args: "module push MODULE --name a --system b --version 1.0.0", code: 4}, // these servers have no registry
		{args: "module list a/b/c", code: 4},
		{args: "module show a/b/c", code: 4},
		{args: "module retract a/b/c 1.0.0 --reason wrong", code: 4},
		{args: "module restore a/b/c 1.0.0", code: 4},
		{args: "registry usage", code: 4},
		{args: "module repositories", code: 4},
		{args: "provider push MODULE", code: 4},
		{args: "provider list a/b", code: 4},
		{args: "provider retract a/b 1.0.0 --reason wrong", code: 4},
		{args: "provider restore a/b 1.0.0", code: 4},
		{args: "module uses a/b/c"},
		{args: "module uses a/b", code: 2},
		{args: "provider uses a/b --version 1.0.0 -o json"},
		{args: "provider keys list", code: 4},
		{args: "provider keys add -", stdin: "a key", code: 4},
		{args: "provider keys remove 00", code: 4},
		{args: "identity jwks", code: 4},
		{args: "state key network", code: 2}, // it needs a reason
		{args: "status"},
	} {
		var got [2]said
		for i, p := range []platform{viaCluster, viaServer} {
			if step.first != nil {
				step.first(p, t)
			}
			p.Stdin = strings.NewReader(step.stdin)
			words := strings.Fields(strings.NewReplacer("SERVER", strings.TrimPrefix(p.url, "https://"), "NS", p.cluster.Namespace, "MODULE", module).Replace(step.args))
			got[i] = p.comparable(t, p.run(t, append([]string{"-n", p.cluster.Namespace}, words...)...))
		}
		if got[1].code != step.code {
			t.Errorf("terrier %s ends with %d over HTTP, want %d: %s%s", step.args, got[1].code, step.code, got[1].out, got[1].err)
		}
		if diff := cmp.Diff([]any{got[1].code, got[1].out, got[1].err}, []any{got[0].code, got[0].out, got[0].err}); diff != "" {
			t.Errorf("terrier %s over HTTP is not what it is over a kubeconfig (-got +want):\n%s", step.args, diff)
		}
		tried[commandOf(step.args)] = true
	}
	for _, name := range leaves(newProgram(env(t)).root(nil)) {
		if !tried[name] && !elsewhere[name] {
			t.Errorf("terrier %s was not tried over HTTP", name)
		}
	}
}

// elsewhere are commands that ask neither a cluster nor a server, and those that
// have a test of their own.
var elsewhere = map[string]bool{"version": true, "help": true, "import lynq": true, "policy test": true, "scan": true,
	"registry tokens list": true, "registry tokens create": true, "registry tokens revoke": true}

// commandOf are the words of a command before its arguments.
func commandOf(args string) string {
	words := strings.Fields(args)
	if words[0] == "provider" && words[1] == "keys" {
		return strings.Join(words[:3], " ")
	}
	if words[0] == "steps" && len(words) > 1 && words[1] == "rerun" {
		return "steps rerun"
	}
	if slices.Contains([]string{"state", "rollout", "audit", "module", "provider", "registry", "policy", "identity", "drift"}, words[0]) || words[0] == "retained" && len(words) > 1 {
		return words[0] + " " + words[1]
	}
	return words[0]
}

// leaves are the commands that do something.
func leaves(c *cobra.Command) []string {
	var out []string
	for _, sub := range c.Commands() {
		name := strings.TrimPrefix(sub.CommandPath(), "terrier ")
		if sub.Name() == "completion" {
			continue
		}
		if !sub.HasSubCommands() || sub.Name() == "retained" {
			out = append(out, name)
		}
		out = append(out, leaves(sub)...)
	}
	return out
}

// A watch over HTTP tells of what there is, and of each change.
func TestWatchOverHTTP(t *testing.T) {
	p := newPlatform(t)
	p.Environ = p.overHTTP()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	var out, errs bytes.Buffer
	p.Args, p.Stdout, p.Stderr = []string{"get", "network", "-w", "-n", p.cluster.Namespace}, &stopping{Buffer: &out, at: "AwaitingApproval", stop: cancel}, &errs
	if code := run(ctx, p.Env); code != interrupted || !strings.Contains(out.String(), "network") || errs.Len() > 0 {
		t.Errorf("it ends with %d and says %s%s; want the stack", code, out.String(), errs.String())
	}
}

// stopping ends a command once it said something.
type stopping struct {
	*bytes.Buffer
	at   string
	stop func()
}

func (s *stopping) Write(b []byte) (int, error) {
	n, err := s.Buffer.Write(b)
	if strings.Contains(s.String(), s.at) {
		s.stop()
	}
	return n, err
}

// What cannot be done over HTTP says so, and what to do instead; a token that the
// server does not know is denied; an address without TLS is refused.
func TestNotOverHTTP(t *testing.T) {
	p := newPlatform(t)
	p.Environ = p.overHTTP()
	p.dialogue(t, []line{
		{"import lynq", 2, []string{"takes a kubeconfig", "TERRIER_TOKEN"}, ""},
		{"get --server http://127.0.0.1:1", 2, []string{"is not the https address of a server"}, ""},
		{"get --server-ca nowhere", 2, []string{"certificate authority"}, ""},
	})
	p.Environ = append(p.Environ, "TERRIER_TOKEN=nonsense")
	p.dialogue(t, []line{{"get", 3, []string{"does not know the token"}, "nonsense"}})
}
