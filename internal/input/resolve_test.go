package input

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
	"github.com/terrier-iac/terrier/internal/workdir"
	"github.com/terrier-iac/terrier/internal/workdir/module"
)

// given makes the objects that stacks in these tests refer to.
func given(t *testing.T) Resolver {
	t.Helper()
	k := testkit.Kube(t)
	at := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: k.Namespace, Name: name} }
	outputs := at("outputs")
	outputs.Annotations = map[string]string{"terrier.dev/public-outputs": "vpc,count"}
	for _, o := range []client.Object{
		&corev1.Secret{ObjectMeta: at("creds"), StringData: map[string]string{"AWS_ACCESS_KEY_ID": "AKIACANARY", "password": "s3cr3t-canary", "size": "3"}},
		&corev1.Secret{ObjectMeta: at("evil"), StringData: map[string]string{"LD_PRELOAD": "/x.so"}},
		&corev1.Secret{ObjectMeta: outputs, StringData: map[string]string{"vpc": "vpc-123456", "count": "2", "count__type": `"number"`, "zones": `["a","b"]`, "zones__type": `["list","string"]`, "token": "tok-canary", "tokens": "[\n      \"first-canary\"\n    ]", "tokens__type": `["list","string"]`}},
		&corev1.ConfigMap{ObjectMeta: at("config"), Data: map[string]string{"region": "eu-1", "HTTP_HOST": "a"}},
	} {
		if err := k.Client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	return Resolver{Reader: kube.Objects{Client: k.Client}, Key: secret.New("key"), Object: Object{Namespace: k.Namespace, Name: "stack"}}
}

func TestInputs(t *testing.T) {
	r := given(t)
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	declared := map[string]workdir.Variable{"password": {Name: "password"}, "region": {Name: "region"}}
	for name, tt := range map[string]struct {
		configuration stack.Configuration
		vars          map[string]string
		env           map[string]string
		mask          []string // what must be hidden
		shown         []string // what must not be
		kind          fault.Kind
		message       string
	}{
		"later sources win, credentials become environment": {
			configuration: stack.Configuration{Vars: []stack.Var{{Name: "region", Value: raw(`"x"`)}, {Name: "n", Value: raw("12345678901234567890")}}, VarsFrom: []stack.VarsFrom{{Kind: "ConfigMap", Name: "config", Keys: []string{"region"}}, {Kind: "Secret", Name: "creds"}}},
			vars:          map[string]string{"region": `"eu-1"`, "n": "12345678901234567890", "password": `"s3cr3t-canary"`, "size": `"3"`},
			env:           map[string]string{"AWS_ACCESS_KEY_ID": "AKIACANARY"},
			mask:          []string{"AKIACANARY", "s3cr3t-canary"}, shown: []string{"eu-1"},
		},
		"keys are renamed": {
			configuration: stack.Configuration{VarsFrom: []stack.VarsFrom{{Kind: "Secret", Name: "creds", Keys: []string{"password:db_password"}}}},
			vars:          map[string]string{"db_password": `"s3cr3t-canary"`}, env: map[string]string{},
		},
		"values are made from outputs of others, of which only the marked are hidden": {
			configuration: stack.Configuration{Inputs: []stack.Input{{Secret: "outputs", As: "net"}}, Values: raw(`{"id":"${{ .net.vpc }}","n":"${{ .net.count }}","all":"${{ .net.zones }}"}`)},
			vars:          map[string]string{"values": `{"all":["a","b"],"id":"vpc-123456","n":"2"}`}, env: map[string]string{},
			mask: []string{"tok-canary", "first-canary"}, shown: []string{"vpc-123456"},
		},
		"what is in a secret list is hidden, too": {
			configuration: stack.Configuration{VarsFrom: []stack.VarsFrom{{Kind: "Secret", Name: "outputs", Keys: []string{"tokens:names"}}}},
			vars:          map[string]string{"names": `"[\n      \"first-canary\"\n    ]"`}, env: map[string]string{}, mask: []string{"first-canary"},
		},
		"one variable from a Secret": {
			configuration: stack.Configuration{Vars: []stack.Var{{Name: "p", Secret: &stack.KeyRef{Name: "creds", Key: "password"}}, {Name: "q", Config: &stack.KeyRef{Name: "nope", Key: "x", Optional: true}}}},
			vars:          map[string]string{"p": `"s3cr3t-canary"`}, env: map[string]string{}, mask: []string{"s3cr3t-canary"},
		},
		"a missing Secret is waited for":       {configuration: stack.Configuration{VarsFrom: []stack.VarsFrom{{Kind: "Secret", Name: "nope"}}}, kind: fault.Missing, message: "nope does not exist"},
		"an optional one is not":               {configuration: stack.Configuration{VarsFrom: []stack.VarsFrom{{Kind: "Secret", Name: "nope", Optional: true, Keys: []string{"a"}}}}, vars: map[string]string{}, env: map[string]string{}},
		"a missing key does not become empty":  {configuration: stack.Configuration{VarsFrom: []stack.VarsFrom{{Kind: "Secret", Name: "creds", Keys: []string{"nope"}}}}, kind: fault.Missing, message: `no key "nope"`},
		"what steers processes is refused":     {configuration: stack.Configuration{VarsFrom: []stack.VarsFrom{{Kind: "Secret", Name: "evil"}}}, kind: fault.Denied, message: "LD_PRELOAD"},
		"an output that is not there is named": {configuration: stack.Configuration{Inputs: []stack.Input{{Secret: "outputs", As: "net"}}, Values: raw(`{"id":"${{ .net.nope }}"}`)}, kind: fault.Invalid, message: "nope"},
	} {
		t.Run(name, func(t *testing.T) {
			r.Configuration = tt.configuration
			in, err := r.Resolve(t.Context(), Module{Root: module.Root{Variables: declared}})
			if tt.kind != fault.None {
				if fault.Of(err) != tt.kind || !strings.Contains(err.Error(), tt.message) {
					t.Fatalf("Resolve() = %v, want %s with %q", err, tt.kind, tt.message)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			vars := map[string]string{}
			for k, v := range in.Resolved.Vars {
				vars[k] = string(v)
			}
			if diff := cmp.Diff(tt.vars, vars); diff != "" {
				t.Errorf("variables (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.env, in.Resolved.Environment); diff != "" {
				t.Errorf("environment (-want +got):\n%s", diff)
			}
			for _, s := range tt.mask {
				if !slices.Contains(in.Mask, s) {
					t.Errorf("%q is not hidden", s)
				}
			}
			for _, s := range tt.shown {
				if slices.Contains(in.Mask, s) {
					t.Errorf("%q is hidden", s)
				}
			}
		})
	}
}

// The digest of inputs stands in the status: without the key, its reader cannot try
// passwords against it.
func TestDigestIsKeyed(t *testing.T) {
	r := workdir.Resolved{Vars: workdir.Variables{"p": json.RawMessage(`"hunter2"`)}}
	a, b := Digest(secret.New("a"), r), Digest(secret.New("b"), r)
	if a == b || a != Digest(secret.New("a"), r) {
		t.Errorf("digests %s and %s: they must depend on the key, and on nothing else", a, b)
	}
}
