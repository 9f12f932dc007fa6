package workdir

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/terrier-iac/terrier/internal/fault"
)

// outputsOf makes the outputs of one stack, called net, out of JSON.
func outputsOf(object string) map[string]map[string]json.RawMessage {
	var m map[string]json.RawMessage
	if err := json.Unmarshal([]byte(object), &m); err != nil {
		panic(err)
	}
	return map[string]map[string]json.RawMessage{"net": m}
}

func TestValues(t *testing.T) {
	for name, tt := range map[string]struct{ values, outputs, want string }{
		"no template":              {`{"a":[1,true,null,"x"]}`, `{}`, `{"a":[1,true,null,"x"]}`},
		"text":                     {`{"a":"${{ .net.id }}-1"}`, `{"id":"vpc"}`, `{"a":"vpc-1"}`},
		"deep down":                {`{"a":[{"b":"${{ .net.id }}"}]}`, `{"id":"vpc"}`, `{"a":[{"b":"vpc"}]}`},
		"a quote and a newline":    {`{"a":"${{ .net.id }}"}`, `{"id":"x\",\n\"b\":\"y"}`, `{"a":"x\",\n\"b\":\"y"}`},
		"all digits":               {`{"n":12345678901234567890,"t":"${{ .net.n }}"}`, `{"n":12345678901234567891}`, `{"n":12345678901234567890,"t":"12345678901234567891"}`},
		"a comparison":             {`"${{ if gt .net.n 2 }}many${{ else }}few${{ end }}"`, `{"n":3}`, `"many"`},
		"an element":               {`"${{ index .net.l 1 }} ${{ len .net.l }}"`, `{"l":["a","b"]}`, `"b 2"`},
		"other braces":             {`"{{ .x }} ${y}"`, `{}`, `"{{ .x }} ${y}"`},
		"a loop":                   {`"${{ range $i, $e := .net.l }}${{ if $i }},${{ end }}${{ printf \"%03d-%s\" $i $e }}${{ end }}"`, `{"l":["a","b"]}`, `"000-a,001-b"`},
		"texts are made":           {`"${{ print .net.n | html | urlquery }}${{ println }}${{ js \"'\" }}"`, `{"n":3}`, `"3\n\\'"`},
		"an output is no template": {`"${{ .net.t }}"`, `{"t":"${{ .net.secret }}"}`, `"${{ .net.secret }}"`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Values(json.RawMessage(tt.values), outputsOf(tt.outputs))
			if err != nil || string(got) != tt.want {
				t.Errorf("Values() = %s, %v; want %s", got, err, tt.want)
			}
		})
	}
}

func TestValuesRefuses(t *testing.T) {
	for name, tt := range map[string]struct{ values, want string }{
		"a missing stack":     {`{"a":{"b":["${{ .other.id }}"]}}`, `"other"`},
		"a missing output":    {`{"a":{"b":["${{ .net.nope }}"]}}`, `"nope"`},
		"and says where":      {`{"a":{"b":["${{ .net.nope }}"]}}`, "values.a.b[0]"},
		"a broken template":   {`{"a":"${{ .net.id "}`, "values.a"},
		"an unknown function": {`"${{ env \"HOME\" }}"`, "env"},
		"output without end":  {`"${{ range .net.l }}${{ range $.net.l }}${{ range $.net.l }}${{ $.net.text }}${{ end }}${{ end }}${{ end }}"`, "more than 1 MiB"},
		"itself again":        {`"${{ define \"x\" }}${{ template \"x\" . }}${{ end }}${{ template \"x\" . }}"`, "does too much"},
		"no JSON":             {`{`, "reading values"},
		"two values":          {`{} {}`, "more than one"},
	} {
		t.Run(name, func(t *testing.T) {
			outputs := outputsOf(`{"id":"vpc","text":"` + strings.Repeat("x", 1000) + `","l":[1,2,3,4,5,6,7,8,9,10,11,12]}`)
			_, err := Values(json.RawMessage(tt.values), outputs)
			if fault.Of(err) != fault.Invalid || !strings.Contains(fmt.Sprint(err), tt.want) {
				t.Errorf("Values() error = %v, want Invalid with %q", err, tt.want)
			}
		})
	}
}

// TestTemplatesEnd runs templates that would not end, or would need more memory
// than there is.
func TestTemplatesEnd(t *testing.T) {
	r := strings.Repeat
	outputs := outputsOf(`{"text":"` + r("x", 1000) + `","l":[` + r("1,", 999) + `1]}`)
	for name, value := range map[string]string{
		"a loop over a number":    `${{ range 9223372036854775807 }}${{ end }}`,
		"loops in loops":          `${{ range $.net.l }}${{ range $.net.l }}${{ range $.net.l }}${{ end }}${{ end }}${{ end }}`,
		"a loop in a branch":      `${{ if true }}${{ with 1 }}${{ range 999999999 }}${{ end }}${{ end }}${{ end }}`,
		"a loop in the else":      `${{ if false }}${{ else }}${{ range 999999999 }}${{ end }}${{ end }}`,
		"a long round":            `${{ range 9999 }}${{ if or ` + r("(eq $.net.text 1) ", 500) + ` }}${{ end }}${{ end }}`,
		"templates twice each":    `${{ define "t0" }}${{ end }}` + doubling(60) + `${{ template "t60" }}`,
		"a wide number":           r(`${{ $x := printf "`+r("%999999d", 100)+`" 1 }}`, 1000),
		"a width from outside":    `${{ $x := printf "` + r("%[2]*[1]d", 5000) + `" 1 999999 }}`,
		"many numbers":            `${{ $x := printf "` + r("%[1]900d", 100_000) + `" 1 }}`,
		"the same text again":     `${{ $x := printf "` + r("%[1]s", 50_000) + `" .net.text }}`,
		"the same list again":     `${{ $x := print ` + r(".net.l ", 50_000) + ` }}`,
		"a text that doubles":     `${{ $x := "abcdefgh" }}` + r(`${{ $x = print $x $x }}`, 60),
		"quotes of quotes":        `${{ $x := "\\" }}` + r(`${{ $x = js $x }}`, 60),
		"a long way":              `${{ $x := printf "%100s" "" }}` + r(`${{ $x = print $x $x }}`, 12) + `${{ $x` + r(` | html`, 10_000) + ` }}`,
		"what is counted negated": `${{ spend -1000000000 }}${{ range 999999999 }}${{ spend -1000 }}${{ end }}`,
		"brackets":                `${{ ` + r("(", 200_000) + `1` + r(")", 200_000) + ` }}`,
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := json.Marshal(value)
			if err != nil {
				t.Fatal(err)
			}
			if _, err = Values(raw, outputs); fault.Of(err) != fault.Invalid {
				t.Errorf("Values() error = %.200v, want Invalid", err)
			}
		})
	}
	t.Run("many of them", func(t *testing.T) {
		raw := `[` + r(`"${{ range 900000 }}${{ end }}",`, 20_000) + `1]`
		if _, err := Values(json.RawMessage(raw), outputs); fault.Of(err) != fault.Invalid {
			t.Errorf("Values() error = %.200v, want Invalid", err)
		}
	})
}

// doubling is templates that each call the one before twice.
func doubling(n int) string {
	var b strings.Builder
	for i := 1; i <= n; i++ {
		fmt.Fprintf(&b, `${{ define "t%d" }}${{ template "t%d" }}${{ template "t%d" }}${{ end }}`, i, i-1, i-1)
	}
	return b.String()
}

func TestOutputsNeverChangeTheShapeOfValues(t *testing.T) {
	const values = `{"a":"${{ .net.x }}","b":["pre ${{ .net.x }} post",{"c":"${{ printf \"%q\" .net.x }}"}]}`
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.OneOf(rapid.String(), rapid.SampledFrom(hostileTexts)).Draw(t, "x")
		got, err := Values(json.RawMessage(values), map[string]map[string]json.RawMessage{"net": {"x": text(x)}})
		if err != nil {
			t.Fatal(err)
		}
		var shape struct {
			A string
			B [2]json.RawMessage
		}
		dec := json.NewDecoder(strings.NewReader(string(got)))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&shape); err != nil {
			t.Fatalf("%v in %s", err, got)
		}
		if want := strings.ToValidUTF8(x, "\ufffd"); shape.A != want {
			t.Fatalf("a = %q, want %q", shape.A, want)
		}
	})
}
