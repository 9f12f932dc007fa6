package backend

import (
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/terrier-iac/terrier/internal/stack"
)

// Git is the backend of states that Terrier keeps in a repository of git. The run has the
// state as any managed one, and no credential for the repository.
const Git = "git"

// gitCredentials is where those of a repository are, for messages.
const gitCredentials = "Credentials are in a Secret: name it with secretRef"

// inGit reads the settings of a state in git.
func inGit(settings map[string]string) (*stack.GitPlace, error) {
	v, err := read(Request{Settings: settings}, []setting{
		{name: "repository", required: true}, {name: "branch"}, {name: "path"}, {name: "secretRef"}, {name: "warnAbove"},
	}, gitCredentials)
	if err != nil {
		return nil, err
	}
	g := &stack.GitPlace{Repository: v.text("repository"), Branch: v.text("branch"), Path: v.text("path"), Secret: v.text("secretRef")}
	if err := checkRepository(*g); err != nil {
		return nil, err
	}
	if g.Branch != "" && !isBranch(g.Branch) {
		return nil, wrong("branch", "is %.80q, which is no name of a branch", g.Branch)
	}
	if err := checkFile(g.Path); err != nil {
		return nil, err
	}
	if g.Secret != "" && !objectName.MatchString(g.Secret) {
		return nil, wrong("secretRef", "is %.80q, which is no name of a Secret", g.Secret)
	}
	if text := v.text("warnAbove"); text != "" {
		if g.Most, err = strconv.Atoi(text); err != nil || g.Most < 1 {
			return nil, wrong("warnAbove", "is %.80q, and no number of resources", text)
		}
	}
	return g, nil
}

// objectName matches names of objects of Kubernetes.
var objectName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)

func checkRepository(g stack.GitPlace) error {
	if g.Named() {
		if !objectName.MatchString(g.Repository) {
			return wrong("repository", "is %.200q, and neither a URL nor the name of a GitRepository. A URL begins with https:// or ssh://: write git@host:path as ssh://git@host/path", g.Repository)
		}
		return nil
	}
	u, err := url.Parse(g.Repository)
	switch {
	case err != nil: // the error may quote a password
		return wrong("repository", "is no URL that can be read")
	case u.Scheme != "https" && u.Scheme != "ssh" && u.Scheme != "http":
		return wrong("repository", "has the scheme %.20q, and not https or ssh", u.Scheme)
	case u.Hostname() == "" || strings.Trim(u.Path, "/") == "" || u.RawQuery != "" || u.Fragment != "":
		return wrong("repository", "is no URL of a repository: it has a host and a path, and no query")
	case u.User != nil && u.Scheme != "ssh" || u.User != nil && hasPassword(u):
		return wrong("repository", "holds a user or a password, which every reader of the object would see. %s", gitCredentials)
	case g.Secret == "":
		return wrong("secretRef", "is missing: it names the Secret with the credentials that may push to the repository")
	}
	return nil
}

func hasPassword(u *url.URL) bool {
	_, has := u.User.Password()
	return has
}

// isBranch follows the rules of git check-ref-format.
func isBranch(name string) bool {
	if len(name) > 200 || strings.HasPrefix(name, "-") || strings.HasSuffix(name, ".") || name == "@" ||
		strings.Contains(name, "..") || strings.Contains(name, "@{") || strings.ContainsAny(name, " ~^:?*[\\") {
		return false
	}
	for _, part := range strings.Split(name, "/") {
		if part == "" || strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	return true
}

// longestFile bounds the path of a state in a repository, in bytes.
const longestFile = 500

// checkFile refuses the path of a file that git, or a checkout of it, could not have.
func checkFile(name string) error {
	if name == "" {
		return nil
	}
	if len(name) > longestFile {
		return wrong("path", "has %d bytes; it may have %d", len(name), longestFile)
	}
	for _, part := range strings.Split(name, "/") {
		if part == "" || part == "." || part == ".." || strings.EqualFold(part, ".git") || strings.ContainsAny(part, "\\:?*\"<>|") {
			return wrong("path", "is %.80q: it is the path of a file from the root of the repository, and a part of it is %q", name, part)
		}
	}
	return nil
}
