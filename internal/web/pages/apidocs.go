package pages

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/web/ui"
)

// APIDocs shows what the API offers, as its own document says: grouped, with the
// right that each route takes and a command to try it with.
func APIDocs(v *Visit) (Page, error) {
	d, err := apiOf(v.Backend.API)
	if err != nil {
		return Page{}, fmt.Errorf("reading the document of the API: %w", err)
	}
	d.Version, d.Address = v.Backend.Version, "https://SERVER"
	for _, a := range v.Backend.Platform.Addresses {
		if a.Name == AddressAPI {
			d.Address = strings.TrimSuffix(a.URL, "/")
		}
	}
	return Page{Title: "API", Section: "about", Template: "apidocs", Data: d}, nil
}

// AddressAPI names the address of the API among those of a Platform.
const AddressAPI = "Pages and API"

// apiView is what the page shows.
type apiView struct {
	Version, Address string
	About            string
	Groups           []apiGroup
	Empty            *ui.Empty
}

// apiGroup is the routes about one thing.
type apiGroup struct {
	Title, Anchor, About string
	Ops                  []apiOp
}

// apiOp is one route.
type apiOp struct {
	Method, Path, Summary, About string
	Anchor                       string
	Right                        string
	Params                       []apiParam
	Body                         string // name of what it takes; empty if that is nothing
	Empty                        bool   // it takes an object without anything in it
	Answers                      []apiAnswer
	Curl                         string
	Tone                         ui.Tone
}

type apiParam struct {
	Name, In, Type, About string
	Required              bool
}

type apiAnswer struct{ Status, About, Type string }

// openAPI is as much of the document as the page shows.
type openAPI struct {
	Info struct {
		Description string `json:"description"`
	} `json:"info"`
	Tags []struct {
		Name        string `json:"name"`
		Description string `json:"description"`
	} `json:"tags"`
	Paths map[string]map[string]json.RawMessage `json:"paths"`
}

type openAPIOp struct {
	ID          string      `json:"operationId"`
	Summary     string      `json:"summary"`
	Description string      `json:"description"`
	Tags        []string    `json:"tags"`
	Right       string      `json:"x-terrier-right"`
	Parameters  []openParam `json:"parameters"`
	Body        *struct {
		Content map[string]openContent `json:"content"`
	} `json:"requestBody"`
	Responses map[string]struct {
		Description string                 `json:"description"`
		Content     map[string]openContent `json:"content"`
	} `json:"responses"`
}

type openParam struct {
	Name        string     `json:"name"`
	In          string     `json:"in"`
	Description string     `json:"description"`
	Required    bool       `json:"required"`
	Schema      openSchema `json:"schema"`
}

type openContent struct {
	Schema openSchema `json:"schema"`
}

type openSchema struct {
	Ref   string          `json:"$ref"`
	Type  json.RawMessage `json:"type"` // a word, or several
	Items *openSchema     `json:"items"`
}

// name is a schema in one word.
func (s openSchema) name() string {
	if s.Ref != "" {
		return s.Ref[strings.LastIndex(s.Ref, "/")+1:]
	}
	if s.Items != nil {
		return "list of " + cmp.Or(s.Items.name(), "anything")
	}
	return strings.Trim(string(s.Type), `"`)
}

// methods are those that a path may have, in the order in which they are shown.
var methods = []struct {
	name string
	tone ui.Tone
}{{"get", ui.ToneOK}, {"head", ui.ToneOK}, {"post", ui.ToneBusy}, {"put", ui.ToneWarn}, {"patch", ui.ToneWarn}, {"delete", ui.ToneBad}}

func apiOf(raw []byte) (apiView, error) {
	var d openAPI
	if err := json.Unmarshal(raw, &d); err != nil {
		return apiView{}, err
	}
	view := apiView{About: d.Info.Description}
	at := map[string]int{}
	group := func(name string) *apiGroup {
		if i, ok := at[name]; ok {
			return &view.Groups[i]
		}
		at[name] = len(view.Groups)
		view.Groups = append(view.Groups, apiGroup{Title: ui.Capital(name), Anchor: "about-" + name})
		return &view.Groups[at[name]]
	}
	for _, t := range d.Tags {
		group(t.Name).About = t.Description
	}
	for _, path := range slices.Sorted(maps.Keys(d.Paths)) {
		for _, m := range methods {
			one, ok := d.Paths[path][m.name]
			if !ok {
				continue
			}
			var o openAPIOp
			if err := json.Unmarshal(one, &o); err != nil {
				return view, fmt.Errorf("%s %s: %w", m.name, path, err)
			}
			name := "other"
			if len(o.Tags) > 0 {
				name = o.Tags[0]
			}
			g := group(name)
			g.Ops = append(g.Ops, opOf(strings.ToUpper(m.name), path, m.tone, o))
		}
	}
	view.Groups = slices.DeleteFunc(view.Groups, func(g apiGroup) bool { return len(g.Ops) == 0 })
	if len(view.Groups) == 0 {
		view.Empty = &ui.Empty{Title: "The API says nothing of itself", Text: "The document at /api/v1/openapi.json has no routes."}
	}
	return view, nil
}

func opOf(method, path string, tone ui.Tone, o openAPIOp) apiOp {
	op := apiOp{Method: method, Path: path, Summary: o.Summary, About: o.Description, Anchor: cmp.Or(o.ID, method+path), Right: roleText(o.Right), Tone: tone}
	for _, p := range o.Parameters {
		op.Params = append(op.Params, apiParam{p.Name, p.In, p.Schema.name(), p.Description, p.Required})
	}
	if o.Body != nil {
		for _, media := range slices.Sorted(maps.Keys(o.Body.Content)) {
			op.Body = cmp.Or(o.Body.Content[media].Schema.name(), media)
		}
	}
	if op.Body == emptyBody {
		op.Body, op.Empty = "", true
	}
	for _, status := range slices.Sorted(maps.Keys(o.Responses)) {
		r := o.Responses[status]
		a := apiAnswer{Status: status, About: r.Description}
		for _, media := range slices.Sorted(maps.Keys(r.Content)) {
			a.Type = ui.Joined(a.Type, cmp.Or(r.Content[media].Schema.name(), media))
		}
		op.Answers = append(op.Answers, a)
	}
	op.Curl = curlOf(method, path, op)
	return op
}

// emptyBody is the schema of what holds nothing.
const emptyBody = "None"

// roleText is a right in the words of roles: the document has the resource as
// the API calls it.
func roleText(right string) string {
	verb, resource, ok := strings.Cut(right, " ")
	if !ok {
		return right
	}
	for _, r := range aboutRights {
		if string(r.resource) == resource {
			return verb + " " + r.role
		}
	}
	return right
}

// curlOf is a command to try a route with. Placeholders are in capitals, and have no
// meaning in a shell.
func curlOf(method, path string, op apiOp) string {
	for _, p := range op.Params {
		if p.In == "path" {
			path = strings.ReplaceAll(path, "{"+p.Name+"}", strings.ToUpper(p.Name))
		}
	}
	var asked []string
	for _, p := range op.Params {
		if p.In == "query" && p.Required {
			asked = append(asked, p.Name+"="+strings.ToUpper(p.Name))
		}
	}
	if asked != nil {
		path += "?" + strings.Join(asked, "&")
	}
	var b strings.Builder
	b.WriteString(`curl --cacert "$CA" -H "Authorization: Bearer $TOKEN"`)
	if method != "GET" {
		b.WriteString(" -X " + method)
	}
	switch {
	case op.Body != "":
		b.WriteString(` -H 'Content-Type: application/json' -d @body.json`)
	case op.Empty:
		b.WriteString(` -H 'Content-Type: application/json' -d '{}'`)
	}
	return b.String() + ` "$SERVER` + path + `"`
}
