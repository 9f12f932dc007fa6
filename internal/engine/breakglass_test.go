package engine

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/terrier-iac/terrier/internal/fault"
)

func TestBreakGlassArgs(t *testing.T) {
	o := BreakGlassOptions{VarFiles: VarFiles{Files: []string{"env/a.tfvars"}, Tree: "../"}, NoLock: true}
	for typed, want := range map[string]string{
		"state list":                      "state list -no-color",
		"state list -id=i-1 module.a":     "state list -no-color -id=i-1 -- module.a",
		"state show --  x":                "",
		"state show a.b":                  "state show -no-color -- a.b",
		"state mv a.b a.c":                "state mv -no-color -lock=false -- a.b a.c",
		"state rm --dry-run a.b":          "state rm -no-color -lock=false -dry-run -- a.b",
		`import a.b["x"] i-1`:             `import -no-color -input=false -lock=false -var-file=../env/a.tfvars -- a.b["x"] i-1`,
		"taint a.b":                       "taint -no-color -lock=false -- a.b",
		"output -json":                    "output -no-color -json",
		"output -raw name":                "output -no-color -raw -- name",
		"providers":                       "providers -no-color",
		"validate":                        "validate -no-color",
		"graph -type=plan":                "graph -no-color -type=plan",
		"plan -target=a.b -refresh=false": "plan -no-color -input=false -lock=false -var-file=../env/a.tfvars -target=a.b -refresh=false",
		"":                                "",
		"apply":                           "",
		"console":                         "",
		"state push x":                    "",
		"state pull":                      "",
		"state replace-provider a b":      "",
		"providers mirror /":              "",
		"workspace delete x":              "",
		"init":                            "",
		"plan -out=x":                     "",
		"plan -var=a=b":                   "",
		"plan -refresh":                   "",
		"plan -target":                    "",
		"plan -destroy=true":              "",
		"graph -plan=/etc/passwd":         "",
		"graph -type=shell":               "",
		"state list -state=/etc/passwd":   "",
		"state mv -state-out=x a.b a.c":   "",
		"state rm":                        "",
		"state mv a.b":                    "",
		"state mv a.b a.c a.d":            "",
		"state rm a.b -dry-run":           "",
		"import a.b -config=x":            "",
		"import -config=x a.b i-1":        "",
		"taint -allow-missing":            "",
		"output ../x":                     "",
		"validate -var-file=x":            "",
		"-chdir=/ state list":             "",
	} {
		t.Run(typed, func(t *testing.T) {
			got, err := BreakGlassArgs(strings.Fields(typed), o)
			if (err == nil) != (want != "") || err != nil && fault.Of(err) != fault.Invalid {
				t.Fatalf("BreakGlassArgs() = %q, %v", got, err)
			}
			if diff := cmp.Diff(strings.Join(got, " "), want); diff != "" {
				t.Errorf("arguments (-got +want):\n%s", diff)
			}
		})
	}
}

// Whatever is typed, what comes out begins as the command does, and nothing
// that was not listed is an option.
func TestNothingTypedBecomesAnotherOption(t *testing.T) {
	words := []string{"state", "list", "rm", "plan", "import", "-x", "--", "-", "a.b", "-target=a.b", "-target=-x", "-out=x", "a b", "a\n-x", "-dry-run", "-lock=true", "-state=x", "=", "-json", "output"}
	known := map[string]bool{}
	for _, c := range breakGlassCommands() {
		for f := range c.flags {
			known[f] = true
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		typed := rapid.SliceOfN(rapid.SampledFrom(words), 0, 6).Draw(t, "typed")
		got, err := BreakGlassArgs(typed, BreakGlassOptions{})
		if err != nil {
			return
		}
		for i, a := range got {
			if a == "--" {
				break
			}
			name, _, _ := strings.Cut(strings.TrimLeft(a, "-"), "=")
			if strings.HasPrefix(a, "-") && !known[name] && name != "no-color" && name != "input" {
				t.Fatalf("%q: argument %d of %q is an option that is not listed", typed, i, got)
			}
		}
	})
}
