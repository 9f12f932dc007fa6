package source

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/fault"
)

func TestIgnoreRules(t *testing.T) {
	text := func(s string) *string { return &s }
	files := map[string]string{
		"main.tf": "", "logo.png": "", "lambda.zip": "", ".gitignore": "", ".git/config": "", ".github/ci.yml": "",
		"deploy/main.tf": "", "deploy/readme.md": "", "deploy/deep/notes.md": "", "app/.sops.yaml": "",
	}
	for name, tt := range map[string]struct {
		inTree map[string]string
		own    *string
		kept   []string
	}{
		"by default":                         {nil, nil, []string{"main.tf", "deploy/main.tf", "deploy/readme.md", "deploy/deep/notes.md"}},
		"version control is always excluded": {nil, text("nothing\n"), []string{"main.tf", "logo.png", "lambda.zip", ".github/ci.yml", "deploy/main.tf", "deploy/readme.md", "deploy/deep/notes.md", "app/.sops.yaml"}},
		"all but one directory, less some":   {nil, text("# all\n/*\n!/deploy\n/deploy/**/*.md\n"), []string{"deploy/main.tf"}},
		"a file in the tree":                 {map[string]string{".sourceignore": "*.md\r\n*.png\n"}, nil, []string{"main.tf", "lambda.zip", ".github/ci.yml", "deploy/main.tf", "app/.sops.yaml", ".sourceignore"}},
		"a file further down counts there":   {map[string]string{"deploy/.sourceignore": "main.tf\n"}, nil, []string{"main.tf", "logo.png", "lambda.zip", ".github/ci.yml", "deploy/readme.md", "deploy/deep/notes.md", "app/.sops.yaml", "deploy/.sourceignore"}},
		"one's own rules come last":          {map[string]string{".sourceignore": "deploy/\n"}, text("!/deploy/\n*.md\n*.png\n*.zip\n.*\n"), []string{"main.tf", "deploy/main.tf"}},
	} {
		t.Run(name, func(t *testing.T) {
			all := map[string]string{}
			for _, m := range []map[string]string{files, tt.inTree} {
				for name, content := range m {
					all[name] = content
				}
			}
			skip, err := sourceRules(tt.own).load(plant(t, all))
			if err != nil {
				t.Fatal(err)
			}
			got, want := map[string]bool{}, map[string]bool{}
			for name := range all {
				if !skip(name, false) {
					got[name] = true
				}
			}
			for _, name := range tt.kept {
				want[name] = true
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("what is kept differs (-want +got):\n%s", diff)
			}
		})
	}
}

// Rules are bounded: a repository of some kilobytes may have one file with many of them in each
// of thousands of directories. None of them is passed over in silence, which would let a file in
// that a rule leaves out.
func TestIgnoreRulesAreBounded(t *testing.T) {
	rules := func(n int) string { return strings.Repeat("a\n", n) }
	everywhere := map[string]string{}
	for i := range 11 {
		everywhere[fmt.Sprintf("%d/.sourceignore", i)] = rules(mostRules / 10)
	}
	own := rules(mostRules)
	for name, tt := range map[string]struct {
		files map[string]string
		own   *string
		want  string
	}{
		"as many as there may be":            {map[string]string{".sourceignore": rules(mostRules)}, nil, ""},
		"too many in one file":               {map[string]string{".sourceignore": rules(mostRules + 1)}, nil, "more than 5000 rules"},
		"too many in many directories":       {everywhere, nil, "more than 5000 rules"},
		"too many with those of the source":  {map[string]string{".sourceignore": "b\n"}, &own, "more than 5000 rules"},
		"a comment that hides the last rule": {map[string]string{".sourceignore": strings.Repeat("# comment\n", ignoreBytes/10+1) + "secret\n"}, nil, "more than 1024 KiB"},
	} {
		_, err := sourceRules(tt.own).load(plant(t, tt.files))
		if (err == nil) != (tt.want == "") || err != nil && (fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: the error is %v, want %q", name, err, tt.want)
		}
	}
	dir := plant(t, map[string]string{"main.tf": ""})
	for n, want := range map[int]fault.Kind{mostRules: fault.None, mostRules + 1: fault.Invalid} {
		if err := os.WriteFile(filepath.Join(dir, ModuleIgnore), []byte(rules(n)), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenModule(dir, nil); fault.Of(err) != want {
			t.Errorf("OpenModule() with %d patterns = %v, want an error of the kind %q", n, err, want)
		}
	}
}
