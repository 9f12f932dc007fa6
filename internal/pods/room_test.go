package pods_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/pods/podstest"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// The runner says whether the quota of a namespace has room for a pod, and makes none.
func TestRoomIsAskedForWithoutAPod(t *testing.T) {
	c := testkit.Kube(t)
	r := podstest.Site{API: c.Config, Namespace: c.Namespace, Image: "terrier-runner", Address: "127.0.0.1", Log: slog.New(slog.DiscardHandler)}.Open(t)
	job := runner.Job{Stack: "uid", ID: "run", Name: c.Namespace + "/net", Kind: stack.PlanRun, Pod: &runner.Pod{Namespace: c.Namespace}}
	asked := func(want string) {
		t.Helper()
		testkit.Eventually(t, testkit.Patience, "the runner answers "+want, func(ctx context.Context) error {
			if err := r.Room(ctx, job); fault.Reason(err, "") != want {
				return fmt.Errorf("Room() = %w, want %q", err, want)
			}
			return nil
		})
	}
	asked("")
	full := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: "full"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}},
	}
	if err := c.Client.Create(t.Context(), full); err != nil {
		t.Fatal(err)
	}
	asked(runner.NoRoom)
	if err := c.Client.Delete(t.Context(), full); err != nil {
		t.Fatal(err)
	}
	asked("")
	var all corev1.PodList
	if err := c.Client.List(t.Context(), &all, client.InNamespace(c.Namespace)); err != nil || len(all.Items) != 0 {
		t.Errorf("the questions made %d pods, %v", len(all.Items), err)
	}
}
