package query

import (
	"strings"
	"testing"
	"time"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/terrier-iac/terrier/internal/testkit"
)

// The history of a source is what its controller told Kubernetes of it, whichever
// controller that is, and nothing of other objects.
func TestASourceHasAHistory(t *testing.T) {
	c := testkit.Kube(t)
	at := metav1.Now().Rfc3339Copy()
	event := func(name, uid, reason, message string, before time.Duration) *corev1.Event {
		when := metav1.NewTime(at.Add(-before))
		return &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: c.Namespace, Name: name},
			InvolvedObject: corev1.ObjectReference{Kind: "GitRepository", Namespace: c.Namespace, Name: "net", UID: types.UID(uid)},
			Type:           "Warning", Reason: reason, Message: message, Count: 1, FirstTimestamp: when, LastTimestamp: when,
		}
	}
	for _, e := range []*corev1.Event{
		event("first", "uid-1", "GitOperationFailed", "no route to host", time.Hour),
		event("second", "uid-1", "AuthenticationFailed", "denied: https://robot:hunter2@git.example.com/a.git", time.Minute),
		event("other", "uid-2", "AuthenticationFailed", "of another", time.Minute),
	} {
		if err := c.Client.Create(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	got, err := NewSources(c.Client, nil).Events(t.Context(), Source{Kind: "GitRepository", Namespace: c.Namespace, Name: "net", UID: "uid-1"})
	if err != nil {
		t.Fatal(err)
	}
	want := []Event{
		{At: at.Add(-time.Minute), Type: "Warning", Reason: "AuthenticationFailed", Message: "denied: https://(sensitive)@git.example.com/a.git", Count: 1},
		{At: at.Add(-time.Hour), Type: "Warning", Reason: "GitOperationFailed", Message: "no route to host", Count: 1},
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("Events() (-got +want):\n%s", diff)
	}
}

// What a controller says of a source may have an address with credentials.
func TestMessagesOfSourcesHoldNoPasswords(t *testing.T) {
	o := &sourcev1.Bucket{Status: sourcev1.BucketStatus{Conditions: []metav1.Condition{{
		Type: "Ready", Status: metav1.ConditionFalse, Reason: "BucketOperationFailed", Message: "reading https://minio.example.com/box?token=hunter2: denied",
	}}}}
	got := sourcesIn(&sourcev1.BucketList{Items: []sourcev1.Bucket{*o}})
	if want := "reading https://minio.example.com/box?token=(sensitive) denied"; len(got) != 1 || got[0].Message != want {
		t.Errorf("the sources are %+v, want the message %q", got, want)
	}
}

// The credentials in the address of a source are never shown, however it is written.
// The HTTP API sends it as it is here.
func TestAddressesOfSourcesHoldNoPasswords(t *testing.T) {
	for address, want := range map[string]string{
		"https://robot:hunter2@git.example.com/a.git": "https://git.example.com/a.git",
		"https://hunter2@git.example.com/a.git":       "https://git.example.com/a.git",
		"https://robot:hun@ter2@git.example.com/a":    "https://git.example.com/a",
		"https://robot:%zzhunter2@git.example.com/a":  "git.example.com/a",
		"https://robot:%zz@hunter2@git.example.com/a": "git.example.com/a",
		"oci://robot:hunter2@registry.example.com/a":  "oci://registry.example.com/a",
		"ssh://git:hunter2@git.example.com/a":         "ssh://git.example.com/a",
		"robot:hunter2@minio.example.com:9000/box":    "minio.example.com:9000/box",
		"hunter2@minio.example.com/box":               "minio.example.com/box",

		"ssh://git@git.example.com/a":              "ssh://git@git.example.com/a", // the user of every client there
		"git@git.example.com:a.git":                "git.example.com:a.git",
		"minio.example.com:9000/box":               "minio.example.com:9000/box",
		"oci://registry.example.com:5000/a@latest": "oci://registry.example.com:5000/a@latest",
		"": "",
	} {
		got := withoutPassword(address)
		if got != want || strings.Contains(got, "hunter2") {
			t.Errorf("withoutPassword(%q) = %q, want %q", address, got, want)
		}
	}
}
