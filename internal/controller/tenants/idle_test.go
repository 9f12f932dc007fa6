package tenants

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/terrier-iac/terrier/internal/testkit"
)

// run lets a manager do the calling, as the program does.
func (l *lab) run() {
	l.t.Helper()
	skip := true
	mgr, err := ctrl.NewManager(l.Config, ctrl.Options{
		Scheme: l.Client.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"},
		Cache:      cache.Options{DefaultNamespaces: map[string]cache.Config{l.Namespace: {}}},
		Controller: config.Controller{SkipNameValidation: &skip},
	})
	if err != nil {
		l.t.Fatal(err)
	}
	if err := l.c.SetupWithManager(mgr); err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(l.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	l.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			l.t.Errorf("the manager ended with %v", err)
		}
	})
}

// calm says that a Tenant is ready.
func (l *lab) calm(context.Context) error {
	s := l.get().Status
	if s.DesiredResources == 0 || s.ReadyResources != s.DesiredResources {
		return errors.New(l.text())
	}
	return nil
}

// Changes of objects of any kind wake their tenant, and one of which nothing
// changes asks for nothing and writes nothing.
func TestIdleTenantsAskForNothing(t *testing.T) {
	l := newLab(t)
	l.run()
	l.tenant("configMaps:" + configMap("config") + "manifests:" + terraform("db") + "deployments:" + deployment("app", 1, "dependIds: [db]"))
	testkit.Eventually(t, testkit.Patience, "the stack is made", l.there("Terraform", "acme-db"))
	l.stackIs("acme-db", "True", "Ready", "applied", 0)
	testkit.Eventually(t, testkit.Patience, "its dependent is", l.there("Deployment", "acme-app"))
	l.available("acme-app")
	testkit.Eventually(t, testkit.Patience, "all are ready", l.calm)

	// A status that says the same costs one read of that object.
	l.line.since()
	l.stackIs("acme-db", "True", "Ready", "applied again", 0)
	var heard []string
	testkit.Eventually(t, testkit.Patience, "the change is looked at", func(context.Context) error {
		heard = append(heard, l.line.since()...)
		if !strings.Contains(strings.Join(heard, "\n"), "/terraforms/acme-db") {
			return fmt.Errorf("only %q", heard)
		}
		return nil
	})
	l.edit("ConfigMap", "acme-config", func(o map[string]any) { delete(o, "data") }) // comes after all that the change above caused
	testkit.Eventually(t, testkit.Patience, "drift is mended", func(context.Context) error {
		if host, _, _ := unstructured.NestedString(l.child("ConfigMap", "acme-config").Object, "data", "host"); host != "acme.example.com" {
			return errors.New("not yet")
		}
		return nil
	})
	heard = append(heard, l.line.since()...)
	for _, r := range heard {
		switch {
		case strings.Contains(r, "watch=true") || strings.Contains(r, "/configmaps"):
		case strings.HasPrefix(r, "GET ") && (strings.Contains(r, "/tenants/") || strings.Contains(r, "/terraforms/") || strings.Contains(r, "/secrets/")):
		default:
			t.Errorf("the request %s was made for a status that says nothing new", r)
		}
	}
}

func (l *lab) there(kind, name string) func(context.Context) error {
	return func(context.Context) error {
		if l.child(kind, name) == nil {
			return errors.New(l.text())
		}
		return nil
	}
}
