package vaults

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/vault"
	"github.com/terrier-iac/terrier/internal/vault/vaulttest"
)

// What a stack gets that was read for another one of its account is in the audit log as well,
// once for each version.
func TestEachStackIsInTheAuditLog(t *testing.T) {
	vaulttest.Each(t, func(t *testing.T, s vaulttest.Server) {
		w := newWorld(t, s)
		first, second := w.stack(appAccount), w.stack(appAccount)
		second.UID, second.Object.UID, second.Object.Name = "u-2", "u-2", "db"
		read := func() {
			t.Helper()
			for range 3 {
				for _, of := range []Stack{first, second} {
					if _, err := w.readFor(t, of, "vault://kyuubi/database#password"); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		logged := func() (all []string) {
			for _, e := range w.Entries() {
				all = append(all, fmt.Sprint(e.Object.Name, " ", e.Details["path"], " ", e.Details["version"], " ", e.Details["cached"]))
				if e.Details["requestID"] == "" {
					t.Errorf("%+v does not say by which request", e)
				}
			}
			return all
		}
		read()
		s.Write(t, "database", map[string]any{"password": "rotated"})
		w.Pass(w.vaults.Config.Reread)
		read()
		want := "[net kyuubi/database 1  db kyuubi/database 1 true net kyuubi/database 2  db kyuubi/database 2 true]"
		if got := fmt.Sprint(logged()); got != want {
			t.Errorf("the audit log has\n%s, want\n%s", got, want)
		}
	})
}

// weight is what is kept of the secrets of a namespace, in bytes.
func (w *world) weight(namespace string) (sum int) {
	w.vaults.secrets.kept.DeleteFunc(func(of reading, v value) bool {
		if namespace == "" || of.account.Namespace == namespace {
			sum += weigh(of, v)
		}
		return false
	})
	return sum
}

// However much there is to read, what is kept of it is bounded, and one namespace leaves room
// for others. What is not to be used any more goes without a question for it.
func TestSecretsThatAreKeptAreBounded(t *testing.T) {
	w := newWorld(t, vaulttest.StandIn(t))
	if _, err := w.read(t, appAccount, "vault://kyuubi/database"); err != nil {
		t.Fatal(err)
	}
	mine := w.weight("apps")
	if mine == 0 {
		t.Fatal("nothing is kept")
	}

	// A server that decrypts every text to 1 MiB.
	long := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", 1<<20)))
	h := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/login"):
			_, _ = fmt.Fprint(out, `{"auth": {"client_token": "t", "accessor": "a"}}`)
		case strings.Contains(r.URL.Path, "/mounts/"):
			_, _ = fmt.Fprint(out, `{"data": {"path": "transit/", "type": "transit"}}`)
		default:
			_, _ = fmt.Fprintf(out, `{"data": {"plaintext": %q}}`, long)
		}
	}))
	t.Cleanup(h.Close)
	at, err := url.Parse(h.URL)
	if err != nil {
		t.Fatal(err)
	}
	was := w.vaults.Config.Server
	w.vaults.Config.Server = vault.Server{URL: at, HTTP: http.DefaultClient}
	for i := range 100 {
		other := types.NamespacedName{Namespace: "other", Name: "runner"}
		got, err := w.read(t, other, fmt.Sprintf("vault://transit/decrypt/k?ciphertext=%d", i))
		if err != nil || len(got.Data["plaintext"]) != 1<<20 {
			t.Fatalf("Read() = %d bytes, %v", len(got.Data["plaintext"]), err)
		}
	}
	if all := w.weight(""); all > weightKept || w.weight("other") > weightShare {
		t.Errorf("%d bytes are kept, and %d of one namespace, want at most %d and %d", all, w.weight("other"), weightKept, weightShare)
	}
	if got := w.weight("apps"); got != mine {
		t.Errorf("%d bytes of the other namespace are kept, want all %d", got, mine)
	}
	w.vaults.Config.Server = was
	w.Pass(w.vaults.Config.Reread)
	w.vaults.sweep(t.Context())
	if left := w.weight(""); left != 0 {
		t.Errorf("%d bytes are kept of secrets that are not to be used any more", left)
	}
}

func TestHowManySecretsAStackMayName(t *testing.T) {
	w := newWorld(t, vaulttest.StandIn(t))
	r := w.vaults.Reader(w.stack(appAccount))
	for i := range namesMost {
		name := fmt.Sprintf("vault://kyuubi/nothing-%d", i%(namesMost-1))
		if _, err := readWith(t, r, name); fault.Of(err) != fault.Denied && fault.Of(err) != fault.Missing {
			t.Fatalf("Read(%s) = %v", name, err)
		}
	}
	if got, err := readWith(t, r, "vault://kyuubi/database#password"); err != nil || len(got.Data) != 1 {
		t.Errorf("Read() of the last one = %v", err)
	}
	if _, err := readWith(t, r, "vault://kyuubi/nothing"); fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), "more than 256 secrets") {
		t.Errorf("Read() of one more = %v, want Invalid", err)
	}
}
