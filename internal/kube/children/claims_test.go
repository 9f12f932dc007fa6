package children

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/testkit"
)

// class makes a StorageClass of a name that no other test has.
func (l *lab) class(name, provisioner string, mode storagev1.VolumeBindingMode, annotations map[string]string) string {
	l.t.Helper()
	c := &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: name + "-" + l.Namespace, Annotations: annotations},
		Provisioner: provisioner, VolumeBindingMode: &mode,
	}
	if err := l.Client.Create(l.t.Context(), c); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		if err := l.Client.Delete(context.WithoutCancel(l.t.Context()), c); client.IgnoreNotFound(err) != nil {
			l.t.Error(err)
		}
	})
	return c.Name
}

func storageClaim(name, spec string) string {
	return "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: " + name + "}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}" + spec + "}}"
}

// A claim whose volume is created for the first pod that uses it is ready for the
// objects that make the pod; one that cannot get a volume says why.
func TestClaimsByTheirClass(t *testing.T) {
	l := newLab(t)
	late := l.class("late", "example.com/disk", storagev1.VolumeBindingWaitForFirstConsumer, nil)
	now := l.class("now", "example.com/disk", storagev1.VolumeBindingImmediate, nil)
	local := l.class("local", noProvisioner, storagev1.VolumeBindingWaitForFirstConsumer, nil)
	manual := l.class("manual", noProvisioner, storagev1.VolumeBindingImmediate, nil)
	for i, tt := range []struct {
		spec    string
		want    State
		message string
	}{
		{", storageClassName: " + late, Ready, ""},
		{", storageClassName: " + local, Ready, ""},
		{", storageClassName: " + now, Progressing, "its phase is Pending, not Bound: example.com/disk of StorageClass " + now + " has not created its volume yet"},
		{", storageClassName: " + manual, Progressing, "its StorageClass " + manual + " has no provisioner, so that no volume is created for it; create a PersistentVolume that fits"},
		{", storageClassName: nowhere", Progressing, "its StorageClass nowhere does not exist; create it, or set another storageClassName"},
		{`, storageClassName: ""`, Progressing, "its storageClassName is empty, so that no volume is created for it; create a PersistentVolume that fits, or set storageClassName"},
		{", volumeName: v, storageClassName: " + late, Progressing, "it is not bound to PersistentVolume v yet"},
		{"", Progressing, "it names no StorageClass, and the cluster has no default one; set storageClassName"},
	} {
		live := l.write(l.want(storageClaim(fmt.Sprint("c", i), tt.spec)))
		if live.State != tt.want || live.Message != tt.message || live.Depends != (tt.want != Ready) {
			t.Errorf("a claim with %q is %s, %q, want %s, %q", tt.spec, live.State, live.Message, tt.want, tt.message)
		}
	}
	l.write(l.want(storageClaim("lost", ", storageClassName: "+late)))
	l.claimed("lost", `{"status":{"phase":"Lost"}}`)
	if live, err := l.cluster.Read(t.Context(), l.key("PersistentVolumeClaim", "lost"), l.owner); err != nil || live.State != Failed {
		t.Errorf("a lost claim is %+v, %v, want it failed", live, err)
	}
}

// claimed sets the status of a claim, as the controller of volumes does.
func (l *lab) claimed(name, patch string) {
	l.t.Helper()
	u := l.live(l.key("PersistentVolumeClaim", name))
	if err := l.Client.Status().Patch(l.t.Context(), u, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		l.t.Fatal(err)
	}
}

// A claim without a class has the default one, of several the newest, even if that
// came after the claim.
func TestClaimsOfTheDefaultClass(t *testing.T) {
	l := newLab(t)
	isDefault := map[string]string{annotationDefaultClass: "true"}
	clock := time.Now()
	l.cluster.claims.now = func() time.Time { clock = clock.Add(classesLast + 1); return clock }
	read := func() Live {
		live, err := l.cluster.Read(t.Context(), l.key("PersistentVolumeClaim", "c"), l.owner)
		if err != nil {
			t.Fatal(err)
		}
		return live
	}
	if live := l.write(l.want(storageClaim("c", ""))); live.State != Progressing || !live.Depends {
		t.Fatalf("a claim without any class is %s, %q", live.State, live.Message)
	}
	l.class("b", "example.com/disk", storagev1.VolumeBindingWaitForFirstConsumer, isDefault)
	if live := read(); live.State != Ready {
		t.Errorf("with a default class that waits for the first pod it is %s, %q, want ready", live.State, live.Message)
	}
	// The times of creation are whole seconds, and of two in one the first by name counts.
	newest := l.class("a", "example.com/disk", storagev1.VolumeBindingImmediate, isDefault)
	if live := read(); live.State != Progressing || !strings.Contains(live.Message, newest) {
		t.Errorf("with a newer default class it is %s, %q, want it to wait for %s", live.State, live.Message, newest)
	}
}

// No watch sees classes, so a claim that waits for one is read each time; one that
// waits for its first pod costs nothing.
func TestClaimsAreReadWhileTheyWaitForAClass(t *testing.T) {
	l := newLab(t)
	clock := time.Now()
	l.cluster.claims.now = func() time.Time { clock = clock.Add(classesLast + 1); return clock }
	name := "soon-" + l.Namespace
	key := l.key("PersistentVolumeClaim", "c")
	l.watched("v1", "PersistentVolumeClaim")
	l.write(l.want(storageClaim("c", ", storageClassName: "+name)))
	if live, known := l.cluster.Recall(key, l.owner); known {
		t.Errorf("Recall() = %+v, want it to be read", live)
	}
	l.class("soon", "example.com/disk", storagev1.VolumeBindingWaitForFirstConsumer, nil)
	if live, err := l.cluster.Read(t.Context(), key, l.owner); err != nil || live.State != Ready {
		t.Fatalf("once its class exists it is %s, %q, %v", live.State, live.Message, err)
	}
	testkit.Eventually(t, soon, "it is known", func(context.Context) error {
		if live, known := l.cluster.Recall(key, l.owner); !known || live.State != Ready {
			return errors.New("it is not")
		}
		return nil
	})
}

// A controller that may not list classes says so: it cannot know whether the claim
// waits for its first pod.
func TestClaimsWithoutTheRightToListClasses(t *testing.T) {
	l := newLab(t)
	l.write(l.want(storageClaim("c", ", storageClassName: fast")))
	config := rest.CopyConfig(l.Config)
	config.Impersonate.UserName = "system:serviceaccount:" + l.Namespace + ":nobody"
	cluster, err := New(Config{REST: config})
	if err != nil {
		t.Fatal(err)
	}
	state, message := cluster.claims.judge(t.Context(), l.live(l.key("PersistentVolumeClaim", "c")))
	if state != Progressing || !strings.Contains(message, "whether its volume waits for the first pod is unknown: reading StorageClasses: ") || !strings.Contains(message, "forbidden") {
		t.Errorf("the claim is %s, %q", state, message)
	}
}
