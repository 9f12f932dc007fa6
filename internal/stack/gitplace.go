package stack

import (
	"net/url"
	"path"
	"strings"
)

// GitPlace is a file of a repository of git in which Terrier keeps a managed state.
type GitPlace struct {
	Repository string // a URL, or the name of a GitRepository in the namespace of the stack
	Branch     string // empty means GitBranch
	Path       string // with slashes; empty means that of GitPlace.In
	Secret     string `json:",omitempty"` // in the namespace of the stack; empty means that of the GitRepository

	Most int `json:"-"` // resources above which the stack is told that git is for small estates; zero means GitResources
}

// GitBranch is the branch of states. It is none that a source follows by default: each state
// that is stored would be a new revision of that source.
const GitBranch = "terrier-states"

// GitResources is how many resources a state in git may have before its stack is warned.
// Each apply stores the whole state once more, and git keeps all of them.
const GitResources = 200

// In returns the place with what its stack does not say: namespace and name are those of the
// state, as Backend.Suffix has it.
func (g GitPlace) In(namespace, name, workspace string) *GitPlace {
	if g.Branch == "" {
		g.Branch = GitBranch
	}
	if g.Path == "" {
		if workspace != "" && workspace != "default" {
			name += "." + workspace
		}
		g.Path = path.Join("states", namespace, name+".tfstate")
	}
	return &g
}

// Named reports whether Repository is the name of a GitRepository.
func (g GitPlace) Named() bool { return !strings.Contains(g.Repository, "://") }

// Bound is how many resources the state may have before the stack is warned.
func (g GitPlace) Bound() int {
	if g.Most > 0 {
		return g.Most
	}
	return GitResources
}

// gitPrefix begins the text of a place in git. No Secret is called so.
const gitPrefix = "git::"

// String is the place as the engine writes the address of a module in git, for people and
// for comparison. Namespace is that of the stack.
func (g GitPlace) String(namespace string) string {
	repository := g.Repository
	if g.Named() {
		repository = "GitRepository/" + namespace + "/" + g.Repository
	}
	return gitPrefix + repository + "//" + g.Path + "?ref=" + url.QueryEscape(g.Branch)
}

// Key is String for two stacks that spell one URL in two ways.
func (g GitPlace) Key(namespace string) string {
	u, err := url.Parse(g.Repository)
	if g.Named() || err != nil {
		return g.String(namespace)
	}
	g.Repository = "git://" + strings.ToLower(u.Hostname()) + "/" + strings.TrimSuffix(strings.Trim(path.Clean(u.Path), "/"), ".git")
	return g.String(namespace)
}

// PlaceInWords names the place of a managed state, as a version of the state or a reference
// has it, for people.
func PlaceInWords(place string) string {
	if strings.HasPrefix(place, gitPrefix) {
		return "the file " + place
	}
	return "the Secret " + place
}
