package module

import (
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/fault"
)

func TestIsCalled(t *testing.T) {
	for name, want := range map[string]bool{
		"main.tf": true, "main.tofu": true, "main.tf.json": true, "modules/subnet/main.tf": true, "modules/a/b/x.tofu.json": true,
		"README.md": false, "examples/basic/main.tf": false, "tests/fixture/main.tf": false, "modules.tf": true, "modules/notes.md": false, "internal/main.tf": false, ".main.tf": false,
	} {
		if got := IsCalled(name); got != want {
			t.Errorf("IsCalled(%q) = %t, want %t", name, got, want)
		}
	}
}

func TestCheck(t *testing.T) {
	for name, tt := range map[string]struct{ file, src, says string }{
		"good":                      {"main.tf", "variable \"a\" {}\nephemeral \"x\" \"y\" {}\nfuture \"block\" {}\n", ""},
		"good JSON":                 {"main.tf.json", `{"output":{"a":{"value":1}}}`, ""},
		"an argument without value": {"modules/a/main.tf", "variable \"x\" {\n  type =\n}\n", "modules/a/main.tf:2: "},
		"a block without its name":  {"main.tf", "variable {\n}\n", "main.tf:1: Missing name for variable"},
		"JSON that is cut off":      {"x.tf.json", "{\n\"output\":", "x.tf.json:2: "},
		"nested brackets":           {"main.tf", "locals { x = " + strings.Repeat("[", 50_000), "nested more than"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Check(tt.file, []byte(tt.src))
			if tt.says == "" {
				if err != nil {
					t.Errorf("Check() = %v, want nil", err)
				}
				return
			}
			if fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("Check() = %v, want an Invalid fault that says %q", err, tt.says)
			}
		})
	}
}
