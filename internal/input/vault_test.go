package input

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/stack"
)

func TestParseVaultSecret(t *testing.T) {
	for name, want := range map[string]VaultSecret{
		"vault://kyuubi/database":                            {Path: "kyuubi/database"},
		"vault://kyuubi/database#mariadb_password":           {Path: "kyuubi/database", Key: "mariadb_password"},
		"vault://kyuubi/database#mariadb_password@3":         {Path: "kyuubi/database", Key: "mariadb_password", Version: 3},
		"vault://kyuubi/team/a/database@12":                  {Path: "kyuubi/team/a/database", Version: 12},
		"vault://pki/issue/web?common_name=a.example&ttl=1h": {Path: "pki/issue/web", With: map[string]string{"common_name": "a.example", "ttl": "1h"}},
		"vault://kv/a@b/c#key@2":                             {Path: "kv/a@b/c", Key: "key", Version: 2},
	} {
		got, err := ParseVaultSecret(name)
		if err != nil {
			t.Errorf("ParseVaultSecret(%q) = %v", name, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("ParseVaultSecret(%q) (-want +got):\n%s", name, diff)
		}
		if got.String() != name {
			t.Errorf("ParseVaultSecret(%q).String() = %q", name, got.String())
		}
	}
	for name, want := range map[string]string{
		"kyuubi/database":               "does not begin with",
		"vault://":                      "no path below a mount",
		"vault://kyuubi":                "no path below a mount",
		"vault://kyuubi/":               "no path below a mount",
		"vault://kyuubi/database#":      "no key follows #",
		"vault://kyuubi/database@0":     "no number from 1 on",
		"vault://kyuubi/database#a@b":   "no number from 1 on",
		"vault://kyuubi/database#a@-1":  "no number from 1 on",
		"vault://kyuubi/database?a=%zz": "parameters cannot be read",
		"vault://pki/issue/a?n=1&n=2":   "is there 2 times",
		"vault://kyuubi/data|base":      "a control character, or |",
		"vault://kyuubi/data\x03base":   "a control character, or |",
	} {
		if got, err := ParseVaultSecret(name); fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseVaultSecret(%q) = %+v, %v, want Invalid: %s", name, got, err, want)
		}
	}
}

// kept is a cluster with a Vault: secrets that stay by their paths, and mounts that make
// secrets.
type kept struct {
	objects
	version string
	until   time.Time
}

func (k kept) Vault(_ context.Context, of VaultSecret) (Value, error) {
	if strings.HasPrefix(of.Path, "database/") {
		return Value{Made: true}, nil
	}
	return Value{Data: map[string][]byte{"password": []byte("vault-canary"), "user": []byte("root")}, Version: k.version, Until: k.until}, nil
}

func vaultStack(c stack.Configuration, version string) Resolver {
	return Resolver{Key: secret.New("key"), Configuration: c, Object: Object{Namespace: "ns"}, Reader: kept{objects{}, version, time.Unix(1e9, 0)}}
}

// Wherever a stack names a Secret, it may name a secret of Vault.
func TestSecretsOfVaultAreInputs(t *testing.T) {
	c := stack.Configuration{
		VarsFrom: []stack.VarsFrom{{Kind: Secret, Name: "vault://kyuubi/database", Keys: []string{"password:db_password"}}},
		Vars:     []stack.Var{{Name: "user", Secret: &stack.KeyRef{Name: "vault://kyuubi/database@3", Key: "user"}}},
		Env:      []stack.EnvVar{{Name: "PGPASSWORD", Secret: &stack.KeyRef{Name: "vault://kyuubi/database#password", Key: "password"}}},
		EnvFrom:  []stack.EnvFrom{{Kind: Secret, Name: "vault://kyuubi/database#user", Prefix: "DB_"}},
		Files:    []stack.File{{Path: "password.txt", Secret: stack.KeyRef{Name: "vault://kyuubi/database", Key: "password"}}},
	}
	got, err := vaultStack(c, "v3").Resolve(t.Context(), Module{})
	if err != nil {
		t.Fatal(err)
	}
	if string(got.Resolved.Vars["db_password"]) != `"vault-canary"` || string(got.Resolved.Vars["user"]) != `"root"` {
		t.Errorf("variables are %s", got.Resolved.Vars)
	}
	if diff := cmp.Diff(map[string]string{"PGPASSWORD": "vault-canary", "DB_user": "root"}, got.Resolved.Environment); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	if len(got.Files.Work) != 1 || string(got.Files.Work[0].Content) != "vault-canary" {
		t.Errorf("files are %+v", got.Files.Work)
	}
	if !strings.Contains(strings.Join(got.Mask, " "), "vault-canary") || !got.Until.Equal(time.Unix(1e9, 0)) {
		t.Errorf("hidden are %q until %v", got.Mask, got.Until)
	}
	if other, err := vaultStack(c, "v4").Resolve(t.Context(), Module{}); err != nil || other.Digest == got.Digest {
		t.Errorf("another version is the same plan (%v)", err)
	}
	if refs := References(c, "ns"); len(refs.Reads) != 0 {
		t.Errorf("it waits for the objects %v", refs.Reads)
	}
	if field := (stack.Configuration{Vars: []stack.Var{{Name: "v", Field: "metadata.labels['team']"}}}); !Outside(c) || !Outside(field) || Outside(stack.Configuration{}) {
		t.Error("what others may change is taken for a part of the spec, or the other way round")
	}
	bare := vaultStack(c, "")
	bare.Reader = objects{}
	if _, err := bare.Resolve(t.Context(), Module{}); fault.Of(err) != fault.Denied || !strings.Contains(err.Error(), "--vault=URL") {
		t.Errorf("without a Vault: %v", err)
	}
}

// What Vault makes for each run is made when the run begins, and what stands for it until
// then is the same each time.
func TestSecretsThatAreMadeForARun(t *testing.T) {
	key := stack.KeyRef{Name: "vault://database/creds/app", Key: "password"}
	c := stack.Configuration{
		Env:   []stack.EnvVar{{Name: "DB_PASS", Secret: &key}, {Name: "DSN", Value: "app:$(DB_PASS)@db"}},
		Files: []stack.File{{Path: "pass", Secret: key}},
	}
	r := vaultStack(c, "")
	got, err := r.Resolve(t.Context(), Module{})
	if err != nil {
		t.Fatal(err)
	}
	again, err := r.Resolve(t.Context(), Module{})
	if err != nil || again.Digest != got.Digest {
		t.Errorf("the next resolution is another plan (%v)", err)
	}
	texts := []string{got.Resolved.Environment["DB_PASS"], got.Resolved.Environment["DSN"], string(got.Files.Work[0].Content)}
	want := VaultSecret{Path: "database/creds/app", Key: "password"}
	if diff := cmp.Diff([]VaultSecret{want}, Made(r.Key, texts...)); diff != "" {
		t.Fatalf("Made() (-want +got):\n%s", diff)
	}
	for i, filled := range []string{"s3cret", "app:s3cret@db", "s3cret"} {
		if got := Fill(r.Key, texts[i], want, []byte("s3cret")); got != filled {
			t.Errorf("Fill() = %q, want %q", got, filled)
		}
	}
	if made := Made(secret.New("another"), texts...); len(made) != 0 {
		t.Errorf("a text of a user is taken for a placeholder: %v", made)
	}
	for name, c := range map[string]stack.Configuration{
		"vars":                  {Vars: []stack.Var{{Name: "v", Secret: &key}}},
		"varsFrom":              {VarsFrom: []stack.VarsFrom{{Kind: Secret, Name: key.Name}}},
		"envFrom":               {EnvFrom: []stack.EnvFrom{{Kind: Secret, Name: key.Name}}},
		"readInputsFromSecrets": {Inputs: []stack.Input{{As: "net", Secret: key.Name}}},
		"backendConfigsFrom":    {Completes: []stack.ConfigFrom{{Kind: Secret, Name: key.Name}}},
	} {
		if _, err := vaultStack(c, "").Resolve(t.Context(), Module{}); fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "runnerPodTemplate.spec.env") {
			t.Errorf("%s of a secret that is made for each run: %v, want Invalid, and the way out", name, err)
		}
	}
}
