package web

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/gin-gonic/gin"

	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
)

var update = flag.Bool("update", false, "write the document of the API anew")

// documentFile is built into the server, and the manual leads to it.
const documentFile = "openapi.json"

// The document is made of the table of routes, so that it cannot say anything
// else than what is served.
func TestDocumentIsTheTable(t *testing.T) {
	doc := describe(t, table(t))
	if err := doc.Validate(t.Context()); err != nil {
		t.Fatalf("what the table says is no OpenAPI: %v", err)
	}
	raw, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	raw = append(raw, '\n')
	if *update {
		if err := os.WriteFile(documentFile, raw, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := os.ReadFile(documentFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(kept, raw) {
		t.Errorf("%s is not what the table of routes says: run go test ./internal/web -run TestDocument -update", documentFile)
	}
}

// The page about the API has a row for each row of the table.
func TestDocumentForPeopleIsTheTable(t *testing.T) {
	const file, begin, end = "../../docs/api.md", "-run TestDocument -update -->\n", "<!-- end of rows -->"
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(page), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no place for the rows", file)
	}
	var rows strings.Builder
	rows.WriteString("| | right | |\n| --- | --- | --- |\n")
	for _, r := range table(t) {
		fmt.Fprintf(&rows, "| `%s %s` | %s | %s |\n", r.method, strings.TrimPrefix(braced(r.path), api), rightOf(t, r), r.summary)
	}
	want := before + begin + rows.String() + end + after
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(page) {
		t.Errorf("%s is not what the table of routes says: run go test ./internal/web -run TestDocument -update", file)
	}
}

// Every route below the API is in the document, with what it takes and who may.
func TestEveryRouteIsInTheDocument(t *testing.T) {
	doc := load(t)
	engine, err := build(options(newRoles()))
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]string{}
	for _, r := range engine.Routes() {
		if !strings.HasPrefix(r.Path, api+"/") {
			continue
		}
		item := doc.Paths.Value(braced(r.Path))
		if item == nil || item.GetOperation(r.Method) == nil {
			t.Errorf("%s %s is not in the document", r.Method, r.Path)
			continue
		}
		o := item.GetOperation(r.Method)
		if o.Summary == "" || o.OperationID == "" || o.Extensions["x-terrier-right"] == "" {
			t.Errorf("%s %s says too little of itself: %+v", r.Method, r.Path, o)
		}
		if other, taken := ids[o.OperationID]; taken {
			t.Errorf("%s %s and %s are both called %s", r.Method, r.Path, other, o.OperationID)
		}
		ids[o.OperationID] = r.Method + " " + r.Path
	}
	if len(ids) < 45 {
		t.Errorf("the document has %d operations, want the whole API", len(ids))
	}
}

// The document is served as it is kept.
func TestDocumentIsServed(t *testing.T) {
	u, c := serve(t, options(newRoles()))
	resp, body := ask(t, c, http.MethodGet, u.String()+"/api/v1/openapi.json", bearer)
	var got openapi3.T
	if err := json.Unmarshal([]byte(body), &got); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %v, want the document", resp.Status, err)
	}
	if got.OpenAPI == "" || got.Paths.Len() != load(t).Paths.Len() {
		t.Errorf("what is served has %d paths, want %d", got.Paths.Len(), load(t).Paths.Len())
	}
}

func load(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(document)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// describe makes the document of a table.
func describe(t *testing.T, table []route) *openapi3.T {
	t.Helper()
	doc := &openapi3.T{
		OpenAPI: "3.0.3",
		Info: &openapi3.Info{Title: "Terrier", Version: "v1",
			Description: "Stacks of Terraform and OpenTofu, and tenants: their spec, their status, and actions on them. Each operation names the Kubernetes permission that it needs. Actions use the permissions of the caller."},
		Components: &openapi3.Components{
			Schemas: openapi3.Schemas{},
			SecuritySchemes: openapi3.SecuritySchemes{"token": &openapi3.SecuritySchemeRef{Value: openapi3.NewSecurityScheme().
				WithType("http").WithScheme("bearer").WithDescription("A token of the cluster, for instance of a ServiceAccount.")}},
		},
		Security: openapi3.SecurityRequirements{{"token": {}}},
		Paths:    openapi3.NewPaths(),
	}
	w := newWriter(t, doc)
	w.schema(reflect.TypeFor[query.BoardChange](), 0) // what an event of a stack holds
	w.schema(reflect.TypeFor[logEnd](), 0)
	for _, r := range table {
		path := braced(r.path)
		item := doc.Paths.Value(path)
		if item == nil {
			item = &openapi3.PathItem{}
			doc.Paths.Set(path, item)
		}
		item.SetOperation(r.method, w.operation(r))
	}
	return doc
}

// braced writes the variables of a path as OpenAPI does.
func braced(path string) string {
	parts := strings.Split(path, "/")
	for i, p := range parts {
		if name, ok := strings.CutPrefix(p, ":"); ok {
			parts[i] = "{" + name + "}"
		}
	}
	return strings.Join(parts, "/")
}

// rightOf is the permission that a row needs, in words.
func rightOf(t *testing.T, r route) string {
	t.Helper()
	if r.door == known {
		return "any signed-in user"
	}
	text := rightText(t, r.access)
	if slices.ContainsFunc(r.query, func(p parameter) bool { return p.name == "namespace" }) {
		text += ", in the namespace of the query or in all"
	}
	if r.also != nil {
		text += "; " + rightText(t, r.also)
	}
	return text
}

func rightText(t *testing.T, a requirement) string {
	t.Helper()
	c, _ := gin.CreateTestContext(httptest.NewRecorder())
	c.Request = httptest.NewRequest(http.MethodGet, "/", nil)
	c.Params = gin.Params{{Key: "namespace", Value: "n"}, {Key: "name", Value: "n"}}
	x, err := a(c)
	if err != nil {
		t.Fatal(err)
	}
	x.Namespace, x.Name = "", ""
	return accessText(x)
}

// operation describes one row.
func (w *writer) operation(r route) *openapi3.Operation {
	o := &openapi3.Operation{OperationID: r.id, Summary: r.summary, Tags: []string{r.area}, Responses: openapi3.NewResponses(),
		Extensions: map[string]any{"x-terrier-right": rightOf(w.t, r)}}
	o.Responses.Delete("default")
	for part := range strings.SplitSeq(r.path, "/") {
		if name, ok := strings.CutPrefix(part, ":"); ok {
			o.AddParameter(openapi3.NewPathParameter(name).WithSchema(openapi3.NewStringSchema()))
		}
	}
	for _, p := range r.query {
		o.AddParameter(queryParameter(p))
	}
	if r.as == "text/event-stream" {
		o.AddParameter(openapi3.NewHeaderParameter("Last-Event-ID").WithDescription("The id of the last event, to resume from there.").WithSchema(openapi3.NewStringSchema()))
	}
	if r.takes != nil {
		body := openapi3.NewRequestBody().WithJSONSchemaRef(w.schema(r.takes, 0))
		o.RequestBody = &openapi3.RequestBodyRef{Value: body}
	}
	w.success(o, r)
	w.failures(o, r)
	return o
}

func (w *writer) success(o *openapi3.Operation, r route) {
	switch {
	case r.as == "text/event-stream":
		o.AddResponse(http.StatusOK, openapi3.NewResponse().WithDescription("Events: stack with a BoardChange, or reset when the reader has to load everything again. The stream resumes from the id of an event.").
			WithContent(openapi3.NewContentWithSchema(openapi3.NewStringSchema(), []string{r.as})))
	case r.as != "":
		media, _, _ := strings.Cut(r.as, ";")
		o.AddResponse(http.StatusOK, openapi3.NewResponse().WithDescription("The text; or one event for each line, whose id is the end of the line in bytes, and a last event named end with a LogEnd.").
			WithContent(openapi3.NewContentWithSchema(openapi3.NewStringSchema(), []string{media, "text/event-stream"})))
	case r.gives == nil:
		o.AddResponse(http.StatusNoContent, openapi3.NewResponse().WithDescription("Success."))
	default:
		status := http.StatusOK
		if r.made {
			status = http.StatusCreated
		}
		o.AddResponse(status, openapi3.NewResponse().WithDescription(w.about(r.gives)).WithJSONSchemaRef(w.schema(r.gives, 0)))
	}
}

// failures lists how a row may fail.
func (w *writer) failures(o *openapi3.Operation, r route) {
	says := map[int]string{
		http.StatusUnauthorized: "The credentials are missing or invalid.", http.StatusForbidden: "Permission denied.",
		http.StatusUnprocessableEntity: "The request is invalid.", http.StatusInternalServerError: "Internal error of the server.",
	}
	more := map[fault.Kind]string{fault.Missing: "Not found.", fault.Conflict: "The object has changed in the meantime.", fault.Later: "Not possible at the moment; retry after Retry-After."}
	for _, kind := range r.fails {
		says[kind.Meaning().HTTP] = more[kind]
	}
	if r.takes != nil {
		says[http.StatusUnsupportedMediaType], says[http.StatusRequestEntityTooLarge] = "The Content-Type is not JSON.", "The body is too large."
	}
	if r.as != "" || r.id == "previewDestroy" {
		says[http.StatusTooManyRequests] = "Too many streams are open."
	}
	if r.whole {
		says[http.StatusTooManyRequests] = "Too many requests hold a state at this moment; retry after Retry-After."
	}
	for _, status := range slices.Sorted(maps.Keys(says)) {
		o.AddResponse(status, openapi3.NewResponse().WithDescription(says[status]).WithJSONSchemaRef(w.schema(reflect.TypeFor[command.Refusal](), 0)))
	}
}

func queryParameter(p parameter) *openapi3.Parameter {
	one := openapi3.NewStringSchema()
	switch p.kind {
	case reflect.Int:
		one = openapi3.NewIntegerSchema().WithMin(0)
	case reflect.Bool:
		one = openapi3.NewBoolSchema()
	}
	out := openapi3.NewQueryParameter(p.name).WithDescription(p.about).WithSchema(one)
	if p.several {
		out.Schema = openapi3.NewArraySchema().WithItems(one).NewRef()
	}
	return out
}
