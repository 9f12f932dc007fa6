package source

import (
	"testing"

	"github.com/google/go-cmp/cmp"
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
