package cli

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/query"
)

// odd is what a database may hold in place of a name: it would clear the screen,
// ring, begin a line of its own, and turn what follows around.
const odd = "a\x1b[2J\x07b\nOK c\u009b31m\u202ed\x00\xff"

// fill puts a text into every text below a value, and something into everything else.
func fill(v reflect.Value, text string, depth int) {
	if v.Type() == reflect.TypeFor[time.Time]() {
		v.Set(reflect.ValueOf(time.Unix(1_700_000_000, 0)))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(3)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fill(v.Field(i), text, depth)
			}
		}
	case reflect.Pointer:
		if depth > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem(), text, depth-1)
		}
	case reflect.Slice:
		if depth > 0 {
			v.Set(reflect.MakeSlice(v.Type(), 2, 2))
			fill(v.Index(0), text, depth-1)
			fill(v.Index(1), text, depth-1)
		}
	case reflect.Map:
		if depth > 0 && v.Type().Key().Kind() == reflect.String {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(key, text, depth-1)
			fill(value, text, depth-1)
			v.Set(reflect.MakeMap(v.Type()))
			v.SetMapIndex(key, value)
		}
	}
}

func filled[T any](text string) (v T) {
	fill(reflect.ValueOf(&v).Elem(), text, 6)
	return v
}

// What an object waits for is said once, although its message says it, too.
func TestAWaitIsSaidOnce(t *testing.T) {
	var out bytes.Buffer
	p := newProgram(Env{Stdout: &out, Now: time.Now})
	p.write(tenantCommands{p}.tenantSheet(query.TenantDetail{Objects: []query.TenantObject{
		{ID: "app", State: query.ObjectPending, Reason: "DependencyNotReady", Message: "waits for data", DependsOn: []string{"data"}, WaitsFor: []string{"data"}},
	}}))
	if got := out.String(); strings.Count(got, "for data") != 1 || !strings.Contains(got, "waiting for data") {
		t.Errorf("the command prints:\n%s", got)
	}
}

// Whatever is in a row, an object or an error of the database, it is shown as
// what it is: it moves no cursor, and makes no line of its own.
func TestOddTextsOfTenantsAreShownAsTheyAre(t *testing.T) {
	for name, show := range map[string]func(p *program, text string){
		"terrier rows": func(p *program, text string) {
			p.write(registryCommands{p}.registrySheet(filled[query.Registry](text)))
		},
		"terrier tenant": func(p *program, text string) {
			p.write(tenantCommands{p}.tenantSheet(filled[query.TenantDetail](text)))
		},
		"terrier tenants": func(p *program, text string) {
			tenantCommands{p}.listTenants(filled[query.TenantList](text), format(""), query.TenantFilter{})
		},
		"terrier tenants -o wide": func(p *program, text string) {
			tenantCommands{p}.listTenants(filled[query.TenantList](text), forWide, query.TenantFilter{})
		},
		"terrier tenants -o name": func(p *program, text string) {
			tenantCommands{p}.listTenants(filled[query.TenantList](text), forName, query.TenantFilter{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			print := func(text string) string {
				var out bytes.Buffer
				p := newProgram(Env{Stdout: &out, Now: func() time.Time { return time.Unix(1_700_000_100, 0) }})
				show(p, text)
				if p.failed != nil {
					t.Fatal(p.failed)
				}
				return out.String()
			}
			got := print(odd)
			for line := range strings.Lines(got) {
				if line = strings.TrimSuffix(line, "\n"); strings.ContainsFunc(line, func(r rune) bool { return !shown(r) }) {
					t.Errorf("%q is printed", line)
				}
				if strings.HasPrefix(strings.TrimSpace(line), "OK c") {
					t.Errorf("a line break of the text is one of the output: %q", line)
				}
			}
			if !strings.Contains(got, `\x1b[2J`) {
				t.Errorf("the text is not shown:\n%s", got)
			}
		})
	}
}
