package origin

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/registry"
)

// published is what the registry has of the modules of a repository.
type published map[address.Module]map[address.Version]registry.ModuleVersion

// add puts a version in.
func (p published) add(m address.Module, v address.Version, has registry.ModuleVersion) {
	if p[m] == nil {
		p[m] = map[address.Version]registry.ModuleVersion{}
	}
	p[m][v] = has
}

// from are the versions that were made from tags of a repository. What became of these tags
// since then does not matter: a version stays.
func (p published) from(repository string) published {
	some := published{}
	for m, versions := range p {
		for v, has := range versions {
			if has.Origin != nil && has.Origin.Repository == repository {
				some.add(m, v, has)
			}
		}
	}
	return some
}

// modules counts the versions of each module, by the names of the modules.
func (p published) modules() []Module {
	all := make([]Module, 0, len(p))
	for m, versions := range p {
		all = append(all, Module{m.String(), len(versions), newest(versions)})
	}
	slices.SortFunc(all, func(a, b Module) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// newest is the version that clients choose by default: the highest one that is neither
// retracted nor a pre-release. If there is none, it is the highest pre-release.
func newest(versions map[address.Version]registry.ModuleVersion) (best address.Version) {
	for v, has := range versions {
		switch {
		case has.Retracted != nil:
		case best == "", best.Prerelease() && !v.Prerelease(), best.Prerelease() == v.Prerelease() && v.Compare(best) > 0:
			best = v
		}
	}
	return best
}

// decision is what to do about the tags of a repository.
type decision struct {
	take    []candidate // the newest version of each module first, then the second newest
	there   published   // versions that come from tags of the repository, or were uploaded with the content of one
	skipped []Skip

	moved, contradicts complaints
}

// complaints are problems of one sort: the first of them, and how many there are. Users who may
// push tags, and the git server, decide how many that is.
type complaints struct {
	first []Problem
	all   int
}

func (c *complaints) add(p Problem) {
	if c.all++; len(c.first) < mostProblems {
		c.first = append(c.first, p)
	}
}

// problems are the first ones, and how many there are. Those of versions that are published
// come first, so that tags of which no version was made hide none of them.
func (d *decision) problems() ([]Problem, int) {
	first := slices.Concat(d.moved.first, d.contradicts.first)
	return first[:min(len(first), mostProblems)], d.moved.all + d.contradicts.all
}

// decide compares the tags of a repository with what is published, and with what came of
// them at earlier checks. The order of its rules matters: what is published never changes, so
// what a tag says is compared with it first.
func decide(repository string, all []candidate, has published, known map[string]Outcome) decision {
	d := decision{there: has.from(repository)}
	byVersion := map[string][]candidate{}
	for _, c := range all {
		byVersion[c.String()] = append(byVersion[c.String()], c)
	}
	for _, of := range slices.Sorted(maps.Keys(byVersion)) {
		tags := byVersion[of]
		first := tags[0]
		there, is := has[first.module][first.version]
		switch {
		case is && there.Origin != nil:
			d.made(tags, *there.Origin)
		case len(commitsOf(tags)) > 1:
			d.contradict(tags)
		default:
			d.one(preferred(tags), there, is, known)
		}
	}
	d.order()
	return d
}

// made is about a version that was made from a tag.
func (d *decision) made(tags []candidate, from registry.Origin) {
	for _, c := range tags {
		if c.Commit == from.Commit {
			continue
		}
		reason, text := ReasonMoved, fmt.Sprintf("the tag %s moved: version %s of %s was made from the commit %s, and the tag is at %s now. The version stays as it is: publish the change under a new version, and move the tag back",
			c.Name, c.version, c.module, short(from.Commit), short(c.Commit))
		switch {
		case c.repository != from.Repository:
			reason, text = ReasonOther, fmt.Sprintf("the tag %s is at the commit %s, and version %s of %s was made from the tag %s of %s at %s. The version stays as it is: register one repository for the module, or publish a new version",
				c.Name, short(c.Commit), c.version, c.module, from.Tag, from.Repository, short(from.Commit))
		case c.Name != from.Tag:
			text = fmt.Sprintf("the tag %s is at the commit %s, and version %s of %s was made from the tag %s at %s. The version stays as it is: publish the change under a new version, and delete the tag %[1]s",
				c.Name, short(c.Commit), c.version, c.module, from.Tag, short(from.Commit))
		}
		d.moved.add(c.problem(reason, from.Commit, text))
	}
}

// contradict is about tags of several commits for one version that is not published.
func (d *decision) contradict(tags []candidate) {
	names := make([]string, 0, len(tags))
	for _, c := range tags {
		names = append(names, c.Name+" at "+short(c.Commit))
	}
	c := tags[0]
	d.contradicts.add(c.problem(ReasonTwoTags, tags[1].Commit, fmt.Sprintf(
		"the tags %s mean version %s of %s, which is not published therefore: delete all of them but one", strings.Join(names, " and "), c.version, c.module)))
}

// one is about a tag whose version was made from no tag, or is not published.
func (d *decision) one(c candidate, there registry.ModuleVersion, is bool, known map[string]Outcome) {
	before, tried := known[c.Name]
	tried = tried && before.Object == c.Object && before.Failures == 0
	c.failures = before.Failures
	switch {
	case tried && before.Problem:
		d.moved.add(c.problem(ReasonOther, "", before.Text))
	case tried && before.Text != "":
		d.skipped = append(d.skipped, Skip{c.Name, before.Text})
	case tried && is:
		d.there.add(c.module, c.version, there)
	case is && there.Retracted != nil:
		d.skipped = append(d.skipped, Skip{c.Name, fmt.Sprintf("version %s of %s was uploaded, and retracted: %s", c.version, c.module, there.Retracted.Reason)})
	default:
		d.take = append(d.take, c)
	}
}

func (c candidate) problem(reason, was, text string) Problem {
	return Problem{Reason: reason, Tag: c.Name, Module: c.module.String(), Version: string(c.version), Was: was, Is: c.Commit, Text: text}
}

// preferred is the tag of one commit that a version is made from: an annotated one says who
// made it.
func preferred(tags []candidate) candidate {
	for _, c := range tags {
		if c.Object != c.Commit {
			return c
		}
	}
	return tags[0]
}

func commitsOf(tags []candidate) map[string]bool {
	all := map[string]bool{}
	for _, c := range tags {
		all[c.Commit] = true
	}
	return all
}

// order puts the newest version of each module first, so that users of all modules can work
// while older versions are still to come. A tag that failed before waits for the others.
func (d *decision) order() {
	address.SortByVersion(d.take, func(c candidate) address.Version { return c.version })
	slices.Reverse(d.take)
	rank, seen := map[string]int{}, map[address.Module]int{}
	for _, c := range d.take {
		rank[c.Name] = seen[c.module]
		seen[c.module]++
	}
	slices.SortStableFunc(d.take, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.failures, b.failures), cmp.Compare(rank[a.Name], rank[b.Name]), cmp.Compare(a.module.String(), b.module.String()))
	})
	slices.SortFunc(d.skipped, func(a, b Skip) int { return cmp.Compare(a.Tag, b.Tag) })
}

func short(commit string) string { return fmt.Sprintf("%.12s", commit) }
