package web

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"

	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/service"
	"github.com/terrier-iac/terrier/internal/service/servicetest"
)

// The API with its client does what the service does, and every answer of it is
// what the document says.
func TestAPIIsTheService(t *testing.T) {
	var seen sync.Map
	servicetest.Run(t, func(t *testing.T, w *servicetest.World, who servicetest.Who) servicetest.Subject {
		u, c := serve(t, served(t, w))
		c.Transport = &witness{t: t, next: c.Transport, token: w.Token(t, who), router: router(t), seen: &seen}
		client := service.Dial(u, c)
		return servicetest.Subject{Stacks: client.Stacks, Tenants: client.Tenants}
	})
	for _, id := range []string{"listStacksOfNamespace", "getStack", "explainStack", "approvePlan", "previewDestroy", "rollBackState", "getRollout", "allowDeletions"} {
		if _, ok := seen.Load(id); !ok {
			t.Errorf("no answer of %s was compared with the document", id)
		}
	}
}

// served is what a server of a world is made of.
func served(t *testing.T, w *servicetest.World) Options {
	t.Helper()
	auth, err := service.NewKubeAuth(w.Config)
	if err != nil {
		t.Fatal(err)
	}
	people, err := service.NewPeople(w.Config, w.Records, w.Now)
	if err != nil {
		t.Fatal(err)
	}
	stacks := service.New(w.Kube, w.Records, w.Now)
	return Options{
		Stacks: stacks, Tenants: service.NewTenants(stacks, w.Config), Board: w.Board(), Auth: auth, People: people.As,
		Version: "v1", Hosts: []string{"127.0.0.1"},
	}
}

func router(t *testing.T) routers.Router {
	t.Helper()
	r, err := legacy.NewRouter(load(t))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// witness makes requests as somebody, and compares each answer with the document.
type witness struct {
	t      *testing.T
	next   http.RoundTripper
	token  secret.Text
	router routers.Router
	seen   *sync.Map
}

func (w *witness) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+w.token.Reveal())
	resp, err := w.next.RoundTrip(r)
	if err != nil || !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		return resp, err
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return resp, err
	}
	if err := resp.Body.Close(); err != nil {
		return resp, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	asked := r.Clone(r.Context())
	asked.URL.Scheme, asked.URL.Host = "", ""
	route, params, err := w.router.FindRoute(asked)
	if err != nil {
		w.t.Errorf("%s %s is not in the document: %v", r.Method, r.URL.Path, err)
		return resp, nil
	}
	input := &openapi3filter.RequestValidationInput{Request: asked, PathParams: params, Route: route}
	answered := &openapi3filter.ResponseValidationInput{RequestValidationInput: input, Status: resp.StatusCode, Header: resp.Header, Body: io.NopCloser(bytes.NewReader(body)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true}}
	if err := openapi3filter.ValidateResponse(r.Context(), answered); err != nil {
		w.t.Errorf("%s %s answers %d with what the document does not say: %v", r.Method, r.URL.Path, resp.StatusCode, err)
	}
	w.seen.Store(route.Operation.OperationID, true)
	return resp, nil
}

// Whoever has lost a namespace sees no more of it, in lists or otherwise.
func TestListsAreCut(t *testing.T) {
	o := options(newRoles())
	board := emptyBoard()
	o.Board = board
	for _, ns := range []string{"apps", "infra"} {
		board.Set(stackObject(ns, "net"))
	}
	scope := service.Scope{In: map[string]bool{"apps": true}}
	o.Scopes = scopeFunc(func() service.Scope { return scope })
	u, c := serve(t, o)
	c.Transport = signed{c.Transport}
	page, err := service.Dial(u, c).Stacks.Page(t.Context(), service.BoardQuery{})
	if err != nil || page.Total != 1 || len(page.Items) != 1 || page.Items[0].Namespace != "apps" {
		t.Errorf("Page() = %+v, %v; want the one stack of apps", page, err)
	}
	scope = service.Scope{}
	if page, err := service.Dial(u, c).Stacks.Page(t.Context(), service.BoardQuery{}); err != nil || page.Total != 0 || page.Items == nil {
		t.Errorf("Page() of nothing = %+v, %v; want an empty list", page, err)
	}
}
