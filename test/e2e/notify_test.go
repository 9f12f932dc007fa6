package e2e

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/terrier-iac/terrier/internal/testkit"
)

// inbox is a server that takes notifications, or refuses them for a while.
type inbox struct {
	*httptest.Server
	mu     sync.Mutex
	refuse bool
	got    []notice
}

type notice struct {
	body      []byte
	signature string
	refused   bool

	InvolvedObject struct{ Kind, Namespace, Name string }
	Severity       string
	Reason         string
	Message        string
	Metadata       map[string]string
}

func openInbox(t *testing.T, refuse bool) *inbox {
	t.Helper()
	i := &inbox{refuse: refuse}
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		n := notice{body: body, signature: r.Header.Get("X-Signature")}
		err := json.Unmarshal(body, &n)
		i.mu.Lock()
		defer i.mu.Unlock()
		n.refused = i.refuse
		i.got = append(i.got, n)
		if i.refuse || err != nil {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(i.Close)
	return i
}

func (i *inbox) refuses(yes bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.refuse = yes
}

func (i *inbox) all() []notice {
	i.mu.Lock()
	defer i.mu.Unlock()
	return append([]notice(nil), i.got...)
}

// await returns the first message that begins so, refused or not.
func (i *inbox) await(t *testing.T, refused bool, message string) notice {
	t.Helper()
	var found notice
	testkit.Eventually(t, testkit.Patience, "it is told "+message, func(context.Context) error {
		for _, n := range i.all() {
			if n.refused == refused && strings.HasPrefix(n.Message, message) {
				found = n
				return nil
			}
		}
		return fmt.Errorf("it was told %+v", i.all())
	})
	return found
}

// alert sends everything about stacks of a namespace to an address, signed.
func alert(name, about, address string) string {
	return `apiVersion: v1
kind: Secret
metadata: {name: ` + name + `}
stringData: {address: "` + address + `", token: canary-key}
---
apiVersion: notification.toolkit.fluxcd.io/v1beta3
kind: Provider
metadata: {name: ` + name + `}
spec: {type: generic-hmac, secretRef: {name: ` + name + `}}
---
apiVersion: notification.toolkit.fluxcd.io/v1beta3
kind: Alert
metadata: {name: ` + name + `}
spec:
  providerRef: {name: ` + name + `}
  eventMetadata: {summary: of the test}
  eventSources: [{kind: Terraform, name: "*", namespace: ` + about + `}]
`
}

// A pending plan is sent to the providers of an alert, signed, although the server
// was down and the platform was killed meanwhile. Others do not get it, and Flux's
// controller gets everything.
func TestPeopleAreToldOfPendingPlans(t *testing.T) {
	t.Parallel()
	flux := openInbox(t, false)
	p := testkit.Up(t, "--events-addr", flux.URL+"/")
	c, w := p.Cluster(t), p.World(t)
	other := p.Cluster(t)
	hook, spy := openInbox(t, true), openInbox(t, false)
	c.Apply(t, alert("hook", c.Namespace, hook.URL+"/canary-path"))
	other.Apply(t, alert("spy", c.Namespace, spy.URL))
	c.PutSecret(t, "vars", map[string]string{"secret": "canary-value"})
	c.Apply(t, inline("stack", "interval: 1h\nvarsFrom: [{kind: Secret, name: vars}]", w.HCL()+`
variable "secret" { sensitive = true }
resource "world_thing" "a" {
  name   = "a"
  secret = var.secret
}`))
	s := c.AwaitPending(t, "stack")
	first := hook.await(t, true, "Plan pending: ")
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	hook.refuses(false)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	n := hook.await(t, false, "Plan pending: ")
	if string(n.body) != string(first.body) {
		t.Errorf("after the restart it was told\n%s\nwant\n%s", n.body, first.body)
	}
	mac := hmac.New(sha256.New, []byte("canary-key"))
	mac.Write(n.body)
	if want := "sha256=" + hex.EncodeToString(mac.Sum(nil)); n.signature != want {
		t.Errorf("the signature is %q, want %q", n.signature, want)
	}
	if n.InvolvedObject.Kind != "Terraform" || n.InvolvedObject.Name != "stack" || n.Severity != "info" || n.Reason != "TerraformPlanSucceed" ||
		n.Metadata["plan"] != s.Status.Plan.Pending || n.Metadata["add"] != "1" || n.Metadata["summary"] != "of the test" {
		t.Errorf("it was told %s; want that %s waits", n.body, s.Status.Plan.Pending)
	}

	c.Terrier(t, "approve", "stack")
	c.AwaitReady(t, "stack")
	hook.await(t, false, "Applied "+s.Status.Plan.Pending)
	if got := flux.await(t, false, "Applied "); got.Metadata["infra.contrib.fluxcd.io/plan"] == "" || got.Metadata["infra.contrib.fluxcd.io/run"] == "" {
		t.Errorf("Flux was told %s; want the plan and the run under the prefix of its group", got.body)
	}
	for _, n := range append(hook.all(), flux.all()...) {
		if strings.Contains(string(n.body), "canary") {
			t.Errorf("a secret was sent: %s", n.body)
		}
	}
	if got := spy.all(); len(got) > 0 {
		t.Errorf("an alert of another namespace was told %s", got[0].body)
	}
}
