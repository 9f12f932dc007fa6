// Package children writes, watches, assesses and deletes the objects of tenants,
// of any kind.
//
// An object is written with one of three strategies:
//
//	apply    server-side apply as tenant-operator; forced only with conflictPolicy Force
//	merge    JSON merge patch, and a create if there is nothing to patch
//	replace  create or update; fields that the server set and that are immutable
//	         stay, and so do the labels and annotations of others, unless forced
//
// A write never replaces an object of another controller or of another tenant,
// nor, unless the policy is Force, a field that another manager set: it returns a
// *ConflictError, which names them. For an object of another tenant it does so
// even with Force. With merge and replace the fields that would change are
// compared with metadata.managedFields, as the server does it for apply; fields
// that a replace would drop count.
//
// An object that is as desired is not written; Write compares, and asks the server
// only in doubt. Between passes, Watches knows the versions of the objects of
// tenants, so that an unchanged object costs no request at all (Recall), and one
// that no tenant has is created without a read (Unclaimed, Write.Absent).
//
// It decides nothing: the caller says when an object is written or deleted.
//
// Start reading at Cluster.Write.
package children

import (
	"log/slog"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/terrier-iac/terrier/internal/tenant"
)

// Key identifies an object.
type Key = tenant.Ref

// Owner is the Tenant that objects are written for.
type Owner struct {
	APIVersion, Kind, Namespace, Name, UID string

	TenantID string // the row's uid, for the label terrier.dev/tenant-id; no label if empty
}

func (o Owner) key() types.NamespacedName {
	return types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
}

// State is the readiness of an object by the built-in rules.
type State = tenant.Readiness

const (
	Ready       = tenant.IsReady
	Progressing = tenant.IsProgressing
	Failed      = tenant.IsFailed // its own status says that it will not become ready by itself
)

// Change is the effect of a Write.
type Change string

// The effects of a write. An orphaned object that is desired again is Adopted.
const (
	Unchanged Change = ""
	Created   Change = "Created"
	Updated   Change = "Updated"
	Adopted   Change = "Adopted"
)

// Live is an object as the server has it. The zero Live is one that does not exist.
type Live struct {
	Exists   bool
	Deleting bool                 // its deletion waits for finalizers
	Owned    bool                 // by the Owner that the caller named: by ownerReference or tracking labels
	Tenant   types.NamespacedName // the Tenant that owns it; zero if none does
	Orphaned bool                 // retained on purpose, with the markers of an orphan
	Tied     bool                 // an ownerReference ties it to the Owner, so that Kubernetes may delete it with the Tenant

	CreatedOnce    bool
	DeletionPolicy string // of the annotation; empty without one
	Finalizers     []string

	UID, ResourceVersion string
	Generation           int64

	State   State
	Message string // why it is not ready; empty if it is
	Depends bool   // its State depends on other objects, which no watch sees

	// Object is the whole object. It is nil in the result of Recall, and of an
	// unchanged Write that did not ask the server.
	Object map[string]any

	Change Change // set by Write
}

// Write is one desired object.
type Write struct {
	Object       map[string]any // complete, as it was rendered; Write does not change it
	Patch        tenant.PatchStrategy
	Force        bool
	IgnoreFields []string
	Creation     tenant.CreationPolicy
	Deletion     tenant.DeletionPolicy
	Owner        Owner
	Untied       bool // the object must outlive its Tenant, whatever Kubernetes does: it gets no ownerReference

	// Defaults are fields of Object that the template does not set: an existing
	// object that Terrier did not create is not given them.
	Defaults [][]string

	// Seen is the result of Read in this same pass, Object included; it spares the
	// read. Nil if there was none.
	Seen *Live

	// Absent says that the object probably does not exist: Write creates it in a
	// manner that the server refuses if it does, and reads it only then.
	Absent bool
}

// Config is what a Cluster needs.
type Config struct {
	REST       *rest.Config
	HTTP       *http.Client // made from REST if nil
	Namespaces []string     // those that may be watched; all if empty
	Log        *slog.Logger
	Now        func() time.Time
}

// Cluster reads and writes objects of any kind. Clusters that As returns write as
// a ServiceAccount, and share everything else.
type Cluster struct {
	*shared
	writer dynamic.Interface
}

// Types are the schemas and scopes of the kinds of the cluster.
func (c *Cluster) Types() *Types { return c.types }

// Watches are the watches of the objects of tenants.
func (c *Cluster) Watches() *Watches { return c.watches }

// Recall returns an object as it was read or written last, without its Object, if
// the watch of its kind says that it has not changed since. It sends no request.
func (c *Cluster) Recall(key Key, owner Owner) (Live, bool) {
	return c.watches.recall(key, owner)
}
