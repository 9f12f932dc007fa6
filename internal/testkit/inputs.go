package testkit

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// PutInputs creates one object for each kind of input: the Secrets creds, backend and
// rc, and the ConfigMap config. Their secret values are canaries.
func PutInputs(tb testing.TB, c *Cluster) {
	tb.Helper()
	SetSecret(tb, c, "creds", map[string]string{"API_TOKEN": "token-canary-1", "REGION": "north", "file": "file-canary-1", "not.a.name": "x"})
	SetSecret(tb, c, "backend", map[string]string{"bucket": "b", "access_key": "access-canary-1"})
	SetSecret(tb, c, "rc", map[string]string{"x.tfrc": "credentials \"h.example.com\" {\n  token = \"cli-canary-1\"\n}\n"})
	if err := c.Client.Create(tb.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: "config"}, Data: map[string]string{"ZONE": "z"}}); err != nil {
		tb.Fatal(err)
	}
}

// SetSecret is PutSecret without kubectl.
func SetSecret(tb testing.TB, c *Cluster, name string, data map[string]string) {
	tb.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: name}, StringData: data}
	err := c.Client.Create(tb.Context(), s)
	if client.IgnoreAlreadyExists(err) == nil && err != nil {
		err = c.Client.Update(tb.Context(), s)
	}
	if err != nil {
		tb.Fatal(err)
	}
}
