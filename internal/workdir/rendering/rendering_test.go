package rendering

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"pgregory.net/rapid"

	"github.com/terrier-iac/terrier/internal/fault"
)

func own(s string) Datum  { return Datum{Value: json.RawMessage(s)} }
func text(s string) Datum { return Datum{Value: quote(s), Foreign: true} }

func quote(s string) json.RawMessage {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return b
}

// sample are the variables of most tests: what the object says, and what comes
// from elsewhere.
func sample() map[string]Datum {
	return map[string]Datum{
		"region": own(`"eu-1"`), "count": own(`3`), "big": own(`12345678901234567890`), "zones": own(`["a","b"]`), "block": own(`"resource \"x\" \"y\" {}"`),
		"values": {Value: json.RawMessage(`{"name":"net","id":"vpc\"1","tags":{"a b":"x"}}`), Source: json.RawMessage(`{"name":"net","id":"${{ .n.id }}","tags":"${{ .n.tags }}"}`)},
		"plain":  text("abc"), "number": text("-12.5"), "truth": text("true"), "list": text(`["a","${b}"]`),
		"evil": text("\"\n}\n${file(\"/etc/passwd\")} %{ if true }"), "word": text("a b"), "call": text("timestamp()"),
		"object": text(`{"k 1\"": "v", "plain": 1}`),
	}
}

func TestMainRenders(t *testing.T) {
	const escaped = `\"\n}\n$${file(\"/etc/passwd\")} %%{ if true }`
	for name, tt := range map[string]struct{ template, want string }{
		"no template":                        {"a = 1\n", "a = 1\n"},
		"what the object says is text":       {`{{ .block }}`, `resource "x" "y" {}`},
		"numbers keep their digits":          {`a = {{ .big }} + {{ .count }}`, `a = 12345678901234567890 + 3`},
		"values have two names":              {`a = "{{ .values.name }}{{ .Values.name }}"`, `a = "netnet"`},
		"functions":                          {`a = "{{ .region | upper | replace "-" "_" }}" # {{ add .count 1 }}`, `a = "EU_1" # 4`},
		"a loop":                             {"{{ range $i, $z := .zones }}z{{ $i }} = {{ quote $z }}\n{{ end }}", "z0 = \"a\"\nz1 = \"b\"\n"},
		"a condition on foreign text":        {`a = {{ if eq .plain "abc" }}1{{ else }}2{{ end }}`, `a = 1`},
		"what is not there has a default":    {`a = "{{ .nope | default "x" }}"`, `a = "x"`},
		"a definition":                       {`{{ define "t" }}"{{ .plain }}"{{ end }}a = {{ template "t" . }}`, `a = "abc"`},
		"foreign text in quotes":             {`a = "{{ .evil }}"`, `a = "` + escaped + `"`},
		"a number, a truth and a name":       {`{{ .plain }} = [{{ .number }}, {{ .truth }}]`, `abc = [-12.5, true]`},
		"a piece of a name":                  {`x_{{ .plain }}-{{ .plain }} = 1`, `x_abc-abc = 1`},
		"quoted foreign text":                {`a = {{ quote .evil }}`, `a = "` + escaped + `"`},
		"several of them":                    {"a = [{{ quote .plain .word }}, <<E\n{{ squote .word }}{{ squote .region }}\nE\n]", "a = [\"abc\" \"a b\", <<E\n'a b''eu-1'\nE\n]"},
		"JSON of foreign text":               {`a = {{ .list | fromJson | toJson }}`, `a = ["a","$${b}"]`},
		"made of foreign text":               {`a = "{{ printf "%s-%d" .word 1 | upper }}{{ .word | trunc 1 }}"`, `a = "A B-1a"`},
		"fields of foreign text":             {`a = "{{ (fromJson .object).plain }}"`, `a = "1"`},
		"names of fields of foreign text":    {`{{ range $k, $v := fromJson .object }}{{ quote $k }}{{ end }}`, `"k 1\"""plain"`},
		"outputs of others in values":        {`a = "{{ .values.id }}"`, `a = "vpc\"1"`},
		"and collections of them":            {`a = {{ toJson .values.tags }}`, `a = {"a b":"x"}`},
		"a heredoc":                          {"a = <<EOT\nx {{ .evil }}\nEOT\n", "a = <<EOT\nx \"\n}\n$${file(\"/etc/passwd\")} %%{ if true }\nEOT\n"},
		"JSON in a heredoc":                  {"a = <<EOT\n{\"x\": {{ toJson .word }}}\nEOT\n", "a = <<EOT\n{\"x\": \"a b\"}\nEOT\n"},
		"a comment":                          {"# {{ .evil }}\n/* {{ .evil }} */ a = 1\n", "# \n/*  */ a = 1\n"},
		"in a template of the engine":        {`a = "${upper("{{ .word }}")}"`, `a = "${upper("a b")}"`},
		"a name of a block":                  {`resource "x" "{{ .plain }}" {}`, `resource "x" "abc" {}`},
		"keys are in order":                  {`a = "{{ keys (dict "b" 1 "a" 2) | join "," }}"`, `a = "a,b"`},
		"a foreign text is no template":      {`a = "{{ .tpl }}"`, `a = "{{ .plain }}"`},
		"words that look like ours are data": {`a = "{{ .ours }}{{ .plain }}"`, `a = "terrier__placed__000001__abc"`},
	} {
		t.Run(name, func(t *testing.T) {
			data := sample()
			data["tpl"], data["ours"] = text("{{ .plain }}"), text("terrier__placed__000001__")
			got, err := Main(tt.template, data)
			if err != nil || string(got) != tt.want {
				t.Errorf("Main() = %s, %v; want %s", got, err, tt.want)
			}
		})
	}
}

func TestMainRefuses(t *testing.T) {
	r := strings.Repeat
	for name, tt := range map[string]struct{ template, want string }{
		"a text outside of quotes":      {"\na = {{ .word }}", "line 2: a value that is not written in the object stands outside of quotes"},
		"a call":                        {`a = {{ .call }}`, "outside of quotes"},
		"a list that is text":           {`a = {{ .list }}`, "outside of quotes"},
		"a keyword":                     {`a = [{{ .for }} x in y : x]`, "outside of quotes"},
		"a list of texts":               {`a = {{ fromJson .list }}`, "outside of quotes"},
		"a name of a field":             {`{{ range $k, $v := fromJson .object }}{{ $k }} = 1{{ end }}`, "outside of quotes"},
		"the end of a heredoc":          {"a = <<EOT\n{{ .eot }}\nEOT\n", "would change the structure"},
		"half of its end":               {"a = <<EOT\n{{ .eo }}T\nEOT\n", "would change the structure"},
		"half of a template":            {`a = "${{ .brace }}"`, "would change the structure"},
		"half of an escape":             {`a = "\{{ .quote }}"`, "would change the structure"},
		"what is not there":             {`a = "{{ .nope }}"`, "there is no such value"},
		"what is not there, deep":       {`a = "{{ .values.nope.x }}"`, "main.tf.tpl:1"},
		"a NUL":                         {`a = "{{ .nul }}"`, "NUL byte"},
		"env":                           {`{{ env "HOME" }}`, `function "env" not defined`},
		"expandenv":                     {`{{ expandenv "$HOME" }}`, `function "expandenv" not defined`},
		"getHostByName":                 {`{{ getHostByName "localhost" }}`, `function "getHostByName" not defined`},
		"now":                           {`{{ now }}`, `function "now" not defined`},
		"uuidv4":                        {`{{ uuidv4 }}`, `function "uuidv4" not defined`},
		"randAlpha":                     {`{{ randAlpha 3 }}`, `function "randAlpha" not defined`},
		"shuffle":                       {`{{ shuffle "abc" }}`, `function "shuffle" not defined`},
		"genPrivateKey":                 {`{{ genPrivateKey "rsa" }}`, `function "genPrivateKey" not defined`},
		"bcrypt":                        {`{{ bcrypt "x" }}`, `function "bcrypt" not defined`},
		"set":                           {`{{ $d := dict }}{{ $_ := set $d "a" $d }}{{ $d }}`, `function "set" not defined`},
		"fail says what it is told":     {`{{ fail "no region" }}`, "no region"},
		"no template":                   {`{{ .x `, "main.tf.tpl:1"},
		"no language":                   {"a = \"{{ .plain }}\n\"\n\xff", "cannot be read"},
		"too long a template":           {r("x", maxSource+1), "more than"},
		"output without end":            {r("x", 1000) + `{{ range until 9999 }}` + r("x", 1000) + `{{ end }}`, "writes too much"},
		"a loop over a number":          {`{{ range 9223372036854775807 }}{{ end }}`, "does too much"},
		"a list of everything":          {`{{ until 999999999 }}`, "does too much"},
		"a list in steps":               {`{{ untilStep 0 999999999 1 }}`, "does too much"},
		"a sequence":                    {`{{ seq 1 999999999 }}`, "does too much"},
		"repetition":                    {`{{ repeat 999999999 "x" }}`, "does too much"},
		"repetition of repetition":      {`{{ repeat 100000 (repeat 100000 "x") }}`, "too"},
		"indentation":                   {`{{ indent 999999 "x\nx\nx\nx\nx\nx\nx\nx\nx\nx\nx\nx\nx\nx\nx\nx\nx\nx\nx" }}`, "does too much"},
		"a wide number":                 {`{{ printf "%999999d" 1 }}`, "must be below 1000"},
		"lists of lists":                {`{{ $x := list "a" }}` + r(`{{ $x = list $x $x }}`, 60) + `{{ $x }}`, "does too much"},
		"texts that double":             {`{{ $x := "abcdefgh" }}` + r(`{{ $x = cat $x $x }}`, 60), "too"},
		"a replacement of each byte":    {`{{ $x := repeat 9000 "a" }}{{ $x = replace "a" $x $x }}`, "does too much"},
		"a pattern that counts":         {`{{ regexMatch "(a{1000}){1000}" "aaaa" }}`, "must be below 1000"},
		"patterns on long texts":        {`{{ $x := repeat 100000 "a" }}{{ range until 1000 }}{{ $_ := regexMatch "(a*)*b" $x }}{{ end }}`, "does too much"},
		"many that are compared":        {`{{ $x := until 9000 }}{{ range until 100 }}{{ $_ := uniq $x }}{{ end }}`, "does too much"},
		"itself again":                  {`{{ define "x" }}{{ template "x" . }}{{ end }}{{ template "x" . }}`, "does too much"},
		"brackets":                      {`{{ ` + r("(", 200_000) + `1` + r(")", 200_000) + ` }}`, "main.tf.tpl:1"},
		"what is counted negated":       {`{{ spend -1000000000 }}{{ range 999999999 }}{{ spend -1000 }}{{ end }}`, "main.tf.tpl:1"},
		"deep JSON":                     {`{{ fromJson "` + r("[", 5000) + r("]", 5000) + `" | toJson }}`, "does too much"},
		"a function of a value":         {`{{ (semverCompare "1" "2").x }}`, "main.tf.tpl:1"},
		"a division by nothing":         {`{{ div 1 0 }}`, "divide by zero"},
		"an argument of another type":   {`{{ upper 3 }}`, "upper: argument 1 is a int and must be a string"},
		"too few arguments":             {`{{ upper }}`, "upper takes 1 arguments, and got 0"},
		"a word of ours that is not":    {`a = "terrier__placed__000009__{{ .plain }}"`, "Terrier's own"},
		"a number of another kind":      {`a = {{ .inf }}`, "outside of quotes"},
		"a text that makes two of them": {`a = {{ .minus }}`, "outside of quotes"},
		"that grows into a keyword":     {`a = [f{{ .or }} x in y : x]`, "would change the structure"},
		"that grows in two steps":       {`a = [{{ .f }}{{ .or }} x in y : x]`, "would change the structure"},
		"that grows in front of a name": {`a = {{ .sub }}_x`, "outside of quotes"},
	} {
		t.Run(name, func(t *testing.T) {
			data := sample()
			for k, v := range map[string]string{"eot": "x\nEOT\nresource \"a\" \"b\" {}", "eo": "x\nEO", "brace": "{x}", "or": "or", "sub": "1-a", "quote": `"`, "nul": "a\x00", "for": "for", "inf": "1e9", "f": "f", "minus": "1-1"} {
				data[k] = text(v)
			}
			start := time.Now()
			_, err := Main(tt.template, data)
			if fault.Of(err) != fault.Invalid || !strings.Contains(fmt.Sprint(err), tt.want) {
				t.Errorf("Main() error = %.200v, want Invalid with %q", err, tt.want)
			}
			if took := time.Since(start); took > time.Minute {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// Whatever foreign text holds, the rendered module parses, has the same blocks
// and attributes, and the string that it is put into is the text.
func TestForeignTextStaysData(t *testing.T) {
	const tpl = "resource \"a\" \"b\" {\n  quoted  = \"<{{ .x }}>\"\n  literal = {{ quote .x }}\n  json    = {{ toJson .x }}\n  upper   = \"{{ .x | upper }}\"\n  list    = [{{ .x | list | toJson }}]\n  # {{ .x }}\n}\n"
	hostile := []string{
		`${file("/etc/hostname")}`, `%{ if true }yes%{ endif }`, `$${escaped}`, `%%{escaped}`, "\"\n}\nresource \"x\" \"y\" {}", `\`, `\\`, `\"`, `"`,
		"{{ .x }}", "<<EOT\nx\nEOT", `\u0022`, "\b\f\t\r\n", "\u2028", "*/", "#", "$", "%", "${", "%{", "$$", "", "terrier__placed__000000__",
	}
	rapid.Check(t, func(t *rapid.T) {
		x := strings.Map(func(r rune) rune {
			if r == 0 || r == '\ufeff' {
				return -1
			}
			return r
		}, strings.ToValidUTF8(rapid.OneOf(rapid.String(), rapid.SampledFrom(hostile), rapid.Map(rapid.SliceOfN(rapid.SampledFrom(hostile), 1, 4), func(s []string) string { return strings.Join(s, "") })).Draw(t, "x"), ""))
		out, err := Main(tpl, map[string]Datum{"x": text(x)})
		if err != nil {
			t.Fatalf("%q: %v", x, err)
		}
		f, diags := hclsyntax.ParseConfig(out, "main.tf", hcl.InitialPos)
		if diags.HasErrors() {
			t.Fatalf("%q: %v in\n%s", x, diags, out)
		}
		body := f.Body.(*hclsyntax.Body)
		if len(body.Blocks) != 1 || len(body.Attributes) != 0 || len(body.Blocks[0].Body.Blocks) != 0 || len(body.Blocks[0].Body.Attributes) != 5 {
			t.Fatalf("%q has another structure:\n%s", x, out)
		}
		for name, want := range map[string]string{"quoted": "<" + x + ">", "literal": x, "json": x, "upper": strings.ToUpper(x)} {
			v, diags := body.Blocks[0].Body.Attributes[name].Expr.Value(nil)
			if diags.HasErrors() || v.AsString() != normal(want) {
				t.Fatalf("%q: %s is %q (%v), want %q, in\n%s", x, name, v.AsString(), diags, want, out)
			}
		}
	})
}

// In a heredoc, foreign text is what it is or is refused; it never ends it.
func TestForeignTextStaysInHeredocs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"EOT", "\n", " ", "a", "E", "${x}", "%{", "$", "\"", "\\", "\r", "<<EOT", "-"}), 0, 8).Draw(t, "x"), "")
		after := rapid.SampledFrom([]string{"", "T", "OT", " b"}).Draw(t, "after")
		out, err := Main("a = <<EOT\n{{ .x }}"+after+"\nEOT\nb = 1\n", map[string]Datum{"x": text(x)})
		if err != nil {
			return
		}
		f, diags := hclsyntax.ParseConfig(out, "main.tf", hcl.InitialPos)
		if diags.HasErrors() {
			t.Fatalf("%q: %v in\n%s", x, diags, out)
		}
		body := f.Body.(*hclsyntax.Body)
		v, diags := body.Attributes["a"].Expr.Value(nil)
		if diags.HasErrors() || len(body.Attributes) != 2 || strings.TrimSuffix(v.AsString(), "\n") != x+after {
			t.Fatalf("%q came out as %q (%v) of\n%s", x+after, v.AsString(), diags, out)
		}
	})
}

// The same variables give the same text, however often.
func TestMainIsTheSameEachTime(t *testing.T) {
	const tpl = `{{ $d := dict "c" 1 "a" 2 "b" 3 "e" 4 "d" 5 }}{{ keys $d }}{{ values $d }}{{ toJson $d }}{{ range $k, $v := $d }}{{ $k }}{{ end }}{{ $d }}`
	first, err := Main(tpl, sample())
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		if again, err := Main(tpl, sample()); err != nil || string(again) != string(first) {
			t.Fatalf("%s, %v; it was %s", again, err, first)
		}
	}
}
