package input

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// cupboard has the inputs of stacks in these tests. Its objects are created
// once, and a test that changes one says so.
type cupboard struct {
	Resolver
	kube *testkit.Cluster
}

func newCupboard(t *testing.T) *cupboard {
	t.Helper()
	k := testkit.Kube(t)
	c := &cupboard{Resolver{Reader: kube.Objects{Client: k.Client}, Key: secret.New("key"), Object: Object{
		Namespace: k.Namespace, Name: "stack", UID: "u-1", Labels: map[string]string{"team": "net"}, Annotations: map[string]string{"a/b": "\"${x}"},
	}}, k}
	testkit.PutInputs(t, k)
	return c
}

// resolve resolves the inputs of a configuration.
func (c *cupboard) resolve(t *testing.T, of stack.Configuration) (Inputs, error) {
	t.Helper()
	r := c.Resolver
	r.Configuration = of
	return r.Resolve(t.Context(), Module{})
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

func TestEverythingThatRunsAreGiven(t *testing.T) {
	c := newCupboard(t)
	in, err := c.resolve(t, everything())
	if err != nil {
		t.Fatal(err)
	}
	t.Run("environment", func(t *testing.T) {
		want := map[string]string{
			"P_ZONE": "z", "API_TOKEN": "token-canary-1", "REGION": "north", "file": "file-canary-1",
			"URL": "https://token-canary-1@z", "TEAM": "net", "ONE": "file-canary-1",
		}
		if diff := cmp.Diff(want, in.Resolved.Environment); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
	t.Run("variables", func(t *testing.T) {
		if got := in.Resolved.Vars; string(got["me"]) != `"stack"` || string(got["quoted"]) != `"\"${x}"` {
			t.Errorf("they are %s", got)
		}
	})
	t.Run("files", func(t *testing.T) {
		file := func(path string) []workdir.File {
			return []workdir.File{{Path: path, Mode: 0o600, Content: []byte("file-canary-1")}}
		}
		if diff := cmp.Diff([][]workdir.File{file(".x/y"), file("k.pem")}, [][]workdir.File{in.Files.Home, in.Files.Work}); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
	t.Run("all secrets are hidden", func(t *testing.T) {
		for _, s := range []string{"token-canary-1", "file-canary-1", "access-canary-1", "cli-canary-1", "cloud-canary-1"} {
			if !slices.Contains(in.Mask, s) {
				t.Errorf("%s is not", s)
			}
		}
		if slices.Contains(in.Mask, "z") || slices.Contains(in.Mask, "net") {
			t.Errorf("so is what is none: %q", in.Mask)
		}
	})
}

// What voids an approval, and what may be renewed meanwhile.
func TestRenewedCredentialsAreTheSameInputs(t *testing.T) {
	c := newCupboard(t)
	inputs := func(configuration stack.Configuration) (string, string) {
		in, err := c.resolve(t, configuration)
		if err != nil {
			t.Fatal(err)
		}
		return in.Digest, in.Credentials
	}
	configuration := everything()
	configuration.Files, configuration.Env = nil, configuration.Env[:2] // files and other variables are inputs
	digest, record := inputs(configuration)

	// Credentials of every kind are renewed.
	testkit.SetSecret(t, c.kube, "creds", map[string]string{"API_TOKEN": "token-canary-2", "REGION": "north", "file": "file-canary-1"})
	testkit.SetSecret(t, c.kube, "backend", map[string]string{"bucket": "b", "access_key": "access-canary-2"})
	testkit.SetSecret(t, c.kube, "rc", map[string]string{"x.tfrc": "credentials \"h.example.com\" {\n  token = \"cli-canary-2\"\n}\n"})
	configuration.Backend.Cloud.Token = secret.New("cloud-canary-2")
	renewed, recorded := inputs(configuration)
	if renewed != digest {
		t.Error("renewed credentials are other inputs")
	}
	if recorded == record {
		t.Error("renewed credentials are not recorded anew")
	}
	for name, change := range map[string]func(){
		"a region": func() {
			testkit.SetSecret(t, c.kube, "creds", map[string]string{"API_TOKEN": "token-canary-2", "REGION": "south", "file": "file-canary-1"})
		},
		"a bucket": func() {
			testkit.SetSecret(t, c.kube, "backend", map[string]string{"bucket": "c", "access_key": "access-canary-2"})
		},
		"a host of the engine": func() {
			testkit.SetSecret(t, c.kube, "rc", map[string]string{"x.tfrc": "credentials \"i.example.com\" {\n  token = \"cli-canary-2\"\n}\n"})
		},
		"a label": func() { c.Object.Labels = map[string]string{"team": "db"} },
		"a variable": func() {
			configuration.Vars = append(configuration.Vars, stack.Var{Name: "x", Value: json.RawMessage("1")})
		},
		"a file": func() { configuration.Files = everything().Files },
		"what a file holds": func() {
			testkit.SetSecret(t, c.kube, "creds", map[string]string{"API_TOKEN": "token-canary-2", "REGION": "south", "file": "file-canary-2"})
		},
	} {
		before, _ := inputs(configuration)
		change()
		if after, _ := inputs(configuration); after == before {
			t.Errorf("another %s makes the same inputs", name)
		}
	}
}

// What is missing is said by its field, and no error passes for an absence.
func TestInputsThatCannotBeRead(t *testing.T) {
	c := newCupboard(t)
	testkit.SetSecret(t, c.kube, "two", map[string]string{"a.tfrc": "", "b.tfrc": ""})
	testkit.SetSecret(t, c.kube, "evil", map[string]string{"x": "1", "GIT_SSH_COMMAND": "canary"})
	ref := func(name, key string, optional bool) *stack.KeyRef {
		return &stack.KeyRef{Name: name, Key: key, Optional: optional}
	}
	for name, tt := range map[string]struct {
		configuration stack.Configuration
		kind          fault.Kind
		want          string
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
			in, err := c.resolve(t, tt.configuration)
			if tt.kind == fault.None {
				if err != nil {
					t.Errorf("Resolve() = %v", err)
				}
				return
			}
			if fault.Of(err) != tt.kind || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "canary") {
				t.Errorf("Resolve() = %+v, %v, want %s with %q", in, err, tt.kind, tt.want)
			}
		})
	}
	// Upstream reads optional as: whatever goes wrong.
	c.Reader = unreadable{}
	for name, configuration := range map[string]stack.Configuration{
		"varsFrom":           {VarsFrom: []stack.VarsFrom{{Kind: "Secret", Name: "creds", Optional: true}}},
		"vars":               {Vars: []stack.Var{{Name: "a", Secret: ref("creds", "file", true)}}},
		"env":                {Env: []stack.EnvVar{{Name: "A", Secret: ref("creds", "file", true)}}},
		"envFrom":            {EnvFrom: []stack.EnvFrom{{Kind: "Secret", Name: "creds", Optional: true}}},
		"backendConfigsFrom": {Completes: []stack.ConfigFrom{{Kind: "Secret", Name: "backend", Optional: true}}},
	} {
		if _, err := c.resolve(t, configuration); !errors.Is(err, errUnreadable) {
			t.Errorf("an optional Secret of %s that cannot be read: %v, want the error", name, err)
		}
	}
}

var errUnreadable = errors.New("the server is on fire")

// unreadable reads from a server that answers nothing.
type unreadable struct{}

func (unreadable) Read(context.Context, stack.Ref) (map[string][]byte, []string, error) {
	return nil, nil, errUnreadable
}
