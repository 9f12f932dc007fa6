package children

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/tenant"
)

// How long schemas of a group are used before they are read again, and how long
// after a failure, or for a kind that the group did not have.
const (
	schemasLast  = 5 * time.Minute
	schemasRetry = 5 * time.Second
)

// Types are the kinds of the cluster: their schemas and scopes by OpenAPI and
// discovery. A field that has no schema is Unknown, which leaves texts as they are.
type Types struct {
	discovery *discovery.DiscoveryClient
	mapper    meta.RESTMapper
	now       func() time.Time
	log       *slog.Logger

	asking cache.Flight[string, *group] // by apiVersion, so that a read waits for no other apiVersion

	mu     sync.Mutex
	groups map[string]*group // by apiVersion; a group is never changed, only replaced
}

var _ tenant.Types = (*Types)(nil)

// group is the schemas of one apiVersion.
type group struct {
	schemas map[string]*node // by the names that references use
	kinds   map[string]*node // by kind
	asked   time.Time
	failed  bool
}

// node is the part of an OpenAPI schema that gives the types of fields.
type node struct {
	Ref        string           `json:"$ref"`
	AllOf      []*node          `json:"allOf"`
	Type       string           `json:"type"`
	Format     string           `json:"format"`
	Items      *node            `json:"items"`
	Properties map[string]*node `json:"properties"`
	Free       *additional      `json:"additionalProperties"`

	IntOrString bool     `json:"x-kubernetes-int-or-string"`
	MapType     string   `json:"x-kubernetes-map-type"`
	ListType    string   `json:"x-kubernetes-list-type"`
	ListKeys    []string `json:"x-kubernetes-list-map-keys"`
	MergeKey    string   `json:"x-kubernetes-patch-merge-key"`
	Default     any      `json:"default"`
	Required    []string `json:"required"`

	Kinds []struct{ Group, Version, Kind string } `json:"x-kubernetes-group-version-kind"`
}

// additional is the schema of a map's values, or true or false.
type additional struct{ of *node }

func (a *additional) UnmarshalJSON(data []byte) error {
	if string(data) == "true" || string(data) == "false" {
		return nil
	}
	a.of = &node{}
	return json.Unmarshal(data, a.of)
}

func newTypes(c Config, mapper meta.RESTMapper) (*Types, error) {
	d, err := discovery.NewDiscoveryClientForConfigAndClient(c.REST, c.HTTP)
	if err != nil {
		return nil, err
	}
	return &Types{discovery: d, mapper: mapper, now: c.Now, log: c.Log, groups: map[string]*group{}}, nil
}

// IsNamespaced reports whether objects of a kind live in namespaces; known is false
// for a kind that the cluster does not have.
func (t *Types) IsNamespaced(apiVersion, kind string) (namespaced, known bool) {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return false, false
	}
	mapping, err := t.mapper.RESTMapping(schema.GroupKind{Group: gv.Group, Kind: kind}, gv.Version)
	if err != nil {
		return false, false
	}
	return mapping.Scope.Name() == meta.RESTScopeNameNamespace, true
}

func (t *Types) At(apiVersion, kind string, path []string) tenant.Type {
	g, at := t.kind(apiVersion, kind)
	for _, s := range path {
		if at = g.child(at, s); at == nil {
			return tenant.Unknown
		}
	}
	return g.typeOf(at)
}

func (t *Types) List(apiVersion, kind string, path []string) tenant.List {
	g, at := t.kind(apiVersion, kind)
	if at == nil {
		return tenant.List{} // the schema of a new kind comes a moment after it
	}
	for _, s := range path {
		at = g.child(at, s)
	}
	return tenant.List{Known: true, Keys: g.listKeys(at)}
}

// listKeys are the keys by which the server tells the elements of a list apart.
func (g *group) listKeys(list *node) []tenant.ListKey {
	list = g.resolved(list)
	if list == nil || list.ListType == "atomic" {
		return nil
	}
	names := list.ListKeys
	if len(names) == 0 && list.MergeKey != "" {
		names = []string{list.MergeKey}
	}
	element := g.resolved(list.Items)
	var keys []tenant.ListKey
	for _, name := range names {
		k := tenant.ListKey{Name: name}
		// The built-in kinds have empty defaults for fields that are required.
		if element != nil && element.Properties[name] != nil && !slices.Contains(element.Required, name) {
			k.Default = element.Properties[name].Default
		}
		keys = append(keys, k)
	}
	return keys
}

// reports reports whether a kind has conditions in its status.
func (t *Types) reports(apiVersion, kind string) bool {
	g, at := t.kind(apiVersion, kind)
	return g.child(g.child(at, "status"), "conditions") != nil
}

// atomic reports whether a map is one value, which one manager sets.
func (t *Types) atomic(apiVersion, kind string, path []string) bool {
	g, at := t.kind(apiVersion, kind)
	for _, s := range path {
		at = g.child(at, s)
	}
	if at == nil {
		return false
	}
	resolved := g.resolved(at) // the map type may stand beside a reference
	return at.MapType == "atomic" || resolved != nil && resolved.MapType == "atomic"
}

// kind finds the schema of a kind; nil if there is none.
func (t *Types) kind(apiVersion, kind string) (*group, *node) {
	g := t.have(apiVersion)
	if g == nil || t.stale(g, kind) {
		g, _ = t.asking.Do(context.Background(), apiVersion, func(context.Context) (*group, error) { // has no error
			if g := t.have(apiVersion); g != nil && !t.stale(g, kind) {
				return g, nil
			}
			return t.ask(apiVersion), nil
		})
	}
	return g, g.kinds[kind]
}

func (t *Types) have(apiVersion string) *group {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.groups[apiVersion]
}

func (t *Types) stale(g *group, kind string) bool {
	age := t.now().Sub(g.asked)
	return age > schemasLast || age > schemasRetry && (g.failed || g.kinds[kind] == nil)
}

// ask reads the schemas of an apiVersion; if that fails the older ones stay.
func (t *Types) ask(apiVersion string) *group {
	g, err := t.read(apiVersion)
	if err != nil {
		t.log.Warn("schemas not read", "apiVersion", apiVersion, "err", err)
		g = &group{}
		if before := t.have(apiVersion); before != nil {
			*g = *before
		}
		g.failed = true
	}
	g.asked = t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.groups[apiVersion] = g
	return g
}

// read asks the server for one OpenAPI v3 document.
func (t *Types) read(apiVersion string) (*group, error) {
	where := "/openapi/v3/apis/" + apiVersion
	if !strings.Contains(apiVersion, "/") {
		where = "/openapi/v3/api/" + apiVersion
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	data, err := t.discovery.RESTClient().Get().AbsPath(where).SetHeader("Accept", "application/json").Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	var doc struct {
		Components struct{ Schemas map[string]*node }
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		return nil, err
	}
	g := &group{schemas: map[string]*node{}, kinds: map[string]*node{}}
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return nil, err
	}
	for name, n := range doc.Components.Schemas {
		g.schemas["#/components/schemas/"+name] = n
		for _, k := range n.Kinds {
			if k.Group == gv.Group && k.Version == gv.Version {
				g.kinds[k.Kind] = n
			}
		}
	}
	return g, nil
}

// resolved follows references.
func (g *group) resolved(n *node) *node {
	for range 16 { // a circular schema is none
		next := g.next(n)
		if next == nil {
			return n
		}
		n = next
	}
	return nil
}

// next is the schema that n refers to; nil if it is a schema itself.
func (g *group) next(n *node) *node {
	switch {
	case n == nil:
		return nil
	case n.Ref != "":
		return g.schemas[n.Ref]
	case len(n.AllOf) == 1 && len(n.Properties) == 0:
		return n.AllOf[0]
	}
	return nil
}

// child is the schema of one step below n; nil if there is none.
func (g *group) child(n *node, step string) *node {
	n = g.resolved(n)
	switch {
	case n == nil:
		return nil
	case step == "[]":
		return n.Items
	case n.Properties[step] != nil:
		return n.Properties[step]
	case n.Free != nil:
		return n.Free.of
	}
	return nil
}

func (g *group) typeOf(n *node) tenant.Type {
	n = g.resolved(n)
	switch {
	case n == nil:
		return tenant.Unknown
	case n.IntOrString, n.Format == "int-or-string":
		return tenant.IntOrString
	case n.Type == "string":
		return tenant.Text
	case n.Type == "integer":
		return tenant.Integer
	case n.Type == "number":
		return tenant.Number
	case n.Type == "boolean":
		return tenant.Boolean
	}
	return tenant.Unknown
}
