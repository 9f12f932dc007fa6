package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/terrier-iac/terrier/internal/testkit"
	"github.com/terrier-iac/terrier/internal/testkit/port"
	"github.com/terrier-iac/terrier/internal/vault/vaulttest"
)

// kyuubi is the example of an estate with OpenBao.
type kyuubi struct {
	exampleCommand
	bao   string // the address of OpenBao
	ports []string
	root  string // the token of the administrator
}

// reserved is a port of loopback that no other test gets.
func reserved(t *testing.T) string {
	t.Helper()
	return strconv.Itoa(port.Reserve(t, "127.0.0.1"))
}

// start runs the command until it says that the estate is up.
func (k *kyuubi) start(t *testing.T) {
	t.Helper()
	k.starts(t, "kyuubi", "the estate is up", []string{"BAO_PORT=" + k.ports[0], "TERRIER_PORT=" + k.ports[1]}, "--vault-refresh-interval", "1s")
	keys := read(t, filepath.Join(k.dir, "bao", "keys"))
	_, root, _ := strings.Cut(keys, "Initial Root Token: ")
	k.root = strings.TrimSpace(strings.SplitN(root, "\n", 2)[0])
	k.environ = []string{"BAO_ADDR=" + k.bao, "BAO_TOKEN=" + k.root}
}

// secret is a key of a Secret.
func (k *kyuubi) secret(ctx context.Context, namespace, name, key string) (string, error) {
	return k.try(ctx, "kubectl", "-n", namespace, "get", "secret", name, "-o", `go-template={{index .data "`+key+`" | base64decode}}`)
}

// awaitSecret waits until a key of a Secret says something.
func (k *kyuubi) awaitSecret(t *testing.T, namespace, name, key, says string) {
	t.Helper()
	testkit.Eventually(t, testkit.Patience, namespace+"/"+name+" has what it should", func(ctx context.Context) error {
		got, err := k.secret(ctx, namespace, name, key)
		if err == nil && !strings.Contains(got, says) {
			err = errors.New("it has another value")
		}
		return err
	})
}

// signIn signs in to OpenBao with a token of a ServiceAccount, and returns a token of OpenBao.
func (k *kyuubi) signIn(t *testing.T, namespace, account string) (string, error) {
	t.Helper()
	out, err := k.ask(t, http.MethodPost, "auth/kubernetes/login", "", map[string]string{
		"role": "kyuubi-role", "jwt": strings.TrimSpace(k.run(t, "kubectl", "-n", namespace, "create", "token", account)),
	})
	return out.Auth.Token, err
}

// baoAnswer is what OpenBao answers.
type baoAnswer struct {
	Auth struct {
		Token string `json:"client_token"`
	}
	Data struct {
		Data     map[string]string
		Metadata struct{ Version int }
	}
}

func (k *kyuubi) ask(t *testing.T, method, path, token string, in any) (baoAnswer, error) {
	t.Helper()
	var out baoAnswer
	body, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, k.bao+"/v1/"+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Vault-Token", token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode/100 != 2 {
		return out, fmt.Errorf("%d %s", resp.StatusCode, text)
	}
	if len(text) > 0 {
		err = json.Unmarshal(text, &out)
	}
	return out, err
}

// KY-01 to KY-07: one command runs the estate of the guide on one machine. OpenBao is
// set up by a stack whose runs have an identity and no stored credential, another one reads from
// it as its ServiceAccount, and another start goes on with all of it.
func TestKyuubiExample(t *testing.T) {
	bin := filepath.Dir(vaulttest.Program(t))
	t.Parallel()
	k := &kyuubi{exampleCommand: exampleCommand{dir: t.TempDir(), bin: bin}, ports: []string{reserved(t), reserved(t)}}
	k.bao = "http://127.0.0.1:" + k.ports[0]
	t.Cleanup(func() {
		k.stop(t)
		if t.Failed() {
			t.Logf("the example said:\n%s", k.said)
		}
	})
	k.start(t)

	// KY-01: what the guide declares is there, and a second plan has no changes.
	password, err := k.secret(t.Context(), "vault", "database", "database_password")
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]map[string]string{
		"database": {"mariadb_password": password}, "spark": {"executor_memory": "12g"}, "kyuubi-server": {"authentication": "NONE"}, "aws": {"endpoint": "http://minio:9000"},
	} {
		got, err := k.ask(t, http.MethodGet, "kyuubi/data/"+path, k.root, nil)
		if err != nil || fmt.Sprint(got.Data.Data) != fmt.Sprint(want) {
			t.Errorf("kyuubi/%s differs from what the stack has: %v", path, err)
		}
	}
	if _, err := k.ask(t, http.MethodGet, "kyuubi/data/monitoring", k.root, nil); err == nil || !strings.HasPrefix(err.Error(), "404") {
		t.Errorf("without enable_monitoring its secret is %v, want 404", err)
	}
	if out := k.run(t, "terrier", "replan", "vault", "-n", "vault", "--wait"); !strings.Contains(out, "Applied") {
		t.Errorf("a second plan ended with %s", out)
	}
	if got, err := k.ask(t, http.MethodGet, "kyuubi/data/database", k.root, nil); err != nil || got.Data.Metadata.Version != 1 {
		t.Errorf("a second plan has written version %d, %v; want none", got.Data.Metadata.Version, err)
	}

	// KY-02: the role opens what its policy says, for one ServiceAccount.
	token, err := k.signIn(t, "kyuubi", "kyuubi-sa")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := k.ask(t, http.MethodGet, "kyuubi/data/database", token, nil); err != nil || got.Data.Data["mariadb_password"] != password {
		t.Errorf("kyuubi-sa does not read the password: %v", err)
	}
	for name, try := range map[string]func() error{
		"writing": func() error {
			_, err := k.ask(t, http.MethodPost, "kyuubi/data/database", token, map[string]any{"data": map[string]string{"a": "b"}})
			return err
		},
		"reading metadata":       func() error { _, err := k.ask(t, http.MethodGet, "kyuubi/metadata/database", token, nil); return err },
		"reading another mount":  func() error { _, err := k.ask(t, http.MethodGet, "cubbyhole2/x", token, nil); return err },
		"another ServiceAccount": func() error { _, err := k.signIn(t, "kyuubi", "default"); return err },
		"another namespace": func() error {
			k.run(t, "kubectl", "-n", "default", "create", "serviceaccount", "kyuubi-sa")
			_, err := k.signIn(t, "default", "kyuubi-sa")
			return err
		},
	} {
		if err := try(); err == nil || !strings.HasPrefix(err.Error(), "403") {
			t.Errorf("%s: %v, want 403", name, err)
		}
	}

	// The other stack has the secrets, and no log has them. The audit log names each reading,
	// and each token of a run.
	k.awaitSecret(t, "kyuubi", "kyuubi-defaults", "kyuubi_defaults", "kyuubi.metadata.store.jdbc.password="+password+"\nspark.executor.memory=12g")
	// KY-03, KY-04: so has the Secret that the Deployment of MariaDB refers to, by the annotations
	// of the ServiceAccount alone.
	k.awaitSecret(t, "kyuubi", "vault-secret-database", "mariadb_password", password)
	for _, namespace := range []string{"vault", "kyuubi"} {
		if log := k.run(t, "terrier", "logs", namespace, "-n", namespace); strings.Contains(log, password) {
			t.Errorf("the log of %s has the password", namespace)
		}
	}
	for what, names := range map[string]string{"secret-read": "kyuubi-sa", "identity-issued": "namespace:vault:kind:terraform.infra.contrib.fluxcd.io:stack:vault:phase:apply"} {
		if out := k.run(t, "terrier", "audit", "list", "--what", what, "-o", "json"); !strings.Contains(out, names) || strings.Contains(out, password) {
			t.Errorf("the audit log has no %s with %s", what, names)
		}
	}

	// A rotation reaches the stack. The next check of the other one finds that it was made
	// manually, and undoes it.
	k.run(t, "bao", "kv", "put", "kyuubi/database", "mariadb_password=canary-of-kyuubi")
	k.awaitSecret(t, "kyuubi", "kyuubi-defaults", "kyuubi_defaults", "canary-of-kyuubi")
	k.awaitSecret(t, "kyuubi", "vault-secret-database", "mariadb_password", "canary-of-kyuubi")
	testkit.Eventually(t, testkit.Patience, "KY-05: MariaDB is restarted", func(ctx context.Context) error {
		out, err := k.try(ctx, "kubectl", "-n", "kyuubi", "get", "deployment", "mariadb", "-o", "jsonpath={.spec.template.metadata.annotations}")
		if err == nil && !strings.Contains(out, "secret.terrier.dev/vault-secret-database") {
			err = errors.New("its pods have the annotations " + out)
		}
		return err
	})
	k.run(t, "terrier", "replan", "vault", "-n", "vault")
	k.awaitSecret(t, "kyuubi", "kyuubi-defaults", "kyuubi_defaults", "jdbc.password="+password+"\n")

	// Another start unseals OpenBao and goes on.
	k.stop(t)
	k.start(t)
	if again, err := k.secret(t.Context(), "vault", "database", "database_password"); err != nil || again != password {
		t.Errorf("another start made another password: %v", err)
	}
	if got, err := k.ask(t, http.MethodGet, "kyuubi/data/database", k.root, nil); err != nil || got.Data.Data["mariadb_password"] != password {
		t.Errorf("after another start OpenBao has another password: %v", err)
	}
}

// KY-20: the Kustomizations of the example lead to directories that kustomize builds, and each
// Deployment that they wait for is in one of them.
func TestKyuubiKustomizations(t *testing.T) {
	example := filepath.Join(testkit.Repository(t), "examples", "kyuubi")
	built := map[string]string{}
	var all []kustomization
	for doc := range strings.SplitSeq(read(t, filepath.Join(example, "clusters", "flux.yaml")), "\n---\n") {
		var k kustomization
		if err := yaml.Unmarshal([]byte(doc), &k); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), filepath.Join(testkit.Repository(t), "bin", "kubectl"), "kustomize", filepath.Join(example, k.Spec.Path)).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", k.Metadata.Name, err, out)
		}
		built[k.Metadata.Name] = string(out)
		all = append(all, k)
	}
	if len(all) != 3 {
		t.Fatalf("there are %d Kustomizations, want those of the guide", len(all))
	}
	for _, k := range all {
		for _, check := range k.Spec.HealthChecks {
			if !strings.Contains(built[k.Metadata.Name], "kind: "+check.Kind+"\nmetadata:\n  name: "+check.Name+"\n  namespace: "+check.Namespace+"\n") {
				t.Errorf("%s waits for %s %s/%s, which is not in it", k.Metadata.Name, check.Kind, check.Namespace, check.Name)
			}
		}
		for _, on := range k.Spec.DependsOn {
			if _, ok := built[on.Name]; !ok {
				t.Errorf("%s depends on %s, which is none of them", k.Metadata.Name, on.Name)
			}
		}
	}
}

// kustomization is one of Flux, as far as the test reads it.
type kustomization struct {
	Metadata struct{ Name string }
	Spec     struct {
		Path         string
		HealthChecks []struct{ Kind, Name, Namespace string }
		DependsOn    []struct{ Name string }
	}
}
