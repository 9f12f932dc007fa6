package web

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/terrier-iac/terrier/internal/query"
)

// writer makes schemas of Go types: of what encoding/json writes of them, and of
// what their comments say.
type writer struct {
	t        *testing.T
	doc      *openapi3.T
	named    map[reflect.Type]string
	taken    map[string]bool
	comments map[string]map[string]string // by package and Type or Type.Field
}

func newWriter(t *testing.T, doc *openapi3.T) *writer {
	return &writer{t: t, doc: doc, named: map[reflect.Type]string{}, taken: map[string]bool{}, comments: map[string]map[string]string{}}
}

// schema is what encoding/json makes of a t. A schema that recurs is a component.
func (w *writer) schema(t reflect.Type, depth int) *openapi3.SchemaRef {
	if depth > 30 {
		w.t.Fatalf("%s is too deep", t)
	}
	switch t {
	case reflect.TypeFor[time.Time]():
		return openapi3.NewDateTimeSchema().NewRef()
	case reflect.TypeFor[time.Duration]():
		s := openapi3.NewInt64Schema()
		s.Description = "nanoseconds"
		return s.NewRef()
	case reflect.TypeFor[[]byte]():
		return openapi3.NewBytesSchema().NewRef()
	case reflect.TypeFor[json.RawMessage](), anyType:
		return (&openapi3.Schema{Nullable: true}).NewRef()
	case reflect.TypeFor[query.Status]():
		s := openapi3.NewStringSchema()
		for _, status := range query.Statuses() {
			s.Enum = append(s.Enum, string(status))
		}
		return s.NewRef()
	}
	switch t.Kind() {
	case reflect.Pointer:
		return w.schema(t.Elem(), depth+1)
	case reflect.String:
		return openapi3.NewStringSchema().NewRef()
	case reflect.Bool:
		return openapi3.NewBoolSchema().NewRef()
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint32, reflect.Uint64:
		return openapi3.NewIntegerSchema().NewRef()
	case reflect.Float64:
		return openapi3.NewFloat64Schema().NewRef()
	case reflect.Slice:
		return &openapi3.SchemaRef{Value: &openapi3.Schema{Type: &openapi3.Types{"array"}, Nullable: true, Items: w.schema(t.Elem(), depth+1)}}
	case reflect.Map:
		return &openapi3.SchemaRef{Value: &openapi3.Schema{Type: &openapi3.Types{"object"}, Nullable: true,
			AdditionalProperties: openapi3.AdditionalProperties{Schema: w.schema(t.Elem(), depth+1)}}}
	case reflect.Struct:
		return w.component(t, depth)
	default:
		w.t.Fatalf("%s has no schema", t)
		return nil
	}
}

func (w *writer) component(t reflect.Type, depth int) *openapi3.SchemaRef {
	if t.Name() == "" {
		return w.object(t, depth).NewRef()
	}
	name, known := w.named[t]
	if !known {
		name = w.name(t)
		w.named[t], w.taken[name] = name, true
		w.doc.Components.Schemas[name] = &openapi3.SchemaRef{} // so that a type that holds itself ends
		w.doc.Components.Schemas[name].Value = w.object(t, depth)
	}
	return openapi3.NewSchemaRef("#/components/schemas/"+name, w.doc.Components.Schemas[name].Value)
}

// name is what a type is called, with its package if that is taken.
func (w *writer) name(t reflect.Type) string {
	base, of, generic := strings.Cut(t.Name(), "[")
	if generic {
		of = strings.TrimSuffix(of, "]")
		base = of[strings.LastIndexByte(of, '.')+1:] + capital(base)
	}
	if strings.HasSuffix(t.PkgPath(), "/audit") {
		return "Audit" + base // its words say little without it
	}
	if name := capital(base); !w.taken[name] {
		return name
	}
	return capital(t.PkgPath()[strings.LastIndexByte(t.PkgPath(), '/')+1:]) + capital(base)
}

func capital(s string) string {
	r := []rune(s)
	r[0] = unicode.ToUpper(r[0])
	return string(r)
}

func (w *writer) object(t reflect.Type, depth int) *openapi3.Schema {
	s := openapi3.NewObjectSchema()
	s.Description = w.comment(t, "")
	s.Properties = openapi3.Schemas{}
	w.fields(t, s, depth)
	return s
}

func (w *writer) fields(t reflect.Type, s *openapi3.Schema, depth int) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case tag == "-":
			continue
		case f.Anonymous && tag == "":
			w.fields(f.Type, s, depth+1)
			continue
		case !f.IsExported():
			continue
		case tag == "":
			w.t.Errorf("%s.%s goes out without a name of its own", t, f.Name)
		}
		ref := w.schema(f.Type, depth+1)
		if about := w.comment(t, f.Name); ref.Ref == "" && about != "" {
			ref.Value.Description = strings.TrimPrefix(ref.Value.Description+"; "+about, "; ")
		}
		if f.Type.Kind() == reflect.Pointer && options == "" && ref.Ref != "" {
			ref = (&openapi3.Schema{Nullable: true, AllOf: openapi3.SchemaRefs{ref}}).NewRef()
		}
		s.Properties[tag] = ref
		if !strings.Contains(options, "omitempty") && !strings.Contains(options, "omitzero") && w.answers(t) {
			s.Required = append(s.Required, tag)
		}
	}
}

// answers reports whether a type is ever sent: all of its fields that are not
// left out on purpose are there. Of what is received, a test says what is missing.
func (w *writer) answers(t reflect.Type) bool {
	return t != reflect.TypeFor[none]()
}

// about is one sentence about an answer.
func (w *writer) about(t reflect.Type) string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if text := w.comment(t, ""); text != "" {
		return text
	}
	return "The response."
}

// comment is what the source says of a type or a field.
func (w *writer) comment(t reflect.Type, field string) string {
	dir, ours := strings.CutPrefix(t.PkgPath(), "github.com/terrier-iac/terrier/")
	if !ours {
		return ""
	}
	if w.comments[dir] == nil {
		w.comments[dir] = commentsOf(w.t, filepath.Join("..", "..", dir))
	}
	name, _, _ := strings.Cut(t.Name(), "[")
	if field != "" {
		name += "." + field
	}
	return w.comments[dir][name]
}

func commentsOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(gotoken.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			g, ok := decl.(*ast.GenDecl)
			if !ok || g.Tok != gotoken.TYPE {
				continue
			}
			for _, spec := range g.Specs {
				typeComments(out, g, spec.(*ast.TypeSpec))
			}
		}
	}
	return out
}

func typeComments(out map[string]string, g *ast.GenDecl, s *ast.TypeSpec) {
	doc := s.Doc
	if doc == nil && !g.Lparen.IsValid() {
		doc = g.Doc
	}
	out[s.Name.Name] = flat(doc.Text())
	st, ok := s.Type.(*ast.StructType)
	if !ok {
		return
	}
	for _, f := range st.Fields.List {
		for _, name := range f.Names {
			out[s.Name.Name+"."+name.Name] = flat(f.Doc.Text() + f.Comment.Text())
		}
	}
}

func flat(text string) string { return strings.Join(strings.Fields(text), " ") }
