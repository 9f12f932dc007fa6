package module

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"pgregory.net/rapid"

	"github.com/terrier-iac/terrier/internal/fault"
)

func TestRepair(t *testing.T) {
	tests := map[string]struct {
		src, want string
		found     []OneLine
		err       string // part of it
	}{
		"two arguments": {
			src:   "variable \"x\" { type = string sensitive = true }\n",
			want:  "variable \"x\" {\n type = string\n sensitive = true\n }\n",
			found: []OneLine{{1, `variable "x"`}},
		},
		"a block of a block": {
			src:   "a {\n  b = 1\n  c d { e = f(1, 2) g = { h = 1 } i = [for j in k : l] }\n}",
			want:  "a {\n  b = 1\n  c d {\n e = f(1, 2)\n g = { h = 1 }\n i = [for j in k : l]\n }\n}",
			found: []OneLine{{3, "c d"}},
		},
		"strings that look like arguments": {
			src:   `output "x" { value = "a = 1 b = ${c ? "} d = 2" : e}" sensitive = true } # f = 1 g = 2`,
			want:  "output \"x\" {\n value = \"a = 1 b = ${c ? \"} d = 2\" : e}\"\n sensitive = true\n } # f = 1 g = 2",
			found: []OneLine{{1, `output "x"`}},
		},
		"comments stay": {
			src:   "a {/* b = 1 c = 2 */ d = 1 /* e */ f = 2 /* g */}\r\n",
			want:  "a {/* b = 1 c = 2 */\n d = 1 /* e */\n f = 2 /* g */\n}\r\n",
			found: []OneLine{{1, "a"}},
		},
		"not a block of one line":  {src: "a { b = 1\n c = 2 }\n", want: "a { b = 1\n c = 2 }\n"},
		"commas":                   {src: "a { b = 1, c = 2 }\n", err: "main.tf:1: Unexpected comma after argument"},
		"text of a heredoc":        {src: "a = <<EOT\nb { c = 1 d = 2 }\nEOT\n", want: "a = <<EOT\nb { c = 1 d = 2 }\nEOT\n"},
		"arguments with no block":  {src: "a {\n b = 1 c = { d = 1, e = 2 }\n}\n", want: "a {\n b = 1 c = { d = 1, e = 2 }\n}\n"},
		"no configuration at all":  {src: "{ = = }\n", want: "{ = = }\n"},
		"a block that never ends":  {src: "a { b = 1 c = 2\nd { e = 1 f = {} \n", want: "a { b = 1 c = 2\nd { e = 1 f = {} \n"},
		"what is wrong beside it":  {src: "a { b = 1 c = 2 }\nd { e = 1 f = 2 }\n\ng = 1 h = 2\n", err: "main.tf:4: Missing newline after argument"},
		"a block within the block": {src: "a { b = 1 c = 2 d { e = 1 } }\n", err: "main.tf:1: "},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, found, err := Repair("main.tf", tt.src)
			if tt.err != "" {
				if fault.Of(err) != fault.Invalid || !strings.HasPrefix(err.Error(), tt.err) {
					t.Fatalf("Repair() fails with %v, want an Invalid error: %s", err, tt.err)
				}
				return
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
				t.Errorf("Repair() fails with %v, and (-want +got):\n%s", err, diff)
			}
			if diff := cmp.Diff(tt.found, found); diff != "" {
				t.Errorf("what was found (-want +got):\n%s", diff)
			}
		})
	}
}

// The guide's eight bodies have eight such blocks, and nothing else that HCL
// refuses.
func TestRepairOfTheGuide(t *testing.T) {
	want := map[string][]string{
		"tenant-with-kafka":       {`variable "kafka_password"`},
		"tenant-with-rabbitmq":    {`variable "rabbitmq_admin_password"`, `output "password"`},
		"tenant-with-pg-schema":   {`variable "pg_port"`, `variable "pg_admin_password"`, `output "db_password"`},
		"enterprise-tenant-stack": {`output "db_password"`, `output "iam_secret_access_key"`},
	}
	files, err := filepath.Glob("../../tenant/testdata/seed/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	bodies := 0
	for _, file := range files {
		src := inlineOf(t, file)
		if src == "" {
			continue
		}
		bodies++
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		got, found, err := Repair("main.tf", src)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var blocks []string
		lines := strings.Split(src, "\n")
		for _, o := range found {
			blocks = append(blocks, o.Block)
			if !strings.HasPrefix(lines[o.Line-1], o.Block) {
				t.Errorf("%s: %s is not in line %d: %s", name, o.Block, o.Line, lines[o.Line-1])
			}
		}
		if diff := cmp.Diff(want[name], blocks); diff != "" {
			t.Errorf("%s: repaired blocks (-want +got):\n%s", name, diff)
		}
		if _, diags := hclsyntax.ParseConfig([]byte(got), "main.tf", hcl.InitialPos); diags.HasErrors() {
			t.Errorf("%s: the repaired text is refused: %v", name, diags)
		}
	}
	if bodies != 8 {
		t.Errorf("there are %d bodies, want the guide's 8", bodies)
	}
}

// inlineOf cuts the text under values.hcl out of a manifest.
func inlineOf(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, body, ok := strings.Cut(string(text), "hcl: |\n")
	if !ok {
		return ""
	}
	indent := len(before) - len(strings.TrimRight(before, " ")) + 2
	var b strings.Builder
	for line := range strings.Lines(body) {
		cut, ok := strings.CutPrefix(line, strings.Repeat(" ", indent))
		if !ok && strings.TrimSpace(line) != "" {
			break
		}
		if !ok {
			cut = "\n"
		}
		b.WriteString(cut)
	}
	return b.String()
}

// expressions are drawn from, the more telling the better.
func expressions() *rapid.Generator[string] {
	leaf := rapid.SampledFrom([]string{
		"1", "true", "var.a", "a.b.c", `"text"`, `"a = 1 b = 2"`, `"${a ? "}" : "{"}"`, `"{{ .uid }} { c = 1 d = 2 }"`,
		"x == y", "x >= 1 ? y : z", "list(string)", "{ a = 1, b = 2 }", "{ a : 1 }", "{}", "[1, 2]", "[for a in b : a if a != c]",
		"{ for k, v in m : k => v }", "f(x, { y = 1 }...)", "a[*].b", `"%{ if a }b = 1%{ endif }"`, "-1", "!x", "/* c = 1 } */ 2",
	})
	return rapid.Custom(func(t *rapid.T) string {
		e := leaf.Draw(t, "leaf")
		if rapid.Bool().Draw(t, "nested") {
			e = fmt.Sprintf(rapid.SampledFrom([]string{"[%s]", "{ k = %s }", "f(%s)", "(%s)"}).Draw(t, "in"), e)
		}
		return e
	})
}

// bodyOf draws a body. With spoiled blocks it is what people write, else what
// HCL accepts.
func bodyOf(t *rapid.T, spoiled bool, depth int) string {
	var b strings.Builder
	arg := func(i int) string { return fmt.Sprintf("a%d = %s", i, expressions().Draw(t, "value")) }
	for i := range rapid.IntRange(0, 4).Draw(t, "items") {
		head := rapid.SampledFrom([]string{"b", `b "l"`, "b l", `variable "x" "y"`}).Draw(t, "head")
		switch kind := rapid.IntRange(0, 5).Draw(t, "kind"); {
		case kind == 0:
			b.WriteString(arg(i) + "\n")
		case kind == 1:
			b.WriteString("# c { d = 1 e = 2 }\n")
		case kind == 2:
			fmt.Fprintf(&b, "a%d = <<-EOT\n  b { c = 1 d = 2 }\n  EOT\n", i)
		case kind == 3 && depth > 0:
			b.WriteString(head + " {\n" + bodyOf(t, spoiled, depth-1) + "}\n")
		case kind == 4 && spoiled:
			b.WriteString(head + " { " + arg(0) + " " + arg(1) + rapid.SampledFrom([]string{"", " ", " /* c */ "}).Draw(t, "end") + "}\n")
		default:
			b.WriteString(head + " { " + arg(0) + " } // d = 1 { e = 2 }\n")
		}
	}
	return b.String()
}

func TestRepairChangesNothingThatHCLAccepts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		src := bodyOf(t, false, 2)
		if _, diags := hclsyntax.ParseConfig([]byte(src), "main.tf", hcl.InitialPos); diags.HasErrors() {
			t.Fatalf("the test writes what HCL refuses: %v\n%s", diags, src)
		}
		// Without asking HCL first, too: what it accepts has nothing to break.
		tokens, _ := hclsyntax.LexConfig([]byte(src), "main.tf", hcl.InitialPos)
		b := breaker{src: []byte(src), tokens: tokens}
		if b.body(); len(b.breaks) > 0 {
			t.Errorf("%v would be broken in\n%s", b.found, src)
		}
		if got, found, err := Repair("main.tf", src); got != src || found != nil || err != nil {
			t.Errorf("Repair() = %q, %v, %v", got, found, err)
		}
	})
}

func TestRepairInsertsLineBreaksAndNothingElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		src := bodyOf(t, true, 2)
		got, found, err := Repair("main.tf", src)
		if err != nil {
			t.Fatalf("%v\n%s", err, src)
		}
		if _, diags := hclsyntax.ParseConfig([]byte(got), "main.tf", hcl.InitialPos); diags.HasErrors() {
			t.Errorf("HCL still refuses: %v\n%s", diags, got)
		}
		if a, b := strings.ReplaceAll(src, "\n", ""), strings.ReplaceAll(got, "\n", ""); a != b {
			t.Errorf("more than line breaks changed:\n%s", cmp.Diff(src, got))
		}
		if again, more, err := Repair("main.tf", got); again != got || more != nil || err != nil {
			t.Errorf("a second repair finds %v, %v", more, err)
		}
		if (len(found) == 0) != (got == src) {
			t.Errorf("found %v, changed %t", found, got != src)
		}
	})
}
