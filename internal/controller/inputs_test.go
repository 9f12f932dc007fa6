package controller

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/afterapply"
	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/archive/archivetest"
	"github.com/terrier-iac/terrier/internal/controller/modules"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/source"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
	"github.com/terrier-iac/terrier/internal/workdir/module"
)

// cupboard has the inputs of stacks in these tests. Its objects are made
// once, and a test that changes one says so.
type cupboard struct {
	*apart
	kube *testkit.Cluster
	obj  client.Object
}

func newCupboard(t *testing.T) *cupboard {
	t.Helper()
	k := testkit.Kube(t)
	c := &cupboard{takeApart(&Stacks{Live: k.Client, Key: secret.New("key"), Modules: &modules.Reader{Dir: t.TempDir()}}), k, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: k.Namespace, Name: "stack", UID: "u-1", Labels: map[string]string{"team": "net"}, Annotations: map[string]string{"a/b": "\"${x}"},
	}}}
	testkit.PutInputs(t, k)
	return c
}

// resolve finds the inputs of a configuration.
func (c *cupboard) resolve(t *testing.T, p stack.Configuration) (*pass, *stack.Blocked) {
	t.Helper()
	pass := &pass{dialect: infra.Dialect{}, obj: c.obj}
	pass.st.Configuration = p
	return pass, c.findInputs(t.Context(), pass)
}

// everything is a configuration with each kind of input.
func everything() stack.Configuration {
	key := func(name, key string) *stack.KeyRef { return &stack.KeyRef{Name: name, Key: key} }
	return stack.Configuration{
		Vars:      []stack.Var{{Name: "me", Field: "metadata.name"}, {Name: "quoted", Field: "metadata.annotations['a/b']"}},
		EnvFrom:   []stack.EnvFrom{{Kind: "ConfigMap", Name: "config", Prefix: "P_"}, {Kind: "Secret", Name: "creds"}, {Kind: "Secret", Name: "nope", Optional: true}},
		Env:       []stack.EnvVar{{Name: "URL", Value: "https://$(API_TOKEN)@$(P_ZONE)"}, {Name: "TEAM", Field: "metadata.labels['team']"}, {Name: "ONE", Secret: key("creds", "file")}, {Name: "TWO", Config: &stack.KeyRef{Name: "config", Key: "nope", Optional: true}}},
		Files:     []stack.File{{Secret: *key("creds", "file"), Home: true, Path: ".x/y"}, {Secret: *key("creds", "file"), Path: "k.pem"}},
		CLIConfig: &stack.Ref{Kind: "Secret", Name: "rc"},
		Completes: []stack.ConfigFrom{{Kind: "Secret", Name: "backend"}},
		Backend:   stack.Backend{Kind: stack.Remote, Cloud: &stack.Cloud{Organization: "acme", Workspace: "w", Token: secret.New("cloud-canary-1")}},
	}
}

// The configuration of the command line and of the backend become files.
func TestCommandLineAndBackendBecomeFiles(t *testing.T) {
	c := newCupboard(t)
	p, blocked := c.resolve(t, everything())
	if blocked != nil {
		t.Fatalf("blocked: %+v", blocked)
	}
	files, err := c.given(p.in.Files)
	if err != nil {
		t.Fatal(err)
	}
	text := map[string]string{}
	for _, f := range files {
		text[f.Path] = string(f.Content)
	}
	for path, want := range map[string]string{
		runner.CLIConfig:   "credentials \"app.terraform.io\" {\n  token = \"cloud-canary-1\"\n}\n\ncredentials \"h.example.com\"",
		runner.BackendFile: "access_key = \"access-canary-1\"\nbucket     = \"b\"\n",
	} {
		if !strings.Contains(text[path], want) {
			t.Errorf("%s is\n%s\nwant in it\n%s", path, text[path], want)
		}
	}
}

// A destroy takes renewed credentials where they are, and the record where they
// are not; never what says where things are.
func TestRefresh(t *testing.T) {
	c := newCupboard(t)
	p, blocked := c.resolve(t, everything())
	if blocked != nil {
		t.Fatalf("blocked: %+v", blocked)
	}
	files, err := c.given(p.in.Files)
	if err != nil {
		t.Fatal(err)
	}
	recorded := func() *runner.Job {
		return &runner.Job{Env: map[string]string{"API_TOKEN": "token-canary-1", "URL": "https://token-canary-1@z"}, Files: slices.Clone(files), Home: slices.Clone(p.in.Files.Home)}
	}
	text := func(job *runner.Job) string {
		var b strings.Builder
		for _, f := range slices.Concat(job.Files, job.Home) {
			b.WriteString(f.Path + ": " + string(f.Content) + "\n")
		}
		return b.String()
	}
	p.note.Backend = backendDigest(p.st.Configuration, p.in.Files.Settings)
	testkit.SetSecret(t, c.kube, "creds", map[string]string{"API_TOKEN": "token-canary-2", "file": "file-canary-2", "MORE": "more"})
	testkit.SetSecret(t, c.kube, "backend", map[string]string{"bucket": "b", "access_key": "access-canary-2"})
	testkit.SetSecret(t, c.kube, "rc", map[string]string{"x.tfrc": "credentials \"h.example.com\" {\n  token = \"cli-canary-2\"\n}\n"})
	job := recorded()
	c.refresh(t.Context(), p, job)
	if diff := cmp.Diff(map[string]string{"API_TOKEN": "token-canary-2", "URL": "https://token-canary-2@z"}, job.Env); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	for _, want := range []string{"k.pem: file-canary-2", ".x/y: file-canary-2", "access-canary-2", "cli-canary-2"} {
		if !strings.Contains(text(job), want) {
			t.Errorf("%s is not among the files\n%s", want, text(job))
		}
	}
	if !slices.Contains(job.Mask, "token-canary-2") || !slices.Contains(job.Mask, "access-canary-2") {
		t.Errorf("what is hidden is %q", job.Mask)
	}

	testkit.SetSecret(t, c.kube, "backend", map[string]string{"bucket": "another", "access_key": "access-canary-3"})
	if err := c.kube.Client.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.kube.Namespace, Name: "creds"}}); err != nil {
		t.Fatal(err)
	}
	testkit.SetSecret(t, c.kube, "rc", map[string]string{"x.tfrc": "no configuration"})
	job = recorded()
	c.refresh(t.Context(), p, job)
	if diff := cmp.Diff(recorded().Env, job.Env); diff != "" {
		t.Errorf("environment that is gone (-want +got):\n%s", diff)
	}
	if got, want := text(job), text(recorded()); got != want {
		t.Errorf("files that are gone, or of another state:\n%s\nwant\n%s", got, want)
	}
}

// The operator may allow less than at the last apply. A destroy then goes without
// what is no longer allowed, and still has its credentials renewed.
func TestRefreshObeysTheOperatorOfNow(t *testing.T) {
	c := newCupboard(t)
	c.jobs.config.Settable = []string{"NO_PROXY"}
	testkit.SetSecret(t, c.kube, "rc", map[string]string{"x.tfrc": "provider_installation {\n  direct {}\n}\ncredentials \"h.example.com\" {\n  token = \"cli-canary-1\"\n}\n"})
	configuration := everything()
	configuration.Env = append(configuration.Env, stack.EnvVar{Name: "NO_PROXY", Value: "localhost"}, stack.EnvVar{Name: "NEAR", Value: "$(NO_PROXY)"})
	p, blocked := c.resolve(t, configuration)
	if blocked != nil {
		t.Fatalf("blocked: %+v", blocked)
	}
	files, err := c.given(p.in.Files)
	if err != nil {
		t.Fatal(err)
	}
	p.note.Backend = backendDigest(p.st.Configuration, p.in.Files.Settings)
	job := &runner.Job{Env: map[string]string{"API_TOKEN": "token-canary-1", "NO_PROXY": "localhost", "NEAR": "localhost"}, Files: files}
	testkit.SetSecret(t, c.kube, "creds", map[string]string{"API_TOKEN": "token-canary-2", "file": "file-canary-2"})

	c.jobs.config.Settable, c.jobs.config.MirrorOnly = nil, true
	c.refresh(t.Context(), p, job)
	if diff := cmp.Diff(map[string]string{"API_TOKEN": "token-canary-2", "NEAR": "localhost"}, job.Env); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	for _, f := range job.Files {
		if text := string(f.Content); f.Path == runner.CLIConfig && (strings.Contains(text, "direct") || !strings.Contains(text, "cli-canary-1")) {
			t.Errorf("the configuration of the command line is\n%s\nwant the token, and only the mirror", text)
		}
	}
}

func TestLimits(t *testing.T) {
	for name, tt := range map[string]struct {
		platform      runner.Limits
		configuration stack.Configuration
		want          runner.Limits
	}{
		"the platform's":              {runner.Limits{Memory: 4, Grace: time.Minute}, stack.Configuration{}, runner.Limits{Memory: 4, Grace: time.Minute}},
		"less memory":                 {runner.Limits{Memory: 4}, stack.Configuration{Memory: 3, CPUs: 2}, runner.Limits{Memory: 3, CPUs: 2}},
		"never more":                  {runner.Limits{Memory: 4}, stack.Configuration{Memory: 5}, runner.Limits{Memory: 4}},
		"any where there is no bound": {runner.Limits{}, stack.Configuration{Memory: 5}, runner.Limits{Memory: 5}},
		"upstream's default of half a minute changes nothing": {runner.Limits{}, stack.Configuration{Grace: 30 * time.Second}, runner.Limits{}},
		"a longer grace":                 {runner.Limits{}, stack.Configuration{Grace: time.Hour}, runner.Limits{Grace: time.Hour}},
		"no shorter one":                 {runner.Limits{Grace: time.Hour}, stack.Configuration{Grace: time.Minute}, runner.Limits{Grace: time.Hour}},
		"longer than a short platform's": {runner.Limits{Grace: time.Minute}, stack.Configuration{Grace: 2 * time.Minute}, runner.Limits{Grace: 2 * time.Minute}},
		"not for ever":                   {runner.Limits{}, stack.Configuration{Grace: 1000 * time.Hour}, runner.Limits{Grace: 24 * time.Hour}},
	} {
		if got := (takeApart(&Stacks{Config: Config{Limits: tt.platform}})).limits(tt.configuration); got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}

// Files that a stack brings are configuration like the module's own: what they
// declare counts, and what they may not say is refused.
func TestMappedConfigurationIsLookedAt(t *testing.T) {
	c := newCupboard(t)
	testkit.SetSecret(t, c.kube, "tf", map[string]string{
		"good":  "variable \"API_TOKEN\" {}\n",
		"bad":   "variable \"x\" {\n",
		"state": "terraform {\n  backend \"local\" {}\n}\n",
	})
	configuration := func(key string) stack.Configuration {
		return stack.Configuration{
			Inline: "output \"x\" { value = 1 }\n", VarsFrom: []stack.VarsFrom{{Kind: "Secret", Name: "creds"}},
			Files: []stack.File{{Secret: stack.KeyRef{Name: "tf", Key: key}, Path: "more.tf"}},
		}
	}
	resolve := func(key string) (*pass, *stack.Blocked) {
		p := &pass{dialect: infra.Dialect{}, obj: c.obj}
		p.st.Configuration = configuration(key)
		if b := c.findModule(t.Context(), p); b != nil {
			t.Fatalf("blocked: %+v", b)
		}
		return p, c.findInputs(t.Context(), p)
	}
	p, b := resolve("good")
	if b != nil {
		t.Fatalf("blocked: %+v", b)
	}
	if _, isEnv := p.in.Resolved.Environment["API_TOKEN"]; isEnv || string(p.in.Resolved.Vars["API_TOKEN"]) != `"token-canary-1"` {
		t.Errorf("a variable that a mapped file declares is %s, and in the environment: %v", p.in.Resolved.Vars["API_TOKEN"], isEnv)
	}
	if _, b := resolve("bad"); b == nil || b.Kind != fault.Invalid || !strings.Contains(b.Message, "more.tf:") {
		t.Errorf("a mapped file that cannot be read: %+v, want it named", b)
	}
	p, b = resolve("state")
	if b != nil {
		t.Fatalf("blocked: %+v", b)
	}
	if len(p.in.Module.Backends) != 1 { // replaced by ours, as in any ordinary file
		t.Errorf("the module has the backends %+v, want that of the mapped file", p.in.Module.Backends)
	}
	if _, err := module.Guard(p.in.Module, module.Managed{}); err != nil {
		t.Error(err)
	}
}

// A source or dependency in another namespace belongs to another team (T12).
func TestOtherNamespaces(t *testing.T) {
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "mine", Name: "stack"}}
	for _, ref := range []stack.Ref{{Kind: "GitRepository", Namespace: "yours", Name: "x"}, {Kind: "Terraform", Namespace: "yours", Name: "x"}} {
		c, p := takeApart(&Stacks{}), &pass{dialect: infra.Dialect{}, obj: obj}
		p.st.Configuration = stack.Configuration{Source: &ref, DependsOn: []stack.Ref{ref}}
		if b := c.findSource(t.Context(), p); b == nil || b.Kind != fault.Denied || b.Reason != stack.SourceDenied {
			t.Errorf("a source in another namespace: %+v, want it denied", b)
		}
		if b, err := c.dependencies.firstNotReady(t.Context(), p); err != nil || b == nil || b.Kind != fault.Denied {
			t.Errorf("a dependency in another namespace: %+v, %v, want it denied", b, err)
		}
	}
}

// oneSource is a cluster with one source in it.
type oneSource struct {
	client.Client
	of *sourcev1.GitRepository
}

func (s oneSource) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	s.of.DeepCopyInto(into.(*sourcev1.GitRepository))
	return nil
}

// What a stack names is part of the source that it depends on, steps after its applies included:
// else the archive of a run would have no playbook.
func TestWhatAStackNamesAlwaysCounts(t *testing.T) {
	got := pathsOf(stack.Configuration{
		Path: "tenants/a/terraform", VarFiles: []string{"./vars/a.tfvars"}, Script: &stack.Script{Apply: stack.ScriptText{Path: "bin/apply"}, Destroy: stack.ScriptText{Path: "bin/destroy"}},
		AfterApply: []afterapply.Step{
			{Name: "wait", WaitFor: &afterapply.WaitFor{Protocol: "ssh", Hosts: []string{"a"}}},
			{Name: "play", Files: []string{"../group_vars"}, Ansible: &afterapply.Ansible{Playbook: "../../../ansible/site.yml", Inventory: "../hosts.yml"}},
			{Name: "run", Command: []string{"bin/register"}},
		},
	})
	want := []string{
		"vars/a.tfvars", "tenants/a/terraform/bin/apply", "tenants/a/terraform/bin/destroy",
		"ansible/site.yml", "tenants/a/group_vars", "tenants/a/hosts.yml", "tenants/a/terraform/bin/register",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pathsOf() (-want +got):\n%s", diff)
	}
}

// A source without an artifact says why itself, and the stack says so, too: in
// the same words each time, and without what is secret in them.
func TestASourceThatIsNotReadySaysWhy(t *testing.T) {
	const begins = "Source is not ready, artifact not found: GitRepository apps/modules"
	const says = 400 // characters of what a source says
	ready := func(status metav1.ConditionStatus, reason, message string) []metav1.Condition {
		return []metav1.Condition{{Type: "Ready", Status: status, Reason: reason, Message: message}}
	}
	for name, tt := range map[string]struct {
		conditions []metav1.Condition
		want       string
	}{
		"nothing yet":    {nil, begins},
		"it is at it":    {ready(metav1.ConditionUnknown, "Progressing", "fetching"), begins},
		"it says so":     {ready(metav1.ConditionFalse, "InsecureConnectionsDisallowed", "http is not allowed:\n  start Terrier with --allow-plain-http"), begins + ": InsecureConnectionsDisallowed: http is not allowed: start Terrier with --allow-plain-http"},
		"with a login":   {ready(metav1.ConditionFalse, "GitOperationFailed", "cannot clone https://bot:s3cr3t-canary@git.example.com/x"), begins + ": GitOperationFailed: cannot clone https://(sensitive)@git.example.com/x"},
		"with an email":  {ready(metav1.ConditionFalse, "Failed", "see https://docs.example.com/x?ask=ops@example.com"), begins + ": Failed: see https://docs.example.com/x?ask=ops@example.com"},
		"longer than is": {ready(metav1.ConditionFalse, "Failed", strings.Repeat("ü", says+1)), begins + ": Failed: " + strings.Repeat("ü", says) + "…"},
	} {
		t.Run(name, func(t *testing.T) {
			repo := &sourcev1.GitRepository{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "modules"}, Status: sourcev1.GitRepositoryStatus{Conditions: tt.conditions}}
			c := takeApart(&Stacks{Client: oneSource{of: repo}})
			p := &pass{dialect: infra.Dialect{}, obj: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "stack"}}}
			p.st.Configuration.Source = &stack.Ref{Kind: sourcev1.GitRepositoryKind, Name: "modules"}
			for range 2 {
				if b := c.findSource(t.Context(), p); b == nil || b.Kind != fault.Missing || b.Reason != stack.SourceNotReady || b.Message != tt.want {
					t.Errorf("blocked by %+v, want %q", b, tt.want)
				}
			}
		})
	}
}

// The files that steps after an apply use are part of what the stack depends on, so that its runs
// have them.
func TestAPartOfASourceHasTheFilesOfSteps(t *testing.T) {
	kept, err := source.NewCache(t.TempDir(), nil, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	reader := modules.New(t.TempDir())
	reader.Archives = kept
	file := archivetest.Pack(t, map[string]string{
		"a/terraform/main.tf": "", "a/hosts.yml": "", "a/group_vars/web.yml": "", "a/notes.md": "", "ansible/site.yml": "", "ansible/roles/web/tasks/main.yml": "", "tools/report": "", "b/terraform/main.tf": "",
	})
	for paths, want := range map[string][]string{
		"auto": {"a/group_vars/web.yml", "a/hosts.yml", "a/terraform/main.tf", "ansible/roles/web/tasks/main.yml", "ansible/site.yml", "tools/report"},
		"b/**": {"a/hosts.yml", "a/terraform/main.tf", "ansible/site.yml", "b/terraform/main.tf", "tools/report"},
	} {
		p := &pass{entry: &entry{}}
		p.in.archive, p.o.PlanInputs.Source = file, "sha256:0"
		p.st.Configuration = stack.Configuration{Path: "a/terraform", SourcePaths: []string{paths}, AfterApply: []afterapply.Step{
			{Name: "play", Ansible: &afterapply.Ansible{Playbook: "../../ansible/site.yml", Inventory: "../hosts.yml"}},
			{Name: "tell", Command: []string{"../../tools/report"}},
		}}
		if b := selectPaths(reader, p); b != nil || p.entry.wholeSource != "" {
			t.Fatalf("%s: selectPaths() = %+v, and the whole source counts: %q", paths, b, p.entry.wholeSource)
		}
		f, err := os.Open(p.in.archive)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		_, got, err := archive.Inspect(f, info.Size(), archive.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: the part (-want +got):\n%s", paths, diff)
		}
	}
}
