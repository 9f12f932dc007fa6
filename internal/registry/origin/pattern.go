package origin

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/source"
)

// Placeholders of a pattern.
const (
	holdVersion = "{version}"
	holdName    = "{name}"
	holdSystem  = "{system}"
)

// forms are the settings of a repository, ready to be applied to the name of a tag.
type forms struct {
	Repository
	tag *regexp.Regexp
}

// semantic matches what may be a version; address.ParseVersion decides. A v before it is no
// part of it.
const semantic = `v?([0-9]+\.[0-9]+\.[0-9]+(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?)`

// Check reports settings that cannot be, by their names.
func (r Repository) Check() error {
	_, err := r.forms()
	return err
}

func (r Repository) forms() (forms, error) {
	f := forms{Repository: r}
	if r.Invalid != nil {
		return f, r.Invalid
	}
	if err := r.binds(); err != nil {
		return f, err
	}
	f.Tags, f.Directory = cmp.Or(r.Tags, holdVersion), cmp.Or(r.Directory, ".")
	if n := strings.Count(f.Tags, holdVersion); n != 1 {
		return f, invalid("tags %.200q has %s %d times, and needs it once: write for instance {name}/{version}", f.Tags, holdVersion, n)
	}
	expression := regexp.QuoteMeta(f.Tags)
	for hold, matches := range map[string]string{holdVersion: semantic, holdName: `(?P<name>[0-9A-Za-z_-]+)`, holdSystem: `(?P<system>[0-9a-z]+)`} {
		expression = strings.Replace(expression, regexp.QuoteMeta(hold), matches, 1)
	}
	if strings.ContainsAny(strings.NewReplacer(holdVersion, "", holdName, "", holdSystem, "").Replace(f.Tags), "{}") || strings.Count(f.Tags, holdName) > 1 || strings.Count(f.Tags, holdSystem) > 1 {
		return f, invalid("tags %.200q: the placeholders are %s, %s and %s, each once at most", f.Tags, holdVersion, holdName, holdSystem)
	}
	for _, hold := range []string{holdName, holdSystem} {
		if !strings.Contains(f.Tags, hold) && strings.Contains(f.Module+f.Directory, hold) {
			return f, invalid("module and directory use %s, which tags %.200q does not have: write for instance {name}/{version}", hold, f.Tags)
		}
		if strings.Contains(f.Tags, hold) && !strings.Contains(f.Module, hold) {
			return f, invalid("tags %.200q has %s, and module %.200q does not: tags of several modules would be versions of one", f.Tags, hold, f.Module)
		}
	}
	var err error
	if f.tag, err = regexp.Compile("^(?:" + expression + ")$"); err != nil {
		return f, invalid("tags %.200q cannot be read: %w", f.Tags, err)
	}
	// The placeholders stand for names that are valid, so that one try says whether the rest is.
	if _, _, err := f.named("name", "system"); err != nil {
		return f, err
	}
	return f, nil
}

// binds refuses a verification that does not bind the name of a tag to its commit. The
// signature of a commit alone does not: a server could list any commit that was ever signed,
// also one with a known mistake, under the name of a new version.
func (r Repository) binds() error {
	switch r.Mode {
	case "", "Tag", "TagAndHEAD":
		return nil
	case "HEAD", "head":
		return invalid("verify.mode %s asks for the signature of the commit alone, and a git server could list an old signed commit under a new version: write Tag, or TagAndHEAD for the signatures of both", r.Mode)
	default:
		return invalid("verify.mode %.40q is no mode of verification for tags: write Tag or TagAndHEAD", r.Mode)
	}
}

// named is the module and the directory for the name and the system of a tag.
func (f forms) named(name, system string) (address.Module, string, error) {
	fill := strings.NewReplacer(holdName, name, holdSystem, system)
	parts := strings.Split(fill.Replace(f.Module), "/")
	if len(parts) == 3 && parts[0] != f.Namespace {
		return address.Module{}, "", invalid("the module %.200q is not in the namespace %s: a repository publishes in the namespace where it is registered. Write NAME/SYSTEM", f.Module, f.Namespace)
	}
	if len(parts) == 2 {
		parts = append([]string{f.Namespace}, parts...)
	}
	if len(parts) != 3 {
		return address.Module{}, "", invalid("module %.200q is no name of a module: write NAME/SYSTEM, for instance vpc/aws", f.Module)
	}
	m, err := address.NewModule(parts[0], parts[1], parts[2])
	if err != nil {
		return m, "", invalid("module: %w", err)
	}
	directory := path.Clean(strings.Trim(fill.Replace(f.Directory), "/"))
	if directory == "" || directory == ".." || strings.HasPrefix(directory, "../") {
		return m, "", invalid("directory %.200q does not stay in the repository", f.Directory)
	}
	return m, directory, nil
}

// only is the module of a repository whose settings name one module.
func (f forms) only() (address.Module, bool) {
	if strings.Contains(f.Module, holdName) || strings.Contains(f.Module, holdSystem) {
		return address.Module{}, false
	}
	m, _, err := f.named("", "")
	return m, err == nil
}

// candidate is a tag that may become a version.
type candidate struct {
	source.Tag
	module    address.Module
	version   address.Version
	directory string

	repository string // its URL, as versions name it
	failures   int    // of earlier checks
}

func (c candidate) String() string { return c.module.String() + " " + string(c.version) }

// candidates are the tags that are versions. Of the others it says why they are not.
func (f forms) candidates(tags []source.Tag) (all []candidate, skipped []Skip) {
	for _, t := range tags {
		c, err := f.candidate(t)
		if err != nil {
			skipped = append(skipped, Skip{cut(t.Name, skipBytes), cut(err.Error(), skipBytes)})
			continue
		}
		all = append(all, c)
	}
	return all, skipped
}

// skipBytes is how much of the name of a tag that is no version users see, and of the reason.
const skipBytes = 500

// cut is the beginning of a text.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len("…")], "") + "…"
}

func (f forms) candidate(t source.Tag) (candidate, error) {
	found := f.tag.FindStringSubmatch(t.Name)
	if found == nil {
		return candidate{}, fmt.Errorf("its name is no version in the form %s", f.Tags)
	}
	c := candidate{Tag: t, repository: shown(f.URL)}
	var name, system, version string
	for i, group := range f.tag.SubexpNames() {
		switch {
		case group == "name":
			name = found[i]
		case group == "system":
			system = found[i]
		case i > 0:
			version = found[i]
		}
	}
	var err error
	if c.version, err = address.ParseVersion(version); err == nil {
		c.module, c.directory, err = f.named(cmp.Or(name, "name"), cmp.Or(system, "system"))
	}
	return c, err
}
