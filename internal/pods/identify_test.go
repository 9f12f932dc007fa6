package pods

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/runner/remote"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// T14: a token proves the pod that the API server bound it to, and only for our
// audience.
func TestIdentify(t *testing.T) {
	c := testkit.Kube(t)
	set, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	// An account of its own: Kubernetes makes "default" some time after the namespace.
	const account = "runs"
	accounts := set.CoreV1().ServiceAccounts(c.Namespace)
	if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	p, err := New(Config{
		API: c.Config, Installation: "0123456789abcdef", Namespaces: []string{c.Namespace}, Audience: "terrier-run",
		Settings: Settings{Image: "i", PullPolicy: corev1.PullIfNotPresent, Account: account},
		Server:   func() (string, []byte) { return "https://127.0.0.1:1", nil },
		Now:      time.Now, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	l := launch(stack.PlanRun, "", "")
	l.Job.Pod.Namespace = c.Namespace
	place, err := p.Launch(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	token := func(audience string, bound *authnv1.BoundObjectReference) string {
		issued, err := accounts.CreateToken(t.Context(), account, &authnv1.TokenRequest{
			Spec: authnv1.TokenRequestSpec{Audiences: []string{audience}, BoundObjectRef: bound},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return issued.Status.Token
	}
	pod := &authnv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: place.Name}
	own := token("terrier-run", pod)
	if got, err := p.Identify(t.Context(), own); err != nil || got != place {
		t.Errorf("Identify() = %+v, %v; want %+v", got, err, place)
	}
	for name, other := range map[string]string{
		"of another audience": token("another", pod),
		"bound to no pod":     token("terrier-run", nil),
		"nothing":             "",
		"no token":            "x",
	} {
		if got, err := p.Identify(t.Context(), other); fault.Of(err) != fault.Denied {
			t.Errorf("Identify(%s) = %+v, %v; want it denied", name, got, err)
		}
	}
	if err := p.End(t.Context(), place, 0); err != nil {
		t.Fatal(err)
	}
	// The cache has the pod until the watch tells that it is gone.
	testkit.Eventually(t, testkit.Patience, "the pod is gone", func(ctx context.Context) error {
		if life, err := p.Look(ctx, place); err != nil || life.State != remote.Gone {
			return errors.Join(fmt.Errorf("Look() = %+v", life), err)
		}
		return nil
	})
	// Here and in the API server an answer is believed for some seconds.
	testkit.Eventually(t, testkit.Patience, "the token of a pod that is gone is denied", func(ctx context.Context) error {
		if got, err := p.Identify(ctx, own); fault.Of(err) != fault.Denied {
			return errors.Join(fmt.Errorf("it stands for %+v", got), err)
		}
		return nil
	})
}
