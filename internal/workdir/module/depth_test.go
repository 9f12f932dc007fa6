package module

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/terrier-iac/terrier/internal/fault"
)

// deep nests in every way that there is. A few levels more and, without the
// check, each of them would end
// the whole process, and no test could say so.
func deep(n int) map[string]string {
	r := strings.Repeat
	return map[string]string{
		"parentheses":  "locals {\n  x = " + r("(", n) + "1" + r(")", n) + "\n}\n",
		"lists":        "locals {\n  x = " + r("[", n) + r("]", n) + "\n}\n",
		"never closed": "locals {\n  x = " + r("[", n),
		"objects":      "locals {\n  x = " + r("{a=", n) + "1" + r("}", n) + "\n}\n",
		"blocks":       r("a {\n", n) + r("}\n", n),
		"negations":    "locals {\n  x = " + r("!", n) + "true\n}\n",
		"minus":        "locals {\n  x = (" + r("-\n", n) + "1)\n}\n",
		"sums":         "terraform {\n  required_version = 1" + r("+1", n) + "\n}\n",
		"conditions":   "locals {\n  x = " + r("true ? 1 : ", n) + "1\n}\n",
		"calls":        "locals {\n  x = " + r("f(", n) + r(")", n) + "\n}\n",
		"indices":      "locals {\n  x = a" + r("[a", n) + r("]", n) + "\n}\n",
		"a long path":  "locals {\n  x = a" + r("[b]", n) + "\n}\n",
		"strings":      "locals {\n  x = " + r(`"${`, n) + "1" + r(`}"`, n) + "\n}\n",
		"directives":   "locals {\n  x = \"" + r("%{if true}", n) + r("%{endif}", n) + "\"\n}\n",
		"heredoc":      "locals {\n  x = <<EOT\n" + r("%{for a in b}", n) + r("%{endfor}", n) + "\nEOT\n}\n",
	}
}

func TestDeepNestingIsRefused(t *testing.T) {
	for name, src := range deep(5 * maxDepth) {
		_, err := Inspect(fstest.MapFS{"main.tf": {Data: []byte(src)}}, "", "tofu")
		if fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), "main.tf") {
			t.Errorf("%s: got %.200v, want an Invalid error that names the file", name, err)
		}
		backend := "backend \"s3\" {\n" + src + "\n}"
		if _, err := BackendFile(Custom{HCL: backend}); fault.Of(err) != fault.Invalid {
			t.Errorf("%s: as a custom backend: got %.200v, want an Invalid error", name, err)
		}
	}
	n := 5 * maxDepth
	for name, src := range map[string]string{
		"lists":     `{"locals":{"x":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}}`,
		"objects":   strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n),
		"templates": `{"terraform":{"required_version":"${` + strings.Repeat("(", n) + "1" + strings.Repeat(")", n) + `}"}}`,
	} {
		_, err := Inspect(fstest.MapFS{"main.tf.json": {Data: []byte(src)}}, "", "tofu")
		if fault.Of(err) != fault.Invalid {
			t.Errorf("JSON, %s: got %.200v, want an Invalid error", name, err)
		}
	}
}

// TestLongIsNotDeep takes what is large and ordinary.
func TestLongIsNotDeep(t *testing.T) {
	n := 3 * maxDepth
	long := "locals {\n" + strings.Repeat("  x = [1 + 2, -3, \"a${b.c[0]}d\", { e = !f }] # g\n", n) + "}\n" +
		strings.Repeat("resource \"a\" \"b\" {\n  c = d == e ? f : g\n}\n", n) +
		"locals {\n  y = <<EOT\n" + strings.Repeat("a ${b} - c\n", n) + "EOT\n  z = [\n" + strings.Repeat("    (-1),\n", n) + "  ]\n}\n"
	if err := checkDepth("main.tf", []byte(long)); err != nil {
		t.Errorf("a long configuration is refused: %v", err)
	}
	for name, src := range deep(300) {
		if err := checkDepth("main.tf", []byte(src)); err != nil {
			t.Errorf("%s, 300 deep: %v", name, err)
		}
	}
}
