package children

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/terrier-iac/terrier/internal/tenant"
)

// ConflictError says that an object, or some of its fields, has another owner.
type ConflictError struct {
	Key      Key
	Holder   string   // who owns the whole object: "Deployment web", "Tenant ns/name"; empty for fields
	Fields   []string // .spec.replicas, …
	Managers []string // the managers that set them
}

// Error names the owner, and the next step.
func (e *ConflictError) Error() string {
	if e.Holder != "" {
		way := "give the resource another name, or delete that object"
		if !strings.HasPrefix(e.Holder, tenantKind+" ") {
			way += "; conflictPolicy: Force writes to it all the same"
		}
		return fmt.Sprintf("%s belongs to %s: %s", e.Key, e.Holder, way)
	}
	return fmt.Sprintf("%s of %s: set by %s. Leave them to their manager with ignoreFields, or take them over with conflictPolicy: Force",
		tenant.Few(e.Fields, 5), e.Key, tenant.Few(e.Managers, 5))
}

// managerPattern finds the manager in the message of one conflict, which only the
// message names (apimachinery, managedfields/internal).
var managerPattern = regexp.MustCompile(`conflict with "([^"]*)"`)

// managed is the conflict of a server-side apply; nil if the error is none.
func managed(key Key, err error) error {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	c := &ConflictError{Key: key}
	for _, cause := range status.Status().Details.Causes {
		if cause.Type != metav1.CauseTypeFieldManagerConflict {
			continue
		}
		c.Fields = append(c.Fields, cause.Field)
		if m := managerPattern.FindStringSubmatch(cause.Message); m != nil && !slices.Contains(c.Managers, m[1]) {
			c.Managers = append(c.Managers, m[1])
		}
	}
	if len(c.Fields) == 0 {
		return nil
	}
	return c
}

// held finds for merge and replace the conflicts that the server finds for apply:
// fields that would change and that another manager set. Replace would also drop
// fields that are not desired; it keeps the labels and annotations of others
// (keepServerFields).
func (c *Cluster) held(key Key, w Write, desired, live *unstructured.Unstructured) error {
	if w.Force {
		return nil
	}
	fields := differing(desired.Object, live.Object)
	if w.Patch == tenant.Replace {
		fields = append(fields, dropped(desired.Object, live.Object)...)
	}
	conflict := &ConflictError{Key: key}
	for _, path := range fields {
		for _, entry := range live.GetManagedFields() {
			if entry.Manager == manager || entry.Subresource == "status" || !c.holds(key, entry, path) {
				continue
			}
			conflict.Fields = append(conflict.Fields, "."+strings.Join(path, "."))
			if !slices.Contains(conflict.Managers, entry.Manager) {
				conflict.Managers = append(conflict.Managers, entry.Manager)
			}
			break
		}
	}
	if len(conflict.Fields) == 0 {
		return nil
	}
	return conflict
}

// holds reports whether a manager set the field of a path, or a field below it, or
// an atomic map around it. Lists are taken as a whole.
func (c *Cluster) holds(key Key, entry metav1.ManagedFieldsEntry, path []string) bool {
	set := fieldSet(entry)
	for i := range path {
		if set == nil {
			return false
		}
		step := fieldpath.PathElement{FieldName: &path[i]}
		below, more := set.Children.Get(step)
		if set.Members.Has(step) && (i == len(path)-1 || !more && c.types.atomic(key.APIVersion(), key.Kind, path[:i+1])) {
			return true
		}
		if i == len(path)-1 {
			return more
		}
		set = below
	}
	return false
}
