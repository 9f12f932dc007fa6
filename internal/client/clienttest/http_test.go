package clienttest

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/client"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/dialect/kinds"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/web"
)

// The API with its client does what the service does, and every answer of it is
// what the document says.
func TestAPIIsTheService(t *testing.T) {
	var seen sync.Map
	Run(t, func(t *testing.T, w *World, who Who) Subject {
		h := must(web.New(served(t, w)))(t)
		srv := httptest.NewTLSServer(h)
		t.Cleanup(srv.Close)
		u, c := must(url.Parse(srv.URL))(t), srv.Client()
		c.Transport = &witness{t: t, next: c.Transport, token: w.Token(t, who), router: router(t), seen: &seen}
		client := client.Dial(u, c)
		return Subject{Stacks: client.Stacks, Tenants: client.Tenants}
	})
	for _, id := range []string{"listStacksOfNamespace", "getStack", "explainStack", "approvePlan", "previewDestroy", "rollBackState", "pushState", "breakGlass", "orderByHand", "getRollout", "allowDeletions"} {
		if _, ok := seen.Load(id); !ok {
			t.Errorf("no answer of %s was compared with the document", id)
		}
	}
}

// served is what a server of a world is made of.
func served(t *testing.T, w *World) web.Options {
	t.Helper()
	auth := must(access.NewKubeAuth(w.Config, kinds.All()))(t)
	people := must(command.NewPeople(w.Config, kinds.All(), w.Records, w.Now))(t)
	stacks := command.New(w.Kube, kinds.All(), w.Records, w.Now)
	return web.Options{
		Kinds: kinds.All(), Stacks: stacks, Tenants: command.NewTenants(stacks, w.Config), Board: w.Board(), Auth: auth, People: people.As,
		Version: "v1", Hosts: []string{"127.0.0.1"},
	}
}

func router(t *testing.T) routers.Router {
	t.Helper()
	raw := must(os.ReadFile("../../web/openapi.json"))(t)
	return must(legacy.NewRouter(must(openapi3.NewLoader().LoadFromData(raw))(t)))(t)
}

// witness makes requests as a user, and compares each answer with the document.
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
