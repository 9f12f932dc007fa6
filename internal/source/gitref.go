package source

import (
	"strings"

	"github.com/Masterminds/semver/v3"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
)

// GitRef says which commit is wanted. Of several fields the later one wins;
// without any it is the branch master, as Flux has it.
type GitRef struct {
	Branch string
	Tag    string
	SemVer string // a range; the highest tag in it
	Name   string // a full reference: refs/pull/420/head
	Commit string // 40 hexadecimal digits; Branch may say where it is found
}

// gitCommit is a commit and how to ask for it.
type gitCommit struct {
	commit plumbing.Hash
	want   plumbing.Hash // what the server advertises for it: the commit or an annotated tag; may be zero
	branch string        // where a commit is to be found that is not advertised; may be empty
	tag    string        // the name of the tag that led to it; empty for other references
	url    string        // of its repository
}

// pinned returns the commit that the reference names itself.
func (r GitRef) pinned() (Found, error) {
	if !plumbing.IsHash(r.Commit) || len(r.Commit) != 40 {
		return Found{}, invalid(ReasonReference, "the commit %q is not a full SHA-1", r.Commit)
	}
	hash := plumbing.NewHash(r.Commit)
	found := Found{Revision: "sha1:" + hash.String(), handle: gitCommit{commit: hash, branch: r.Branch}}
	if r.Branch != "" {
		found.Revision = r.Branch + "@" + found.Revision
	}
	return found, nil
}

// choose finds the reference among those that the server has.
func (r GitRef) choose(refs *packp.AdvRefs) (Found, error) {
	shown, name := r.Branch, plumbing.NewBranchReferenceName(r.Branch)
	switch {
	case r.Name != "":
		shown, name = r.Name, plumbing.ReferenceName(r.Name)
	case r.SemVer != "":
		tag, err := highest(r.SemVer, refs.References)
		if err != nil {
			return Found{}, err
		}
		shown, name = tag, plumbing.NewTagReferenceName(tag)
	case r.Tag != "":
		shown, name = r.Tag, plumbing.NewTagReferenceName(r.Tag)
	case r.Branch == "":
		shown, name = "master", plumbing.Master
	}
	want, ok := refs.References[name.String()]
	if !ok {
		return Found{}, missing(ReasonGit, "the repository has no reference %q", name)
	}
	commit := want
	if peeled, ok := refs.Peeled[name.String()]; ok {
		commit = peeled // an annotated tag points to its commit
	}
	at := gitCommit{commit: commit, want: want}
	if name.IsTag() {
		at.tag = name.Short()
	}
	return Found{Revision: shown + "@sha1:" + commit.String(), handle: at}, nil
}

// highest returns the tag with the highest version in a range. Of two tags for
// one version (1.2.3 and v1.2.3) it is the one that sorts last, so that the
// answer does not change by itself.
func highest(constraint string, refs map[string]plumbing.Hash) (string, error) {
	var tags []string
	for name := range refs {
		if tag, ok := strings.CutPrefix(name, "refs/tags/"); ok {
			tags = append(tags, tag)
		}
	}
	tag, err := highestVersion(constraint, tags)
	if err != nil {
		return "", err
	}
	if tag == "" {
		return "", missing(ReasonGit, "no tag is in the range %q", constraint)
	}
	return tag, nil
}

// highestVersion returns the tag with the highest version in a range, or
// nothing.
func highestVersion(constraint string, tags []string) (string, error) {
	in, err := semver.NewConstraint(constraint)
	if err != nil {
		return "", invalid(ReasonReference, "reading the version range %q: %w", constraint, err)
	}
	var best *semver.Version
	for _, tag := range tags {
		v, err := semver.NewVersion(tag)
		if err != nil || !in.Check(v) {
			continue
		}
		if best == nil || v.GreaterThan(best) || v.Equal(best) && v.Original() > best.Original() {
			best = v
		}
	}
	if best == nil {
		return "", nil
	}
	return best.Original(), nil
}
