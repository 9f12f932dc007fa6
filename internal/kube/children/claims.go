package children

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// classesLast is how long StorageClasses are used before they are read again: very
// many claims may be waiting at once.
const classesLast = 5 * time.Second

var (
	claimKind      = schema.GroupKind{Kind: "PersistentVolumeClaim"}
	storageClasses = schema.GroupVersionResource{Group: "storage.k8s.io", Version: "v1", Resource: "storageclasses"}
)

// Names of Kubernetes about classes.
const (
	annotationDefaultClass = "storageclass.kubernetes.io/is-default-class"
	annotationClass        = "volume.beta.kubernetes.io/storage-class" // of a claim, older than storageClassName
	noProvisioner          = "kubernetes.io/no-provisioner"
	waitForConsumer        = "WaitForFirstConsumer"
)

// claims judges PersistentVolumeClaims that are not bound yet. A class may create
// volumes only for a pod that was scheduled: such a claim is as ready as it can be
// before its dependents exist.
type claims struct {
	reader dynamic.Interface
	now    func() time.Time

	mu      sync.Mutex
	read    time.Time
	classes []unstructured.Unstructured
	err     error
}

// all are the StorageClasses of the cluster.
func (c *claims) all(ctx context.Context) ([]unstructured.Unstructured, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.read.IsZero() || c.now().Sub(c.read) > classesLast {
		list, err := c.reader.Resource(storageClasses).List(ctx, metav1.ListOptions{})
		if ctx.Err() != nil {
			return nil, err // it says nothing about the classes
		}
		c.read, c.classes, c.err = c.now(), nil, err
		if err == nil {
			c.classes = list.Items
		}
	}
	return c.classes, c.err
}

// judge is the state of a claim whose phase is Pending, and why it is not ready.
func (c *claims) judge(ctx context.Context, claim *unstructured.Unstructured) (State, string) {
	if volume, _, _ := unstructured.NestedString(claim.Object, "spec", "volumeName"); volume != "" {
		return Progressing, "it is not bound to PersistentVolume " + volume + " yet"
	}
	name, named := className(claim)
	if named && name == "" {
		return Progressing, "its storageClassName is empty, so that no volume is created for it; create a PersistentVolume that fits, or set storageClassName"
	}
	classes, err := c.all(ctx)
	if err != nil {
		return Progressing, fmt.Sprintf("its phase is Pending, not Bound; whether its volume waits for the first pod is unknown: reading StorageClasses: %v", err)
	}
	class := classOf(classes, name, named)
	switch {
	case class == nil && named:
		return Progressing, fmt.Sprintf("its StorageClass %s does not exist; create it, or set another storageClassName", name)
	case class == nil:
		return Progressing, "it names no StorageClass, and the cluster has no default one; set storageClassName"
	}
	mode, _, _ := unstructured.NestedString(class.Object, "volumeBindingMode")
	provisioner, _, _ := unstructured.NestedString(class.Object, "provisioner")
	switch {
	case mode == waitForConsumer:
		return Ready, ""
	case provisioner == noProvisioner:
		return Progressing, fmt.Sprintf("its StorageClass %s has no provisioner, so that no volume is created for it; create a PersistentVolume that fits", class.GetName())
	}
	return Progressing, fmt.Sprintf("its phase is Pending, not Bound: %s of StorageClass %s has not created its volume yet", provisioner, class.GetName())
}

// className is the class of a claim; named is false for the default one.
func className(claim *unstructured.Unstructured) (name string, named bool) {
	if name, named = claim.GetAnnotations()[annotationClass]; named {
		return name, true
	}
	name, named, _ = unstructured.NestedString(claim.Object, "spec", "storageClassName")
	return name, named
}

// classOf is the class of this name, or the default one: the newest of several, as
// Kubernetes chooses it. It is nil if there is none.
func classOf(all []unstructured.Unstructured, name string, named bool) *unstructured.Unstructured {
	var found *unstructured.Unstructured
	for i := range all {
		c := &all[i]
		switch {
		case named && c.GetName() == name:
			return c
		case named || c.GetAnnotations()[annotationDefaultClass] != "true":
		case found == nil || newer(c, found):
			found = c
		}
	}
	return found
}

func newer(a, b *unstructured.Unstructured) bool {
	made := b.GetCreationTimestamp().Time
	return cmp.Or(a.GetCreationTimestamp().Compare(made), cmp.Compare(b.GetName(), a.GetName())) > 0
}
