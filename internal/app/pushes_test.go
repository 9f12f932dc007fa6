package app

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// answers is a control plane of which only the address is known.
type answers struct{ url string }

func (a answers) Config() *rest.Config                        { return &rest.Config{Host: a.url} }
func (answers) Kubeconfig() string                            { return "" }
func (answers) Address() string                               { return "" }
func (answers) Certificate() (tls.Certificate, []byte, error) { return tls.Certificate{}, nil, nil }
func (answers) Wait() error                                   { return nil }

// What users push is bounded by the quota of the registry: by the annotations of a namespace
// where the registry of modules is on, and by the flag alone where it is off, since the server
// may not read namespaces then.
func TestPushesHaveAQuota(t *testing.T) {
	var asked atomic.Int32
	kube := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		n := corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: "large", Annotations: map[string]string{"terrier.dev/registry-quota-size": "3"}}}
		if !strings.HasSuffix(r.URL.Path, "/namespaces/large") {
			n.Name, n.Annotations = "usual", nil
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(n)
	}))
	defer kube.Close()
	content := strings.Repeat("x", 2<<20)
	for name, tt := range map[string]struct {
		registry     bool
		usual, large int // statuses of pushes to a namespace without annotations, and with a larger quota
		says         string
	}{
		"with the registry":    {true, http.StatusForbidden, http.StatusCreated, "the annotations terrier.dev/registry-quota-size"},
		"without the registry": {false, http.StatusForbidden, http.StatusForbidden, "(--registry-quota-size)"},
	} {
		t.Run(name, func(t *testing.T) {
			asked.Store(0)
			p := &parts{Options: Options{Config: Config{DataDir: t.TempDir(), Registry: tt.registry, QuotaSize: 1}, Now: time.Now}, log: slog.New(slog.DiscardHandler), plane: plane{answers{kube.URL}}}
			registry, err := openRegistry(p, nil)
			if err != nil {
				t.Fatal(err)
			}
			push := func(namespace string, want int) string {
				t.Helper()
				w := httptest.NewRecorder()
				registry.ServeHTTP(w, httptest.NewRequest(http.MethodPost, fmt.Sprintf("/v2/%s/net/blobs/uploads/?digest=sha256:%x", namespace, sha256.Sum256([]byte(content))), strings.NewReader(content)))
				body, err := io.ReadAll(w.Result().Body)
				if w.Code != want || err != nil {
					t.Errorf("a push of 2 MiB to the namespace %s = %d %s, %v, want %d", namespace, w.Code, body, err, want)
				}
				return string(body)
			}
			if body := push("usual", tt.usual); !strings.Contains(body, tt.says) {
				t.Errorf("the refusal is %s, want it to say %q", body, tt.says)
			}
			push("large", tt.large)
			if got := asked.Load() > 0; got != tt.registry {
				t.Errorf("the API server was asked: %t, want %t", got, tt.registry)
			}
		})
	}
}
