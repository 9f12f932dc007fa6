package tenants

import (
	"context"
	"strings"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A claim whose volume waits for its first pod does not wait for the Deployment
// that makes the pod: the Deployment is written. A claim whose class does not exist
// says so, and goes on by itself once the class is there.
func TestAClaimWaitsForNoDependent(t *testing.T) {
	l := newLab(t)
	class := "first-pod-" + l.Namespace
	l.tenant(`persistentVolumeClaims:
- {id: disk, nameTemplate: "{{ .uid }}-disk", timeoutSeconds: 3600, spec: {apiVersion: v1, kind: PersistentVolumeClaim, spec: {storageClassName: ` + class + `, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}
deployments:` + deployment("app", 1, "dependIds: [disk]", "waitForReady: false"))
	if result := l.look(); result.RequeueAfter != 30*time.Second {
		t.Errorf("the next pass is in %s, want 30s: no watch sees classes", result.RequeueAfter)
	}
	l.wantStates("without the class", "disk Progressing NotReady; app Pending DependencyNotReady")
	if got := l.get().Status.Resources[0].Message; !strings.Contains(got, "StorageClass "+class+" does not exist") {
		t.Errorf("the message is %q, want it to name the class", got)
	}
	mode := storagev1.VolumeBindingWaitForFirstConsumer
	made := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: "example.com/disk", VolumeBindingMode: &mode}
	if err := l.Client.Create(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Client.Delete(context.WithoutCancel(t.Context()), made); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
	l.later(30 * time.Second)
	l.look()
	l.wantStates("with the class", "")
	l.wantThere("Deployment", "acme-app", true)
}
