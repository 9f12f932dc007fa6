package rendering

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/Masterminds/sprig/v3"
	"pgregory.net/rapid"
)

// row has what the tests name; plan and seats are not in it.
func row() map[string]string {
	return map[string]string{
		"uid": "acme", "host": "acme.example.com", "hostOrUrl": "https://acme.example.com:8443/x", "n": "3", "empty": "", "price": "2.50", "on": "yes",
		"json": `{"replicas": 2, "big": 12345678901234567890, "id": 12345678, "zones": ["a", "b"], "deep": {"x": null}}`,
		"word": "x", "tpl": `{{ .uid }}{{ env "HOME" }}`, "umlauts": strings.Repeat("ü", 40),
	}
}

func render(text string, values map[string]string) (any, error) {
	t, err := Parse(text)
	if err != nil {
		return nil, err
	}
	return t.Render(NewRun(values))
}

func TestRender(t *testing.T) {
	r := strings.Repeat
	for name, tt := range map[string]struct {
		text string
		want any
	}{
		"no template":                           {"a }} b", "a }} b"},
		"a variable":                            {"{{ .uid }}-s3", "acme-s3"},
		"a variable of the whole row":           {`{{ $.uid }}{{ index . "uid" }}`, "acmeacme"},
		"functions of sprig":                    {`{{ .uid | sha1sum | trunc 8 | upper }}`, "293ABB6B"},
		"a number that is text":                 {"{{ .n }}", "3"},
		"what data holds is no template (D-01)": {`{{ .tpl }}`, `{{ .uid }}{{ env "HOME" }}`},

		// D-15, L-05: casts compose with everything of sprig.
		"int":                     {"{{ .n | int }}", int64(3)},
		"int64":                   {"{{ int64 .n }}", int64(3)},
		"float":                   {"{{ .price | float }}", 2.5},
		"bool":                    {"{{ .on | bool }}", true},
		"a decimal that is whole": {`{{ int "3.00" }}`, int64(3)},
		"int, then add":           {"{{ add (.n | int) 1 }}", int64(4)},
		"add takes a text":        {"{{ add .n 1 }}", int64(4)},
		"add does not round":      {`{{ add .n "1" 2 }}`, int64(6)},
		"int, then eq":            {"{{ if eq (int .n) 3 }}three{{ end }}", "three"},
		"int, then eq, whole":     {"{{ eq (int .n) 3 }}", true},
		"int, then until":         {"{{ range until (int .n) }}{{ . }}{{ end }}", "012"},
		"int, then range":         {"{{ range $i := int .n }}{{ $i }}{{ end }}", "012"},
		"int, then ternary":       {`{{ ternary "many" "one" (gt (int .n) 1) }}`, "many"},
		"int in a text":           {"{{ .n | int }}m", "3m"},
		"int around":              {" {{- .n | int -}} ", int64(3)},
		"int of a variable":       {"{{ $n := .n }}{{ $n | int }}", int64(3)},
		"a number, then text":     {"{{ .n | int | toString }}", "3"},
		"a printed float":         {"x{{ mulf 1234567.0 100.5 }}", "x124073983.5"},

		// L-06: a variable that is not there.
		"default":                   {`{{ .plan | default "free" }}`, "free"},
		"default of what is empty":  {`{{ .empty | default "free" }}`, "free"},
		"default, called":           {`{{ default "free" .plan }}`, "free"},
		"default, then a cast":      {`{{ .seats | default 5 | int }}`, int64(5)},
		"coalesce":                  {`{{ coalesce .plan .empty .uid }}`, "acme"},
		"empty":                     {`{{ empty .plan }}`, true},
		"ternary":                   {`{{ ternary "a" "b" (empty .plan) }}`, "a"},
		"ternary of what is absent": {`{{ ternary "a" "b" .plan }}`, "b"},
		"hasKey":                    {`{{ hasKey . "plan" }} {{ hasKey . "uid" }}`, "false true"},
		"if":                        {`{{ if .plan }}a{{ else }}b{{ end }}`, "b"},
		"if, then the variable":     {`{{ if .plan }}{{ .plan | upper }}{{ end }}`, ""},
		"if, then a comparison":     {`{{ if and .plan (eq .plan "gold") }}x{{ else }}y{{ end }}`, "y"},
		"if it has it":              {`{{ if hasKey . "plan" }}{{ .plan }}{{ else }}y{{ end }}`, "y"},
		"if not":                    {`{{ if not .plan }}none{{ else }}{{ .plan }}{{ end }}`, "none"},
		"with":                      {`{{ with .plan }}{{ . }}{{ else }}none{{ end }}`, "none"},
		"with what is there":        {`{{ with .uid }}<{{ . }}>{{ end }}`, "<acme>"},
		"a loop":                    {`{{ range .plan }}x{{ else }}none{{ end }}`, "none"},
		"and, or":                   {`{{ or .plan .uid }}{{ if and .plan .uid }}x{{ end }}`, "acme"},
		"a chain of variables":      {`{{ $p := .plan }}{{ $p | default "free" }}`, "free"},
		"a definition":              {`{{ define "t" }}{{ .x | default "y" }}{{ end }}{{ template "t" dict "x" .uid }}{{ template "t" . }}`, "acmey"},

		"fromJson":                       {`{{ (fromJson .json).replicas }}`, int64(2)},
		"numbers of JSON keep digits":    {`{{ (fromJson .json).id }}`, int64(12345678)},
		"a list of JSON":                 {`{{ range (fromJson .json).zones }}{{ . }},{{ end }}`, "a,b,"},
		"fields that are not there":      {`{{ (fromJson .json).nope.x | default "d" }}`, "d"},
		"null of JSON":                   {`{{ (fromJson .json).deep.x | default "d" }}`, "d"},
		"JSON as JSON":                   {`{{ (fromJson .json).zones | toJson }}`, `["a","b"]`},
		"toHost of an address":           {"{{ toHost .hostOrUrl }}", "acme.example.com"},
		"toHost of a host and a port":    {`{{ toHost "a.example.com:80" }}`, "a.example.com"},
		"toHost of a path":               {`{{ toHost "a.example.com/p" }}`, "a.example.com/p"},
		"toHost of nonsense":             {`{{ toHost "%zz:1" }}`, "%zz"},
		"sha1sum":                        {`{{ sha1sum "tenant-alpha" | trunc 2 }}`, "80"},
		"trunc63 of a short text":        {`{{ trunc63 "a-" }}`, "a-"},
		"trunc63 of a long text":         {`{{ trunc63 "` + r("a", 70) + `" }}`, r("a", 63)},
		"trunc63 leaves no separator":    {`{{ trunc63 "` + r("a", 61) + `--bcd" }}`, r("a", 61)},
		"trunc63 splits no character":    {`{{ trunc63 .umlauts }}`, r("ü", 31)},
		"trunc splits no character":      {`{{ trunc 3 .umlauts }}`, "ü"},
		"several lines keep their bytes": {"a  \n\n{{ .uid }}\t\r\n${var.x}\n", "a  \n\nacme\t\r\n${var.x}\n"},
		"keys are in order":              {`{{ keys (dict "b" 1 "a" 2) | join "," }}`, "a,b"},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := render(tt.text, row()); err != nil || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("%s is %#v (%v), want %#v", tt.text, got, err, tt.want)
			}
		})
	}
}

func TestRenderRefuses(t *testing.T) {
	r := strings.Repeat
	for name, tt := range map[string]struct{ text, want string }{
		"a missing variable":               {"x {{ .plan }}", "there is no variable plan; the variables are empty, host, hostOrUrl, json, n, on, price, tpl, uid, umlauts, word"},
		"and where":                        {"a\nb {{ $.plan }}", "line 2: there is no variable plan; the variables are"},
		"given to a function (D-16)":       {"{{ .plan | trunc63 }}", "there is no variable plan"},
		"given to a comparison":            {`{{ if eq .plan "gold" }}{{ end }}`, "there is no variable plan"},
		"piped into one":                   {`{{ if .plan | eq "gold" }}{{ end }}`, "there is no variable plan"},
		"printed by way of another":        {`{{ $p := .plan }}{{ $p }}`, "there is no variable plan"},
		"in a definition":                  {`{{ define "t" }}{{ .plan }}{{ end }}{{ template "t" . }}`, "there is no field plan"},
		"what index does not find":         {`{{ index . "plan" }}`, "there is no value"},
		"a field of a text":                {"{{ .uid.x }}", "the variable uid is a text and has no field x; fromJson"},
		"a missing field":                  {"{{ (fromJson .json).nope }}", "there is no field nope"},
		"int of a text (L-05)":             {"{{ .word | int }}", `int: "x" is no whole number`},
		"int of nothing":                   {"{{ .empty | int }}", "int: an empty text is no whole number; default gives"},
		"int of a fraction":                {"{{ .price | int }}", `int: "2.50" is no whole number`},
		"float of a text":                  {"{{ .word | float }}", `float: "x" is no number`},
		"bool of a text":                   {"{{ .word | bool }}", `bool: "x" is no truth value`},
		"hexadecimal":                      {`{{ int "0x10" }}`, "is no whole number"},
		"infinity":                         {`{{ float "inf" }}`, "is no number"},
		"a sum with a text":                {"{{ add .word 1 }}", `add: "x" is no number`},
		"no JSON":                          {"{{ fromJson .word }}", "fromJson: the text is no JSON"},
		"more than JSON":                   {`{{ fromJson "1 2" }}`, "more text follows its end"},
		"a division by zero":               {"{{ div 1 0 }}", "divide by zero"},
		"fail":                             {`{{ fail "no region" }}`, "fail: no region"},
		"no template":                      {"{{ .uid", "unclosed action"},
		"no function":                      {"{{ nope .uid }}", "there is no function nope"},
		"every function that is not there": {"{{ nope .uid }}{{ now }}", "there is no function nope; the function now is refused: its result differs each time"},
		"env":                              {`{{ env "HOME" }}`, "the function env is refused: it reads the machine"},
		"getHostByName":                    {`{{ .host | getHostByName }}`, "refused: it reads the machine"},
		"uuidv4 as an argument":            {`{{ print uuidv4 }}`, "refused: its result differs each time"},
		"genCA":                            {`{{ (genCA "x" 1).Key }}`, "refused: it creates a key"},
		"set":                              {`{{ $d := dict }}{{ $_ := set $d "a" 1 }}`, "refused: it changes its arguments"},
		"our own functions":                {`{{ spend 1 }}{{ variable "uid" }}{{ written 1 }}`, "there is no function spend; there is no function variable; there is no function written"},
		"a variable with an argument":      {`{{ .uid "x" }}`, ".uid is no function"},
		"repetition":                       {`{{ repeat 999999999 "x" }}`, "does too much"},
		"repetition of repetition":         {`{{ repeat 100000 (repeat 100000 "x") }}`, "does too much"},
		"loops in loops":                   {`{{ range until 9999 }}{{ range until 9999 }}x{{ end }}{{ end }}`, "does too much"},
		"output without end":               {`{{ range until 9999 }}` + r("x", 1000) + `{{ end }}`, "writes too much"},
		"lists of lists":                   {`{{ $x := list "a" }}` + r(`{{ $x = list $x $x }}`, 60) + `{{ $x }}`, "does too much"},
		"itself again":                     {`{{ define "x" }}{{ template "x" . }}{{ end }}{{ template "x" . }}`, "does too much"},
		"brackets":                         {`{{ ` + r("(", 200_000) + `1` + r(")", 200_000) + ` }}`, "depth"},
		"too long a text":                  {"{{ .uid }}" + r("x", maxSource), "more than"},
	} {
		t.Run(name, func(t *testing.T) {
			begin := time.Now()
			got, err := render(tt.text, row())
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("render() = %v, %v; want an error with %q", got, err, tt.want)
			}
			if took := time.Since(begin); took > time.Minute {
				t.Errorf("it took %s", took)
			}
		})
	}
	if got, err := render("x{{ .x }}", map[string]string{"x": "\xff"}); err == nil {
		t.Errorf("a text that is no UTF-8 became %q", got)
	}
}

// All texts of one tenant share what they may do.
func TestBudgetIsOfAllTexts(t *testing.T) {
	text, err := Parse(`{{ range until 2000 }}x{{ end }}`)
	if err != nil {
		t.Fatal(err)
	}
	run := NewRun(nil)
	for range 1000 {
		if _, err = text.Render(run); err != nil {
			break
		}
	}
	if err == nil || !strings.Contains(err.Error(), "does too much") {
		t.Errorf("a thousand loops ended with %v", err)
	}
	if _, err := text.Render(NewRun(nil)); err != nil {
		t.Errorf("the next tenant has to suffer: %v", err)
	}
}

// One parsed text serves many tenants at the same time, and mixes none of them up.
func TestTextIsForManyGoroutines(t *testing.T) {
	text, err := Parse(`{{ range until (int .n) }}{{ $.uid | upper }}{{ end }}{{ define "x" }}{{ . }}{{ end }}{{ template "x" .uid }}`)
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for g := range 8 {
		group.Go(func() {
			uid := string(rune('a' + g))
			want := strings.Repeat(strings.ToUpper(uid), g) + uid
			for range 200 {
				if got, err := text.Render(NewRun(map[string]string{"uid": uid, "n": fmt.Sprint(g)})); err != nil || got != want {
					t.Errorf("tenant %s got %v, %v; want %s", uid, got, err, want)
					return
				}
			}
		})
	}
	group.Wait()
}

func TestVariables(t *testing.T) {
	for text, want := range map[string]map[string]bool{
		`{{ .a | default "x" }}{{ .b }}`:                                              {"a": false, "b": true},
		`{{ if .a }}{{ .a | upper }}{{ .b }}{{ end }}{{ $.c }}`:                       {"a": false, "b": true, "c": true},
		`{{ with .a }}{{ .b }}{{ $.c }}{{ end }}`:                                     {"a": false, "c": true},
		`{{ coalesce (.a | upper) .b "x" }}`:                                          {"a": true, "b": false},
		`{{ .a }}{{ .a | default "x" }}`:                                              {"a": true},
		`{{ define "t" }}{{ .b }}{{ end }}{{ template "t" .a }}`:                      {"a": false},
		`{{ if hasKey . "a" }}{{ .a }}{{ end }}`:                                      {"a": false},
		`{{ if and .a (eq .a "x") }}{{ .b }}{{ end }}`:                                {"a": false, "b": true},
		`{{ if and (hasKey . "a") (eq .a "x") (eq .b .a) }}x{{ end }}{{ eq .c "x" }}`: {"a": false, "b": true, "c": true},
		`none`: nil,
	} {
		parsed, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := parsed.Variables(); !reflect.DeepEqual(got, want) {
			t.Errorf("the variables of %s are %v, want %v", text, got, want)
		}
	}
}

// Whatever sprig and templates have is a function here, too, or has a reason.
func TestEveryFunctionIsThereOrRefused(t *testing.T) {
	names := strings.Fields("and or not eq ne lt le gt ge call html index slice js len print printf println urlquery toHost trunc63 sha1sum fromJson int float bool")
	for name := range sprig.TxtFuncMap() {
		names = append(names, name)
	}
	have := Functions()
	for _, name := range names {
		if slices.Contains(have, name) == (refused[name] != "") {
			t.Errorf("%s: there: %v, refused: %q", name, slices.Contains(have, name), refused[name])
		}
	}
}

// Data is written as it is, whatever it looks like.
func TestDataIsLiteral(t *testing.T) {
	hostile := []string{"{{ .uid }}", "}}", "{{", "\n---\nkind: ClusterRoleBinding\n", `${file("/etc/shadow")}`, `{"a":1}`, `"`, "'", ": x", "- x", "&a", "*a", "!!str", "\x00", "\u202e", "ü", "%s"}
	rapid.Check(t, func(t *rapid.T) {
		x := strings.ToValidUTF8(strings.Join(rapid.SliceOfN(rapid.OneOf(rapid.SampledFrom(hostile), rapid.String()), 0, 4).Draw(t, "x"), ""), "")
		for text, want := range map[string]string{
			"{{ .x }}": x, "<{{ .x }}>": "<" + x + ">", `{{ .x | default "d" }}`: orElse(x, "d"), "{{ upper .x }}": strings.ToUpper(x),
			`{{ with .x }}{{ . }}{{ end }}{{ .y }}`: x + x, `{{ range list .x .y }}{{ . }},{{ end }}`: x + "," + x + ",",
		} {
			if got, err := render(text, map[string]string{"x": x, "y": x}); err != nil || got != want {
				t.Fatalf("%s of %q is %q (%v)", text, x, got, err)
			}
		}
		if len(x) <= 63 && trunc63(x) != x {
			t.Fatalf("trunc63(%q) = %q", x, trunc63(x))
		}
		if cut := trunc63(x + x + x); len(cut) > 63 || !utf8.ValidString(cut) || !strings.HasPrefix(x+x+x, cut) {
			t.Fatalf("trunc63(%q) = %q", x+x+x, cut)
		}
	})
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func TestSchemasDecide(t *testing.T) {
	for name, tt := range map[string]struct {
		make func() (any, error)
		want any
	}{
		"an integer":              {func() (any, error) { return ToInteger(" 3\n") }, int64(3)},
		"an integer of a float":   {func() (any, error) { return ToInteger(3.0) }, int64(3)},
		"a fraction":              {func() (any, error) { return ToNumber("2.5") }, 2.5},
		"a whole number":          {func() (any, error) { return ToNumber("2") }, int64(2)},
		"a truth value":           {func() (any, error) { return ToBoolean("1") }, true},
		"the greatest":            {func() (any, error) { return ToInteger(fmt.Sprint(math.MaxInt64)) }, int64(math.MaxInt64)},
		"no integer":              {func() (any, error) { return ToInteger(2.5) }, nil},
		"no integer, too":         {func() (any, error) { return ToInteger(true) }, nil},
		"no number":               {func() (any, error) { return ToNumber("") }, nil},
		"no truth value":          {func() (any, error) { return ToBoolean("maybe") }, nil},
		"too great to be integer": {func() (any, error) { return ToInteger("92233720368547758070") }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tt.make()
			if tt.want == nil && err == nil || tt.want != nil && (err != nil || got != tt.want) {
				t.Errorf("got %v, %v; want %v", got, err, tt.want)
			}
		})
	}
}

func FuzzText(f *testing.F) {
	for _, s := range []string{"{{ .uid }}", "{{ .x | default (list 1 2) }}", "{{ with $x := .n }}{{ $x.y }}{{ end }}", `{{ define "a" }}{{ end }}`, "{{ (.uid).x }}", "{{ break }}", "{{ and }}", "{{ nil }}", "{{ .a.b.c | index }}", "{{ range $i, $e := . }}{{ break }}{{ end }}", "{{ block \"x\" . }}{{ end }}", "{{/* x */}}", "{{- -}}", "{{ $ }}", "{{ printf \"%*d\" 9999999 1 }}", "{{ \"x\".y }}", "{{ 1.x }}", "{{ ternary }}", "{{ int }}", "{{ dig \"a\" \"b\" \"c\" . }}"} {
		f.Add(s, "x")
	}
	f.Fuzz(func(t *testing.T, text, value string) {
		values := map[string]string{"uid": value, "n": "3"}
		begin := time.Now()
		first, err := render(text, values)
		if took := time.Since(begin); took > time.Minute {
			t.Errorf("%q takes %s", text, took)
		}
		again, err2 := render(text, values)
		if !reflect.DeepEqual(first, again) || fmt.Sprint(err) != fmt.Sprint(err2) {
			t.Errorf("%q is %#v (%v), then %#v (%v)", text, first, err, again, err2)
		}
	})
}
