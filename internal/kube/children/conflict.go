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

// ConflictError says that an object, or some of its fields, is somebody else's.
type ConflictError struct {
	Key      Key
	Holder   string   // who has the whole object: "Deployment web", "Tenant ns/name"; empty if it is about fields
	Fields   []string // .spec.replicas, …
	Managers []string // who set them
}

// Error says whose it is and what to do.
func (e *ConflictError) Error() string {
	if e.Holder != "" {
		way := "give the resource another name, or delete that object"
		if !strings.HasPrefix(e.Holder, tenantKind+" ") {
			way += "; conflictPolicy: Force writes into it all the same"
		}
		return fmt.Sprintf("%s belongs to %s: %s", e.Key, e.Holder, way)
	}
	return fmt.Sprintf("%s of %s: set by %s. Leave it to them with ignoreFields, or take it with conflictPolicy: Force",
		few(e.Fields), e.Key, few(e.Managers))
}

// few is a list for a sentence.
func few(all []string) string {
	const shown = 5
	if len(all) > shown {
		return strings.Join(all[:shown], ", ") + fmt.Sprintf(" and %d more", len(all)-shown)
	}
	return strings.Join(all, ", ")
}

// who finds the manager in the message of one conflict; the server says it in
// words only (apimachinery, managedfields/internal).
var who = regexp.MustCompile(`conflict with "([^"]*)"`)

// managed is the conflict that a server-side apply met; nil if the error is none.
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
		if m := who.FindStringSubmatch(cause.Message); m != nil && !slices.Contains(c.Managers, m[1]) {
			c.Managers = append(c.Managers, m[1])
		}
	}
	if len(c.Fields) == 0 {
		return nil
	}
	return c
}

// held says for merge and replace what the server says for apply: that a field
// which would change was set by another manager. Replace would also drop what is
// not desired; labels, annotations and the like of others it keeps (settle).
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

// holds says that a manager set the field of a path, or something in it, or a map
// around it that is one value. Lists are taken as a whole.
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
