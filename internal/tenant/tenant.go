// Package tenant turns rows of a table and a template into objects, and says what
// to do next: which tenants to create, change, keep and delete, in which order
// their objects are created and deleted, and how far a change of a template may
// get.
//
// It does no I/O, has no clock and knows no Kubernetes: objects are maps as JSON
// has them. It refuses to guess: a text that cannot be rendered, two rows with one
// uid, an invalid name are errors that name what to fix, and a failed read never
// deletes anything.
//
// Start reading at Sync, then at Plan.
package tenant

import "time"

// Row is one row of a registry, by what its columns mean.
type Row struct {
	UID       string
	HostOrURL string
	Activate  string            // as it is in the row
	Active    bool              // the meaning of Activate
	Extra     map[string]string // further variables
}

// Values are the variables that templates see, all of them texts.
type Values map[string]string

// Policies of a resource; the values are those of the wire types.
type (
	CreationPolicy string
	DeletionPolicy string
	ConflictPolicy string
	PatchStrategy  string
)

// Values of the policies.
const (
	Once       CreationPolicy = "Once"
	WhenNeeded CreationPolicy = "WhenNeeded"
	Delete     DeletionPolicy = "Delete"
	Retain     DeletionPolicy = "Retain"
	Stuck      ConflictPolicy = "Stuck"
	Force      ConflictPolicy = "Force"
	Apply      PatchStrategy  = "apply"
	Merge      PatchStrategy  = "merge"
	Replace    PatchStrategy  = "replace"
)

// Resource is one entry of a template, not rendered yet. Its zero policies mean
// the defaults of the API.
type Resource struct {
	ID     string
	Group  string         // deployments, manifests, …
	Object map[string]any // as JSON has it: string, bool, int64, float64, nil, []any, map[string]any

	NameTemplate        string
	TargetNamespace     string
	LabelsTemplate      map[string]string
	AnnotationsTemplate map[string]string

	DependIDs []string
	Creation  CreationPolicy
	Deletion  DeletionPolicy
	Conflict  ConflictPolicy
	Patch     PatchStrategy

	IgnoreFields           []string
	NoWait                 bool // waitForReady: false
	Timeout                time.Duration
	ProceedOnFailedDepends bool // skipOnDependencyFailure: false
	ReadyWhen, IncludeWhen string
}

// Template is what each tenant of a registry gets.
type Template struct {
	Name       string
	Generation int64
	Resources  []Resource // in the order of the groups, then as written
}

// Object is one rendered resource.
type Object struct {
	Resource                // its policies and conditions; its templates are rendered
	Rendered map[string]any // complete: apiVersion, kind, metadata.name and namespace ("" if cluster-scoped)
	Order    int            // its place in the order of creation

	// Defaults are the fields of Rendered that the template does not set. An object
	// that another program created, or an earlier operator, is not given them.
	Defaults [][]string
}
