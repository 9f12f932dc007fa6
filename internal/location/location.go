// Package location reads where code is from the text that a user wrote: the URL of a
// git repository, in one of the forms that git accepts, and perhaps a directory behind
// it.
//
// It reads the names of repositories for images, too.
//
// It asks no server. Where only the server knows at which slash the repository ends,
// Git.Splits says what to ask, and in which order.
//
// Start reading at ParseGit.
package location

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/terrier-iac/terrier/internal/plural"
)

// Annotations of a GitRepository that Terrier's own controller of sources reads.
const (
	// SearchAnnotation says with the value "true" that the end of spec.url may be a
	// directory in the repository.
	SearchAnnotation = "terrier.dev/git-directory-in-url"
	// SSHKeyAnnotation names the key of the Secret of spec.secretRef that holds the private
	// key for ssh.
	SSHKeyAnnotation = "terrier.dev/ssh-key"
)

// Git is a git repository and a directory in it.
type Git struct {
	Repository string // an https, http or ssh URL
	Directory  string // in the repository, with slashes; empty for its root
	Search     bool   // the end of Repository may be a directory in it
}

// relative begins the path of an ssh URL that is relative to the home directory of the
// user on the server, as that of git@host:path is.
const relative = "/./"

// scpLike matches user@host:path. The host may be an address in brackets.
var scpLike = regexp.MustCompile(`^(?:([^@:/\s]+)@)?([A-Za-z0-9][-A-Za-z0-9._]*|\[[0-9A-Fa-f:.]+\]):(.+)$`)

// depths are the public hosts on which every repository has a path of so many
// segments.
var depths = map[string]int{"github.com": 2, "ssh.github.com": 2, "bitbucket.org": 2, "codeberg.org": 2}

// GitHost is the host of a URL that ParseGit reads, with its port if the URL has one.
func GitHost(text string) (string, error) {
	g, err := ParseGit(text)
	if err != nil {
		return "", err
	}
	u, err := url.Parse(g.Repository)
	if err != nil {
		return "", err
	}
	return u.Host, nil
}

// ParseGit reads a URL of a repository: https://host/path, ssh://user@host/path or
// user@host:path. A directory behind the repository is told apart by "//", by ".git/",
// or by the host, if all its repositories have paths of one depth; else Search is set.
func ParseGit(text string) (Git, error) {
	if strings.ContainsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
		return Git{}, errors.New("the URL has a space or a control character in it")
	}
	u, err := parse(text)
	if err != nil {
		return Git{}, err
	}
	path, directory, explicit := divide(u.Path)
	mark := ""
	if rest, ok := strings.CutPrefix(path, relative); ok && u.Scheme == "ssh" {
		mark, path = strings.TrimSuffix(relative, "/"), "/"+rest
	}
	segments := strings.Split(strings.Trim(path, "/"), "/")
	for _, s := range append(slices.Clone(segments), strings.Split(directory, "/")...) {
		if s == "." || s == ".." {
			return Git{}, fmt.Errorf("the path of the URL has the segment %q", s)
		}
	}
	if segments[0] == "" {
		return Git{}, errors.New("the URL names no repository")
	}
	out := Git{Directory: directory}
	if !explicit {
		switch n := depth(u.Hostname(), segments); {
		case n > 0 && len(segments) < n:
			return Git{}, fmt.Errorf("the URL names no repository: on %s it has a path of %s", u.Hostname(), plural.Count(n, "segment"))
		case n > 0:
			out.Directory = strings.Join(segments[n:], "/")
			segments = segments[:n]
		default:
			out.Search = len(segments) > 1 && !strings.HasSuffix(path, ".git")
		}
	}
	if out.Search && len(segments) > mostSplits {
		return Git{}, fmt.Errorf("the path of the URL has %d segments, and at most %d are tried: write // between the repository and the directory", len(segments), mostSplits)
	}
	u.Path, u.RawPath = mark+"/"+strings.Join(segments, "/"), ""
	out.Repository = u.String()
	return out, nil
}

// parse reads any of the forms as a URL.
func parse(text string) (*url.URL, error) {
	if !strings.Contains(text, "://") {
		return parseSCP(text)
	}
	u, err := url.Parse(text)
	if err != nil {
		// The error of url.Parse quotes its argument, which may hold a password.
		return nil, errors.New("the URL cannot be read: write https://host/path, ssh://user@host/path or user@host:path")
	}
	switch {
	case u.Scheme != "https" && u.Scheme != "http" && u.Scheme != "ssh":
		return nil, fmt.Errorf("the scheme of the URL is %q: only https, ssh and http are fetched from", u.Scheme)
	case u.Hostname() == "":
		return nil, errors.New("the URL names no host")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, errors.New("the URL has a query or a fragment: name the branch or tag in its own field")
	}
	if _, has := u.User.Password(); has || u.User != nil && u.Scheme != "ssh" {
		return nil, errors.New("the URL holds credentials, which belong in a Secret")
	}
	return u, nil
}

// parseSCP reads user@host:path as ssh://user@host/path. The path is relative to the
// home directory of the user. Public hosts have no such directory.
func parseSCP(text string) (*url.URL, error) {
	m := scpLike.FindStringSubmatch(text)
	if m == nil {
		return nil, errors.New("the URL cannot be read: write https://host/path, ssh://user@host/path or user@host:path")
	}
	u := &url.URL{Scheme: "ssh", Host: m[2], Path: m[3]}
	if m[1] != "" {
		u.User = url.User(m[1])
	}
	switch {
	case strings.HasPrefix(u.Path, "/"):
	case strings.HasPrefix(u.Path, "~"), depths[u.Hostname()] > 0, u.Hostname() == "gitlab.com":
		u.Path = "/" + u.Path
	default:
		u.Path = relative + u.Path
	}
	return u, nil
}

// divide finds the place that the text itself marks as the end of the repository.
func divide(path string) (repository, directory string, marked bool) {
	path = "/" + strings.TrimLeft(path, "/")
	if r, d, ok := strings.Cut(path, "//"); ok {
		return r, clean(d), true
	}
	if r, d, ok := strings.Cut(path, ".git/"); ok {
		return r + ".git", clean(d), true
	}
	return strings.TrimSuffix(path, "/"), "", false
}

// clean is a directory without empty segments.
func clean(directory string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(directory, "/"), func(s string) bool { return s == "" }), "/")
}

// depth is the number of segments of a repository's path on a host, 0 if it is not
// known.
func depth(host string, segments []string) int {
	if n := depths[strings.ToLower(host)]; n > 0 {
		return n
	}
	if n := slices.Index(segments, "_git"); n >= 0 && n+1 < len(segments) { // Azure DevOps
		return n + 2
	}
	return 0
}

// mostSplits bounds the questions to a server.
const mostSplits = 8

// Splits are the repositories that g may be of, the longest one first. If g needs no
// search, g is the only one.
func (g Git) Splits() []Git {
	u, err := url.Parse(g.Repository)
	if err != nil || !g.Search {
		g.Search = false
		return []Git{g}
	}
	least := 1
	if u.Hostname() == "gitlab.com" {
		least = 2 // a project has a group
	}
	path, mark := u.Path, ""
	if rest, ok := strings.CutPrefix(path, relative); ok {
		path, mark = rest, strings.TrimSuffix(relative, "/")
	}
	segments := strings.Split(strings.Trim(path, "/"), "/")
	if segments[0] == "~" || strings.HasPrefix(segments[0], "~") {
		least = 2 // the first one is a home directory
	}
	var all []Git
	for n := min(len(segments), mostSplits); n >= min(least, len(segments)); n-- {
		at := *u
		at.Path, at.RawPath = mark+"/"+strings.Join(segments[:n], "/"), ""
		all = append(all, Git{Repository: at.String(), Directory: clean(strings.Join(segments[n:], "/") + "/" + g.Directory)})
	}
	return all
}
