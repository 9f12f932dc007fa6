package controller

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
	"github.com/terrier-iac/terrier/internal/workdir"
	"github.com/terrier-iac/terrier/internal/workdir/module"
)

// cupboard is what stacks in these tests are given from. Its objects are made
// once, and a test that changes one says so.
type cupboard struct {
	*Stacks
	kube *testkit.Cluster
	obj  client.Object
}

func newCupboard(t *testing.T) *cupboard {
	t.Helper()
	k := testkit.Kube(t)
	c := &cupboard{&Stacks{Live: k.Client, Key: secret.New("key"), Modules: &Modules{Dir: t.TempDir()}}, k, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: k.Namespace, Name: "stack", UID: "u-1", Labels: map[string]string{"team": "net"}, Annotations: map[string]string{"a/b": "\"${x}"},
	}}}
	c.put(t, "creds", map[string]string{"API_TOKEN": "token-canary-1", "REGION": "north", "file": "file-canary-1", "not.a.name": "x"})
	c.put(t, "backend", map[string]string{"bucket": "b", "access_key": "access-canary-1"})
	c.put(t, "rc", map[string]string{"x.tfrc": "credentials \"h.example.com\" {\n  token = \"cli-canary-1\"\n}\n"})
	if err := k.Client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: "config"}, Data: map[string]string{"ZONE": "z"}}); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *cupboard) put(t *testing.T, name string, data map[string]string) {
	t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.kube.Namespace, Name: name}, StringData: data}
	err := c.kube.Client.Create(t.Context(), s)
	if client.IgnoreAlreadyExists(err) == nil && err != nil {
		err = c.kube.Client.Update(t.Context(), s)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// resolve finds the inputs of a program.
func (c *cupboard) resolve(t *testing.T, p stack.Configuration) (*pass, *stack.Blocked) {
	t.Helper()
	pass := &pass{obj: c.obj}
	pass.st.Configuration = p
	return pass, c.findInputs(t.Context(), pass)
}

// everything is a program with each kind of input.
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

func TestEverythingThatRunsAreGiven(t *testing.T) {
	c := newCupboard(t)
	p, blocked := c.resolve(t, everything())
	if blocked != nil {
		t.Fatalf("blocked: %+v", blocked)
	}
	t.Run("environment", func(t *testing.T) {
		want := map[string]string{
			"P_ZONE": "z", "API_TOKEN": "token-canary-1", "REGION": "north", "file": "file-canary-1",
			"URL": "https://token-canary-1@z", "TEAM": "net", "ONE": "file-canary-1",
		}
		if diff := cmp.Diff(want, p.in.resolved.Environment); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
	t.Run("variables", func(t *testing.T) {
		if got := p.in.resolved.Vars; string(got["me"]) != `"stack"` || string(got["quoted"]) != `"\"${x}"` {
			t.Errorf("they are %s", got)
		}
	})
	t.Run("files", func(t *testing.T) {
		file := func(path string) []workdir.File {
			return []workdir.File{{Path: path, Mode: 0o600, Content: []byte("file-canary-1")}}
		}
		if diff := cmp.Diff([][]workdir.File{file(".x/y"), file("k.pem")}, [][]workdir.File{p.in.placed.home, p.in.placed.work}); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
	t.Run("command line and backend", func(t *testing.T) {
		files, err := c.given(p.in.placed)
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
	})
	t.Run("all secrets are hidden", func(t *testing.T) {
		for _, s := range []string{"token-canary-1", "file-canary-1", "access-canary-1", "cli-canary-1", "cloud-canary-1"} {
			if !slices.Contains(p.in.mask, s) {
				t.Errorf("%s is not", s)
			}
		}
		if slices.Contains(p.in.mask, "z") || slices.Contains(p.in.mask, "net") {
			t.Errorf("so is what is none: %q", p.in.mask)
		}
	})
	t.Run("whatever is read wakes the stack", func(t *testing.T) {
		got := c.readsFrom(everything(), "ns")
		for _, want := range []string{"ConfigMap/ns/config", "Secret/ns/creds", "Secret/ns/nope", "Secret/ns/rc", "Secret/ns/backend"} {
			if !slices.Contains(got, want) {
				t.Errorf("%s does not: %q", want, got)
			}
		}
	})
}

// What voids an approval, and what may be renewed meanwhile.
func TestRenewedCredentialsAreTheSameInputs(t *testing.T) {
	c := newCupboard(t)
	inputs := func(program stack.Configuration) (string, string) {
		p, blocked := c.resolve(t, program)
		if blocked != nil {
			t.Fatalf("blocked: %+v", blocked)
		}
		return p.o.PlanInputs.Inputs, c.renewed(p)
	}
	program := everything()
	program.Files, program.Env = nil, program.Env[:2] // files and other variables are inputs
	basis, record := inputs(program)

	// Credentials of every kind are renewed.
	c.put(t, "creds", map[string]string{"API_TOKEN": "token-canary-2", "REGION": "north", "file": "file-canary-1"})
	c.put(t, "backend", map[string]string{"bucket": "b", "access_key": "access-canary-2"})
	c.put(t, "rc", map[string]string{"x.tfrc": "credentials \"h.example.com\" {\n  token = \"cli-canary-2\"\n}\n"})
	program.Backend.Cloud.Token = secret.New("cloud-canary-2")
	renewed, recorded := inputs(program)
	if renewed != basis {
		t.Error("renewed credentials are other inputs")
	}
	if recorded == record {
		t.Error("renewed credentials are not recorded anew")
	}
	for name, change := range map[string]func(){
		"a region": func() {
			c.put(t, "creds", map[string]string{"API_TOKEN": "token-canary-2", "REGION": "south", "file": "file-canary-1"})
		},
		"a bucket": func() { c.put(t, "backend", map[string]string{"bucket": "c", "access_key": "access-canary-2"}) },
		"a host of the engine": func() {
			c.put(t, "rc", map[string]string{"x.tfrc": "credentials \"i.example.com\" {\n  token = \"cli-canary-2\"\n}\n"})
		},
		"a label":    func() { c.obj.SetLabels(map[string]string{"team": "db"}) },
		"a variable": func() { program.Vars = append(program.Vars, stack.Var{Name: "x", Value: json.RawMessage("1")}) },
		"a file":     func() { program.Files = everything().Files },
		"what a file holds": func() {
			c.put(t, "creds", map[string]string{"API_TOKEN": "token-canary-2", "REGION": "south", "file": "file-canary-2"})
		},
	} {
		before, _ := inputs(program)
		change()
		if after, _ := inputs(program); after == before {
			t.Errorf("another %s makes the same inputs", name)
		}
	}
}

// What is missing is said by its field, and no error passes for an absence.
func TestInputsThatCannotBeRead(t *testing.T) {
	c := newCupboard(t)
	c.put(t, "two", map[string]string{"a.tfrc": "", "b.tfrc": ""})
	c.put(t, "evil", map[string]string{"x": "1", "GIT_SSH_COMMAND": "canary"})
	ref := func(name, key string, optional bool) *stack.KeyRef {
		return &stack.KeyRef{Name: name, Key: key, Optional: optional}
	}
	for name, tt := range map[string]struct {
		program stack.Configuration
		kind    fault.Kind
		want    string
	}{
		"a file's Secret":                {stack.Configuration{Files: []stack.File{{Secret: *ref("nope", "k", false), Path: "x"}}}, fault.Missing, "fileMappings[0]: Secret "},
		"a file's key":                   {stack.Configuration{Files: []stack.File{{}, {Secret: *ref("creds", "nope", false), Path: "x"}}[1:]}, fault.Missing, `fileMappings[0]: Secret creds has no key "nope"`},
		"a variable's key":               {stack.Configuration{Env: []stack.EnvVar{{Name: "A", Secret: ref("creds", "nope", false)}}}, fault.Missing, `env[0]: Secret creds has no key "nope"`},
		"an optional variable's key":     {stack.Configuration{Env: []stack.EnvVar{{Name: "A", Secret: ref("creds", "nope", true)}, {Name: "B", Config: ref("nope", "x", true)}}}, fault.None, ""},
		"an object of variables":         {stack.Configuration{EnvFrom: []stack.EnvFrom{{Kind: "ConfigMap", Name: "nope"}}}, fault.Missing, "envFrom[0]: ConfigMap "},
		"one that controls the engine":   {stack.Configuration{EnvFrom: []stack.EnvFrom{{Kind: "Secret", Name: "evil"}}}, fault.Denied, "envFrom[0]: Secret evil: the environment variable GIT_SSH_COMMAND"},
		"the same behind a prefix":       {stack.Configuration{EnvFrom: []stack.EnvFrom{{Kind: "Secret", Name: "evil", Prefix: "P_"}}}, fault.None, ""},
		"a prefix that makes one":        {stack.Configuration{EnvFrom: []stack.EnvFrom{{Kind: "Secret", Name: "evil", Prefix: "TF_CLI_ARGS_"}}}, fault.Denied, "TF_CLI_ARGS_GIT_SSH_COMMAND"},
		"a setting's key":                {stack.Configuration{Completes: []stack.ConfigFrom{{Kind: "Secret", Name: "backend", Keys: []string{"nope"}}}}, fault.Missing, `backendConfigsFrom[0]: Secret backend has no key "nope"`},
		"an optional setting":            {stack.Configuration{Completes: []stack.ConfigFrom{{Kind: "Secret", Name: "backend", Keys: []string{"nope"}, Optional: true}, {Kind: "ConfigMap", Name: "nope", Optional: true}}}, fault.None, ""},
		"a command line of two":          {stack.Configuration{CLIConfig: &stack.Ref{Name: "two"}}, fault.Invalid, "must have exactly one key, which ends in .tfrc"},
		"a command line of another kind": {stack.Configuration{CLIConfig: &stack.Ref{Name: "backend"}}, fault.Invalid, "must have exactly one key"},
		"a command line of others":       {stack.Configuration{CLIConfig: &stack.Ref{Name: "rc", Namespace: "elsewhere"}}, fault.Denied, "another namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			_, b := c.resolve(t, tt.program)
			if tt.kind == fault.None {
				if b != nil {
					t.Errorf("blocked by %+v", b)
				}
				return
			}
			if b == nil || b.Kind != tt.kind || b.Reason != stack.InputsFailed || !strings.Contains(b.Message, tt.want) || strings.Contains(b.Message, "canary") {
				t.Errorf("blocked by %+v, want %s with %q", b, tt.kind, tt.want)
			}
		})
	}
	// Upstream reads optional as: whatever goes wrong.
	c.Live = unreadable{c.Live}
	for name, program := range map[string]stack.Configuration{
		"varsFrom":           {VarsFrom: []stack.VarsFrom{{Kind: "Secret", Name: "creds", Optional: true}}},
		"vars":               {Vars: []stack.Var{{Name: "a", Secret: ref("creds", "file", true)}}},
		"env":                {Env: []stack.EnvVar{{Name: "A", Secret: ref("creds", "file", true)}}},
		"envFrom":            {EnvFrom: []stack.EnvFrom{{Kind: "Secret", Name: "creds", Optional: true}}},
		"backendConfigsFrom": {Completes: []stack.ConfigFrom{{Kind: "Secret", Name: "backend", Optional: true}}},
	} {
		if _, b := c.resolve(t, program); b == nil || !strings.Contains(b.Message, errUnreadable.Error()) {
			t.Errorf("an optional Secret of %s that cannot be read: %+v, want the error", name, b)
		}
	}
}

var errUnreadable = errors.New("the server is on fire")

// unreadable is a client of a server that answers nothing.
type unreadable struct{ client.Client }

func (unreadable) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errUnreadable
}

// A destroy takes renewed credentials where they are, and the record where they
// are not; never what says where things are.
func TestRefresh(t *testing.T) {
	c := newCupboard(t)
	p, blocked := c.resolve(t, everything())
	if blocked != nil {
		t.Fatalf("blocked: %+v", blocked)
	}
	files, err := c.given(p.in.placed)
	if err != nil {
		t.Fatal(err)
	}
	recorded := func() *runner.Job {
		return &runner.Job{Env: map[string]string{"API_TOKEN": "token-canary-1", "URL": "https://token-canary-1@z"}, Files: slices.Clone(files), Home: slices.Clone(p.in.placed.home)}
	}
	text := func(job *runner.Job) string {
		var b strings.Builder
		for _, f := range slices.Concat(job.Files, job.Home) {
			b.WriteString(f.Path + ": " + string(f.Content) + "\n")
		}
		return b.String()
	}
	p.note.Backend = backendDigest(p.st.Configuration, p.in.placed.settings)
	c.put(t, "creds", map[string]string{"API_TOKEN": "token-canary-2", "file": "file-canary-2", "MORE": "more"})
	c.put(t, "backend", map[string]string{"bucket": "b", "access_key": "access-canary-2"})
	c.put(t, "rc", map[string]string{"x.tfrc": "credentials \"h.example.com\" {\n  token = \"cli-canary-2\"\n}\n"})
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

	c.put(t, "backend", map[string]string{"bucket": "another", "access_key": "access-canary-3"})
	if err := c.kube.Client.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.kube.Namespace, Name: "creds"}}); err != nil {
		t.Fatal(err)
	}
	c.put(t, "rc", map[string]string{"x.tfrc": "no configuration"})
	job = recorded()
	c.refresh(t.Context(), p, job)
	if diff := cmp.Diff(recorded().Env, job.Env); diff != "" {
		t.Errorf("environment that is gone (-want +got):\n%s", diff)
	}
	if got, want := text(job), text(recorded()); got != want {
		t.Errorf("files that are gone, or of another state:\n%s\nwant\n%s", got, want)
	}
}

func TestLimits(t *testing.T) {
	for name, tt := range map[string]struct {
		platform runner.Limits
		program  stack.Configuration
		want     runner.Limits
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
		if got := (&Stacks{Config: Config{Limits: tt.platform}}).limits(tt.program); got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}

// Files that a stack brings are configuration like the module's own: what they
// declare counts, and what they may not say is refused.
func TestMappedConfigurationIsLookedAt(t *testing.T) {
	c := newCupboard(t)
	c.put(t, "tf", map[string]string{
		"good":  "variable \"API_TOKEN\" {}\n",
		"bad":   "variable \"x\" {\n",
		"state": "terraform {\n  backend \"local\" {}\n}\n",
	})
	program := func(key string) stack.Configuration {
		return stack.Configuration{
			Inline: "output \"x\" { value = 1 }\n", VarsFrom: []stack.VarsFrom{{Kind: "Secret", Name: "creds"}},
			Files: []stack.File{{Secret: stack.KeyRef{Name: "tf", Key: key}, Path: "more.tf"}},
		}
	}
	resolve := func(key string) (*pass, *stack.Blocked) {
		p := &pass{obj: c.obj}
		p.st.Configuration = program(key)
		if b := c.findModule(t.Context(), p); b != nil {
			t.Fatalf("blocked: %+v", b)
		}
		return p, c.findInputs(t.Context(), p)
	}
	p, b := resolve("good")
	if b != nil {
		t.Fatalf("blocked: %+v", b)
	}
	if _, isEnv := p.in.resolved.Environment["API_TOKEN"]; isEnv || string(p.in.resolved.Vars["API_TOKEN"]) != `"token-canary-1"` {
		t.Errorf("a variable that a mapped file declares is %s, and in the environment: %v", p.in.resolved.Vars["API_TOKEN"], isEnv)
	}
	if _, b := resolve("bad"); b == nil || b.Kind != fault.Invalid || !strings.Contains(b.Message, "more.tf:") {
		t.Errorf("a mapped file that cannot be read: %+v, want it named", b)
	}
	p, b = resolve("state")
	if b != nil {
		t.Fatalf("blocked: %+v", b)
	}
	if len(p.in.module.Backends) != 1 { // replaced by ours, as in any ordinary file
		t.Errorf("the module has the backends %+v, want that of the mapped file", p.in.module.Backends)
	}
	if _, err := module.Guard(p.in.module, module.Managed{}); err != nil {
		t.Error(err)
	}
}
