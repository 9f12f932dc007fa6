package web

import (
	"cmp"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query/catalog"
	"github.com/terrier-iac/terrier/internal/web/pages/browse"
)

// catalogAPI is the rows about what the registry has. Lists show the namespaces that the
// caller may read. The mirror is for every known user: its own rules decide.
type catalogAPI struct {
	*gate
	catalog *catalog.Catalog // nil without a registry
	recent  Auth             // with a cache of some seconds
}

func (a catalogAPI) routes() []route {
	op := func(id, summary string, params ...parameter) operation {
		return operation{id: id, area: "registry", summary: summary, query: params, fails: []fault.Kind{fault.Missing, fault.Later}}
	}
	part := []parameter{number("offset", "Number of rows to skip."), number("limit", "Number of rows: 50 by default, at most 200.")}
	version := word("version", "A version; the newest one that clients may use by default.")
	return []route{
		reads(a.gate, api+"/registry", known, nil, op("searchRegistry", "Lists the modules and providers that are published, in the namespaces where the caller may get terraforms/registry.",
			append(part, word("q", "Words that an address must have."), word("kind", "modules or providers."), word("namespace", "Only this namespace."), word("sort", "newest puts what was published last first; by name by default."))...), a.search),
		reads(a.gate, api+"/registry/mirror", known, nil, op("getMirror", "Returns the providers in the mirror, and whether its upstreams answer.", append(part, word("q", "Words that an address must have."))...), a.mirror),
		reads(a.gate, inNamespace+"/registry/modules/:name/:system", guarded, registryRight, op("getRegistryModule", "Returns the versions of a module, and the documentation of one: what its configuration declares.", version), a.module),
		reads(a.gate, inNamespace+"/registry/providers/:name", guarded, registryRight, op("getRegistryProvider", "Returns the versions of a provider, and the keys that its namespace signs with.", version), a.provider),
		reads(a.gate, inNamespace+"/registry/keys", guarded, registryRight, op("listRegistryKeys", "Lists the public keys that a namespace signs its providers with."), a.keys),
	}
}

// registryRight is the permission to read what a namespace publishes.
func registryRight(c *gin.Context) (access.Request, error) {
	a := access.Request{Verb: "get", Resource: access.ResourceRegistry, Namespace: c.Param("namespace")}
	if !dnsName.MatchString(a.Namespace) {
		return a, errName("namespace", a.Namespace)
	}
	return a, nil
}

func (a catalogAPI) ready() error {
	if a.catalog == nil {
		return errNoRegistry()
	}
	return nil
}

// can asks for permissions of the caller. An error of the cluster counts as a denial, as on
// pages.
func (a catalogAPI) can(c call) func(access.Request) bool {
	return func(x access.Request) bool { return a.recent.Authorize(c.ctx(), userOf(c.Context), x) == nil }
}

func (a catalogAPI) search(c call) (catalog.Page, error) {
	if err := a.ready(); err != nil {
		return catalog.Page{}, err
	}
	q := catalog.Query{Text: c.Query("q"), Kind: catalog.Kind(c.Query("kind")), Namespace: c.Query("namespace"), Sort: catalog.Sort(c.Query("sort"))}
	if q.Kind != "" && q.Kind != catalog.Modules && q.Kind != catalog.Providers {
		return catalog.Page{}, errQuery("the parameter kind takes modules or providers, not %.80q", q.Kind)
	}
	if q.Sort != catalog.ByName && q.Sort != catalog.Newest {
		return catalog.Page{}, errQuery("the parameter sort takes newest, not %.80q", q.Sort)
	}
	var err error
	if q.Offset, q.Limit, err = c.part(); err != nil {
		return catalog.Page{}, err
	}
	return a.catalog.Search(c.ctx(), browse.Sight(a.can(c)), q)
}

// part reads which part of a list is wanted.
func (c call) part() (offset, limit int, err error) {
	if offset, err = c.count("offset"); err == nil {
		limit, err = c.count("limit")
	}
	return offset, limit, err
}

func (a catalogAPI) mirror(c call) (catalog.Mirror, error) {
	if err := a.ready(); err != nil {
		return catalog.Mirror{}, err
	}
	q := catalog.MirrorQuery{Text: c.Query("q"), All: a.can(c)(access.Request{Verb: "get", Resource: access.ResourceRegistry})}
	var err error
	if q.Offset, q.Limit, err = c.part(); err != nil {
		return catalog.Mirror{}, err
	}
	return a.catalog.Mirror(c.ctx(), q)
}

func (a catalogAPI) module(c call) (catalog.Module, error) {
	m, err := address.NewModule(c.Param("namespace"), c.Param("name"), c.Param("system"))
	if err == nil {
		err = a.ready()
	}
	if err != nil {
		return catalog.Module{}, err
	}
	return a.catalog.Module(c.ctx(), m, c.Query("version"))
}

func (a catalogAPI) provider(c call) (catalog.Provider, error) {
	p, err := address.NewProvider("", c.Param("namespace"), c.Param("name"))
	if err == nil {
		err = a.ready()
	}
	if err != nil {
		return catalog.Provider{}, err
	}
	return a.catalog.Provider(c.ctx(), p, c.Query("version"))
}

func (a catalogAPI) keys(c call) (list[catalog.Key], error) {
	if err := a.ready(); err != nil {
		return list[catalog.Key]{}, err
	}
	return listed(a.catalog.Keys(c.ctx(), c.Param("namespace")))
}

// catalogRoutes are the pages of the registry.
func (p pageRows) catalogRoutes() []route {
	const module = "/registry/modules/:namespace/:name/:system"
	return []route{
		p.page("/registry", known, nil, browse.Registry),
		p.page(module, guarded, registryRight, browse.Module),
		{method: http.MethodGet, path: module + "/:version/archive", door: guarded, access: registryRight, handle: p.archive},
		p.page("/registry/providers/:namespace/:name", guarded, registryRight, browse.Provider),
		p.page("/registry/keys/:namespace", guarded, registryRight, browse.Keys),
		p.page("/registry/repositories", known, nil, browse.Repositories),
		p.page("/registry/repositories/:namespace/:name", guarded, registryRight, browse.Repository),
		{method: http.MethodGet, path: browse.Authority, door: known, handle: p.authority},
		p.page("/registry/mirror", known, nil, browse.Mirror),
		p.page("/registry/mirror/:host/:namespace/:name", known, nil, browse.Mirrored),
	}
}

// authority is the certificate authority of this server, for the computer of a user.
func (p pageRows) authority(c *gin.Context) {
	pem := p.screen.backend.Authority
	if len(pem) == 0 {
		p.replies.refuse(c, browse.ErrNoAuthority())
		return
	}
	c.Header("Content-Disposition", `attachment; filename="`+browse.AuthorityFile+`"`)
	c.Data(http.StatusOK, browse.AuthorityType, pem)
}

// archive leads to the signed address of an archive.
func (p pageRows) archive(c *gin.Context) {
	at, err := "", errNoRegistry()
	if answers := p.screen.backend.Catalog; answers != nil {
		m, invalid := address.NewModule(c.Param("namespace"), c.Param("name"), c.Param("system"))
		v, malformed := address.ParseVersion(c.Param("version"))
		if err = cmp.Or(invalid, malformed); err == nil {
			at, err = answers.ModuleArchive(c.Request.Context(), m, v)
		}
	}
	if err != nil {
		p.replies.refuse(c, err)
		return
	}
	c.Redirect(http.StatusSeeOther, at)
}
