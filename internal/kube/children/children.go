// Package children makes, watches, judges and takes away the objects of tenants,
// of whatever kind they are.
//
// An object is written with one of three strategies:
//
//	apply    server-side apply as tenant-operator; forced only with conflictPolicy Force
//	merge    JSON merge patch, and a create if there is nothing to patch
//	replace  create or update; what the server set and nobody may change stays,
//	         and so do the labels and annotations of others, unless forced
//
// Nothing is written over what somebody else holds: an object of another
// controller or of another tenant, and, unless the policy is Force, a field that
// another manager set. That is a *ConflictError, which names them. Of an object
// of another tenant it is one even with Force. With merge and replace the fields
// that would change are compared with metadata.managedFields, as the server does
// it for apply; what a replace would drop counts.
//
// An object that is as it should be is not written; Write compares, and asks the
// server only in doubt. Between looks, Watches knows the versions of the objects
// of tenants, so that one that did not change costs no request at all (Recall),
// and one that no tenant has is made without a look (Unheard, Write.Absent).
//
// It decides nothing: when something is written or taken away is the caller's.
//
// Start reading at Cluster.Write.
package children

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/terrier-iac/terrier/internal/tenant"
)

// Key is where an object is.
type Key struct {
	Group, Version, Kind string
	Namespace            string // empty for cluster-scoped objects
	Name                 string
}

// KeyOf returns where a rendered object belongs.
func KeyOf(object map[string]any) Key {
	apiVersion, _ := object["apiVersion"].(string)
	kind, _ := object["kind"].(string)
	meta, _ := object["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	namespace, _ := meta["namespace"].(string)
	group, version, ok := strings.Cut(apiVersion, "/")
	if !ok {
		group, version = "", apiVersion
	}
	return Key{Group: group, Version: version, Kind: kind, Namespace: namespace, Name: name}
}

// APIVersion is group and version as manifests write them.
func (k Key) APIVersion() string {
	return schema.GroupVersion{Group: k.Group, Version: k.Version}.String()
}

// String is the object as messages name it.
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Kind + " " + k.Name
	}
	return k.Kind + " " + k.Namespace + "/" + k.Name
}

// Owner is the Tenant that objects are written for.
type Owner struct {
	APIVersion, Kind, Namespace, Name, UID string

	TenantID string // the row's uid, for the label terrier.dev/tenant-id; no label if empty
}

func (o Owner) key() types.NamespacedName {
	return types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
}

// State is what the built-in rules say of an object.
type State string

// The states.
const (
	Ready       State = "Ready"
	Progressing State = "Progressing"
	Failed      State = "Failed" // it says that it will not become ready by itself
)

// Change is what a Write did.
type Change string

// What a write may do. An object that was orphaned and is wanted again is Adopted.
const (
	Unchanged Change = ""
	Created   Change = "Created"
	Updated   Change = "Updated"
	Adopted   Change = "Adopted"
)

// Live is an object as it was found. The zero Live is one that does not exist.
type Live struct {
	Exists   bool
	Deleting bool                 // it waits for its finalizers
	Owned    bool                 // by the Owner that was asked for: by ownerReference or tracking labels
	Tenant   types.NamespacedName // the Tenant that holds it, whichever; zero if none does
	Orphaned bool                 // left behind on purpose, with the markers of it

	CreatedOnce    bool
	DeletionPolicy string // of the annotation; empty without one
	Finalizers     []string

	UID, ResourceVersion string
	Generation           int64

	State   State
	Message string // why it is not ready; empty if it is

	// Object is the whole of it. It is nil in what Recall and an unchanged Write
	// return without having asked the server.
	Object map[string]any

	Change Change // set by Write
}

// Write is one object as it should be.
type Write struct {
	Object       map[string]any // complete, as it was rendered; it is not changed
	Patch        tenant.PatchStrategy
	Force        bool
	IgnoreFields []string
	Creation     tenant.CreationPolicy
	Deletion     tenant.DeletionPolicy
	Owner        Owner

	// Defaults are fields of Object that nobody asked for: an object that is
	// there and that we did not make is not given them.
	Defaults [][]string

	// Seen is what Look returned in this same pass, Object included; it spares
	// the read. Nil if nothing was looked at.
	Seen *Live

	// Absent says that it is not there, as far as one knows: it is made in a
	// manner that the server refuses if it is, and only looked at then.
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

// Cluster reads and writes objects of any kind. Those that As returns write as
// somebody else and share everything besides.
type Cluster struct {
	*shared
	writer dynamic.Interface
}

// Types are the schemas and scopes of the kinds of the cluster.
func (c *Cluster) Types() *Types { return c.types }

// Watches tells of changes of objects of tenants.
func (c *Cluster) Watches() *Watches { return c.watches }

// Look reads an object. One that does not exist is no error.
func (c *Cluster) Look(ctx context.Context, key Key, owner Owner) (Live, error) {
	return c.look(ctx, key, owner)
}

// Recall returns what was last seen of an object, without its Object, if the
// watch of its kind says that it has not changed since. It asks nobody.
func (c *Cluster) Recall(key Key, owner Owner) (Live, bool) {
	return c.watches.recall(key, owner)
}
