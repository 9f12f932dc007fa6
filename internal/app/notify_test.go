package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	notificationv1beta3 "github.com/fluxcd/notification-controller/api/v1beta3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/blob/blobtest"
	"github.com/terrier-iac/terrier/internal/dialect/kinds"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/notify"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/testkit"
)

const providers = `apiVersion: v1
kind: Secret
metadata: {name: hook}
stringData:
  address: https://example.test/secret-path
  token: key
  headers: |
    X-Team: blue
---
apiVersion: notification.toolkit.fluxcd.io/v1beta3
kind: Provider
metadata: {name: hook}
spec: {type: generic-hmac, address: "https://example.test/plain", timeout: 3s, secretRef: {name: hook}}
---
apiVersion: notification.toolkit.fluxcd.io/v1beta3
kind: Provider
metadata: {name: unsigned}
spec: {type: generic-hmac, address: "https://example.test/"}
---
apiVersion: notification.toolkit.fluxcd.io/v1beta3
kind: Provider
metadata: {name: nowhere}
spec: {type: slack}
---
apiVersion: notification.toolkit.fluxcd.io/v1beta3
kind: Provider
metadata: {name: proxied}
spec: {type: slack, address: "https://example.test/", proxy: "http://proxy.test"}
---
apiVersion: notification.toolkit.fluxcd.io/v1beta3
kind: Provider
metadata: {name: suspended}
spec: {type: slack, address: "https://example.test/", suspend: true}
---
apiVersion: notification.toolkit.fluxcd.io/v1beta3
kind: Provider
metadata: {name: without-secret}
spec: {type: slack, secretRef: {name: not-there}}
---
apiVersion: notification.toolkit.fluxcd.io/v1beta3
kind: Alert
metadata: {name: works}
spec: {providerRef: {name: hook}, eventSources: [{kind: Terraform, name: "*"}], eventMetadata: {cluster: a}}
---
apiVersion: notification.toolkit.fluxcd.io/v1beta3
kind: Alert
metadata: {name: broken}
spec: {providerRef: {name: hook}, eventSources: [{kind: Terraform, name: "*"}], inclusionList: ["("]}
---
apiVersion: notification.toolkit.fluxcd.io/v1beta3
kind: Alert
metadata: {name: stopped}
spec: {providerRef: {name: suspended}, eventSources: [{kind: Terraform, name: "*"}]}
`

func TestWhereEventsGo(t *testing.T) {
	k := testkit.Kube(t, notificationv1beta3.AddToScheme)
	k.Apply(t, providers)
	d := &directory{cached: k.Client, live: k.Client, now: time.Now}
	e := notify.Event{InvolvedObject: notify.Object{Kind: "Terraform", Namespace: k.Namespace, Name: "net"}, Severity: notify.Info}
	routes, err := d.Routes(t.Context(), e)
	if len(routes) != 1 || routes[0].Provider != "hook" || routes[0].Namespace != k.Namespace || routes[0].Metadata["cluster"] != "a" {
		t.Errorf("Routes() = %+v, want the one that works", routes)
	}
	if err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("the error is %v, want it to name the alert that cannot be used", err)
	}

	to, err := d.Destination(t.Context(), k.Namespace, "hook")
	if err != nil || to.Address.Reveal() != "https://example.test/secret-path" || to.Token.Reveal() != "key" || to.Headers["X-Team"].Reveal() != "blue" || to.Timeout != 3*time.Second || to.PlainHTTP {
		t.Errorf("Destination() = %+v, %v; want what the Secret has before what the Provider has", to, err)
	}
	for name, kind := range map[string]fault.Kind{
		"unsigned": fault.Invalid, "nowhere": fault.Invalid, "proxied": fault.Invalid, "suspended": fault.Denied, "never-there": fault.Missing,
		"without-secret": fault.Broken, // it may come
	} {
		if _, err := d.Destination(t.Context(), k.Namespace, name); fault.Of(err) != kind {
			t.Errorf("%s: the error is %v of kind %q, want %q", name, err, fault.Of(err), kind)
		}
	}
}

// A Secret is small, and what its aliases stand for is not.
func TestHeadersOfASecret(t *testing.T) {
	got, err := headersOf([]byte("X-Team: blue\nX-Count: 3\n"))
	if err != nil || len(got) != 2 || got["X-Count"].Reveal() != "3" {
		t.Errorf("headersOf() = %v, %v", got, err)
	}
	repeats := "a: &a " + strings.Repeat("x", 500_000) + "\n"
	for i := range 40 {
		repeats += fmt.Sprintf("h%d: *a\n", i)
	}
	if got, err := headersOf([]byte(repeats)); err == nil {
		t.Errorf("headersOf() = %d headers, want an error", len(got))
	}
}

// What controllers tell gets the facts under the prefix of the object's group,
// and what annotations add.
func TestTellerTellsFlux(t *testing.T) {
	heard := make(chan notify.Event, 4)
	flux := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var e notify.Event
		body, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(body, &e); err != nil {
			t.Errorf("sent %s: %v", body, err)
		}
		heard <- e
		w.WriteHeader(http.StatusAccepted)
	}))
	defer flux.Close()
	allow, err := outbound.ParseAllow(strings.TrimPrefix(flux.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	files := blobtest.Files(t, 1<<20)
	send := notify.Sender{Out: outbound.New(outbound.Policy{Allow: allow, PlainHTTP: true})}.Send
	dispatcher := notify.New(notify.Options{Store: files, Now: time.Now, Log: slog.New(slog.DiscardHandler), Upstream: func(ctx context.Context, e notify.Event) error {
		return send(ctx, notify.Destination{Type: notify.Generic, Address: secret.New(flux.URL), PlainHTTP: true}, e)
	}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- dispatcher.Run(ctx) }()
	fake := record.NewFakeRecorder(4)
	at := time.Date(2026, 3, 1, 12, 0, 0, 5, time.UTC)
	tell := recorder{Events: kube.Events{Recorder: fake}, scheme: newScheme(kinds.All()), notifier: dispatcher, component: "terrier", now: func() time.Time { return at }}
	obj := &v1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "net", UID: "u-1", Annotations: map[string]string{"event.toolkit.fluxcd.io/ticket": "7", "other": "x"}}}
	tell.EventWith(obj, corev1.EventTypeWarning, "DriftDetected", "Drift", map[string]string{"add": "1", "event.toolkit.fluxcd.io/commit": "sha1:b8"})
	tell.Record(obj, corev1.EventTypeWarning, "DriftDetected", "again")
	got := <-heard
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	o := got.InvolvedObject
	if o.Kind != "Terraform" || o.APIVersion != "infra.contrib.fluxcd.io/v1alpha2" || o.UID != "u-1" || got.Severity != notify.Error || !got.Timestamp.Equal(at.Truncate(time.Second)) || got.ReportingController != "terrier" {
		t.Errorf("told was %+v", got)
	}
	for key, want := range map[string]string{"infra.contrib.fluxcd.io/add": "1", "event.toolkit.fluxcd.io/commit": "sha1:b8", "event.toolkit.fluxcd.io/ticket": "7", "other": ""} {
		if got.Metadata[key] != want {
			t.Errorf("%s is %q, want %q", key, got.Metadata[key], want)
		}
	}
	if len(fake.Events) != 2 || len(heard) != 0 {
		t.Errorf("%d events of Kubernetes and %d more messages, want two and none", len(fake.Events), len(heard))
	}
}

func TestEventsAddressIsChecked(t *testing.T) {
	for _, address := range []string{"notification-controller", "ftp://x/", "http://user@x/", "http://"} {
		if _, err := fluxEvents(address, nil); err == nil {
			t.Errorf("%q is taken for an address", address)
		}
	}
}
