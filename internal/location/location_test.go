package location

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestGitURLsAreReadInAllTheirForms(t *testing.T) {
	for text, want := range map[string]Git{
		// as the design of Alustan writes them
		"git@github.com:example/terraform-repo/terraform":     {"ssh://git@github.com/example/terraform-repo", "terraform", false},
		"https://github.com/example/terraform-repo/terraform": {"https://github.com/example/terraform-repo", "terraform", false},

		"https://github.com/example/repo":                 {"https://github.com/example/repo", "", false},
		"https://github.com/example/repo/":                {"https://github.com/example/repo", "", false},
		"https://github.com/example/repo.git":             {"https://github.com/example/repo.git", "", false},
		"https://github.com/example/repo.git/a/b":         {"https://github.com/example/repo.git", "a/b", false},
		"https://git.example/group/sub/repo//modules/net": {"https://git.example/group/sub/repo", "modules/net", false},
		"https://git.example/group/repo//":                {"https://git.example/group/repo", "", false},
		"https://git.example/group/repo//a//b/":           {"https://git.example/group/repo", "a/b", false},
		"https://git.example/group/sub/repo/terraform":    {"https://git.example/group/sub/repo/terraform", "", true},
		"https://git.example/repo":                        {"https://git.example/repo", "", false},
		"https://gitlab.com/group/sub/repo/terraform":     {"https://gitlab.com/group/sub/repo/terraform", "", true},
		"https://dev.azure.com/org/project/_git/repo/net": {"https://dev.azure.com/org/project/_git/repo", "net", false},
		"https://git.example/a%20b/repo.git":              {"https://git.example/a%20b/repo.git", "", false},
		"http://git.example:8080/repo.git/net":            {"http://git.example:8080/repo.git", "net", false},

		"ssh://git@git.example:2222/team/repo/net":  {"ssh://git@git.example:2222/team/repo/net", "", true},
		"ssh://git.example/team/repo.git":           {"ssh://git.example/team/repo.git", "", false},
		"git@gitlab.com:group/repo/net":             {"ssh://git@gitlab.com/group/repo/net", "", true},
		"git@git.example:repo.git":                  {"ssh://git@git.example/./repo.git", "", false},
		"git@git.example:team/repo/net":             {"ssh://git@git.example/./team/repo/net", "", true},
		"git@git.example:team/repo//net":            {"ssh://git@git.example/./team/repo", "net", false},
		"git@git.example:/srv/git/repo.git":         {"ssh://git@git.example/srv/git/repo.git", "", false},
		"git@git.example:~ada/repo.git":             {"ssh://git@git.example/~ada/repo.git", "", false},
		"git.example:team/repo.git":                 {"ssh://git.example/./team/repo.git", "", false},
		"git@[2001:db8::1]:team/repo.git":           {"ssh://git@[2001:db8::1]/./team/repo.git", "", false},
		"org-1234@github.com:example/repo.git/a":    {"ssh://org-1234@github.com/example/repo.git", "a", false},
		"ssh://git@git.example/./team/repo.git/net": {"ssh://git@git.example/./team/repo.git", "net", false},
	} {
		got, err := ParseGit(text)
		if err != nil || got != want {
			t.Errorf("ParseGit(%q) = %+v, %v, want %+v", text, got, err, want)
		}
		again, err := ParseGit(got.Repository)
		if err != nil || again.Repository != got.Repository {
			t.Errorf("ParseGit(%q) = %+v, %v, want what it was read from", got.Repository, again, err)
		}
	}
}

func TestGitURLsThatNameNoRepositoryAreRefused(t *testing.T) {
	for name, text := range map[string]string{
		"empty":                      "",
		"a word":                     "repository",
		"no host":                    "https:///repo",
		"no path":                    "https://git.example/",
		"a scheme of a module":       "git::https://git.example/repo",
		"a file":                     "file:///srv/git/repo.git",
		"another scheme":             "git://git.example/repo.git",
		"a query":                    "https://git.example/repo?ref=main",
		"a password":                 "https://ada:hunter2@git.example/repo",
		"a user of https":            "https://hunter2@git.example/repo",
		"a password of ssh":          "ssh://git:hunter2@git.example/repo",
		"ssh with a path for a port": "ssh://git@git.example:team/repo",
		"a way out":                  "https://git.example/team/repo//../../etc",
		"a way out of a path":        "git@git.example:team/../repo",
		"a line":                     "git@git.example:repo\n-oProxyCommand=x",
		"an option for a host":       "-oProxyCommand=x:repo",
		"half a repository":          "https://github.com/example",
		"too deep":                   "https://git.example/1/2/3/4/5/6/7/8/9",
	} {
		got, err := ParseGit(text)
		if err == nil {
			t.Errorf("ParseGit(%s) = %+v, want an error", name, got)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("ParseGit(%s) = %v, which shows a password", name, err)
		}
	}
}

func TestSplitsBeginWithTheLongestRepository(t *testing.T) {
	for text, want := range map[string][]Git{
		"https://git.example/repo.git": {{"https://git.example/repo.git", "", false}},
		"https://git.example/team/repo/net": {
			{"https://git.example/team/repo/net", "", false},
			{"https://git.example/team/repo", "net", false},
			{"https://git.example/team", "repo/net", false},
		},
		"git@gitlab.com:group/repo/net": {
			{"ssh://git@gitlab.com/group/repo/net", "", false},
			{"ssh://git@gitlab.com/group/repo", "net", false},
		},
		"git@git.example:repo/net": {
			{"ssh://git@git.example/./repo/net", "", false},
			{"ssh://git@git.example/./repo", "net", false},
		},
		"git@git.example:~ada/repo/net": {
			{"ssh://git@git.example/~ada/repo/net", "", false},
			{"ssh://git@git.example/~ada/repo", "net", false},
		},
	} {
		g, err := ParseGit(text)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, g.Splits()); diff != "" {
			t.Errorf("splits of %q (-want +got):\n%s", text, diff)
		}
	}
}

// FuzzParseGit: what was read is a URL that reads the same again, and no directory
// leads out of the repository.
func FuzzParseGit(f *testing.F) {
	for _, seed := range []string{"git@github.com:example/terraform-repo/terraform", "https://git.example/a/b//c", "ssh://git@git.example/./x/y", "h:p", "a@[::1]:~b/c.git/d"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		g, err := ParseGit(text)
		if err != nil {
			return
		}
		for _, s := range append(g.Splits(), g) {
			if again, err := ParseGit(s.Repository); err != nil || s.Search && again.Repository != s.Repository {
				t.Errorf("ParseGit(%q) gives %q, which reads as %+v, %v", text, s.Repository, again, err)
			}
			for _, part := range strings.Split(s.Directory, "/") {
				if part == ".." || part == "." {
					t.Errorf("ParseGit(%q) gives the directory %q", text, s.Directory)
				}
			}
		}
	})
}

func TestGitHost(t *testing.T) {
	for text, want := range map[string]string{
		"https://git.example.com/team/code":             "git.example.com",
		"https://git.example.com:8443/team/code.git//a": "git.example.com:8443",
		"git@git.example.com:team/code.git":             "git.example.com",
		"https://git.example.com":                       "",
	} {
		if got, err := GitHost(text); got != want || (err == nil) != (want != "") {
			t.Errorf("GitHost(%s) = %q, %v, want %q", text, got, err, want)
		}
	}
}
