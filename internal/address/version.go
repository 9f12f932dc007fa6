package address

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/Masterminds/semver/v3"
)

// Version is a semantic version without a leading v, in its one spelling. Make one with
// ParseVersion.
type Version string

// mostVersion is how long a version is. Names of archives have to fit into keys.
const mostVersion = 64

// ParseVersion reads a version as 1.2.3 or 1.2.3-rc1. Build metadata is refused: clients
// order versions without it, so two versions would be one.
func ParseVersion(text string) (Version, error) {
	v, err := semver.StrictNewVersion(text)
	switch {
	case strings.HasPrefix(text, "v"):
		return "", invalid("the version %.80q begins with v: write it as %.80q", text, text[1:])
	case err != nil:
		return "", invalid("%.80q is no version: write it as 1.2.3 or 1.2.3-rc1", text)
	case v.Metadata() != "":
		return "", invalid("the version %.80q has build metadata, without which clients compare versions: leave out +%s", text, v.Metadata())
	case len(text) > mostVersion:
		return "", invalid("the version %.80q is longer than %d characters", text, mostVersion)
	}
	return Version(text), nil
}

// Compare is negative if v is before o in the order of semantic versions, and positive
// if it is after o. A text that is no version is before all versions.
func (v Version) Compare(o Version) int {
	readA, errA := semver.StrictNewVersion(string(v))
	readB, errB := semver.StrictNewVersion(string(o))
	if errA != nil {
		readA = nil
	}
	if errB != nil {
		readB = nil
	}
	return compare(v, readA, o, readB)
}

// Prerelease reports whether v is one that clients choose only if a user names it.
func (v Version) Prerelease() bool { return strings.Contains(string(v), "-") }

// SortVersions orders versions, the lowest first.
func SortVersions(all []Version) { SortByVersion(all, func(v Version) Version { return v }) }

// SortByVersion orders what has versions, the lowest first. It reads each version once.
func SortByVersion[T any](all []T, of func(T) Version) {
	type keyed struct {
		value T
		text  Version
		read  *semver.Version // nil: it is no version
	}
	keys := make([]keyed, len(all))
	for i, value := range all {
		text := of(value)
		read, err := semver.StrictNewVersion(string(text))
		if err != nil {
			read = nil
		}
		keys[i] = keyed{value, text, read}
	}
	slices.SortFunc(keys, func(a, b keyed) int { return compare(a.text, a.read, b.text, b.read) })
	for i, k := range keys {
		all[i] = k.value
	}
}

// compare orders two versions, of which nil is none.
func compare(a Version, readA *semver.Version, b Version, readB *semver.Version) int {
	switch {
	case readA != nil && readB != nil:
		return cmp.Or(readA.Compare(readB), strings.Compare(string(a), string(b)))
	case readA != nil:
		return 1
	case readB != nil:
		return -1
	default:
		return strings.Compare(string(a), string(b))
	}
}

// Range is a set of versions, as version constraints of modules and providers name it.
type Range struct{ constraints *semver.Constraints }

// ParseRange reads a version constraint: "1.2.3", ">= 1.2, < 2.0", "~> 1.2".
func ParseRange(text string) (Range, error) {
	var parts []string
	for part := range strings.SplitSeq(text, ",") {
		if least, ok := strings.CutPrefix(strings.TrimSpace(part), "~>"); ok {
			part = pessimistic(strings.TrimSpace(least))
		}
		parts = append(parts, part)
	}
	c, err := semver.NewConstraint(strings.Join(parts, ","))
	if err != nil {
		return Range{}, invalid("%.80q is no version constraint: write it as 1.2.3, \">= 1.2, < 2.0\" or \"~> 1.2\"", text)
	}
	return Range{c}, nil
}

// pessimistic is ~> in other operators: only the last part that is written may be greater.
// The library takes ~> for ~, which allows less of a version with two parts.
func pessimistic(least string) string {
	core, _, _ := strings.Cut(least, "-")
	parts := strings.Split(core, ".")
	if len(parts) < 2 {
		return ">=" + least
	}
	parts = parts[:len(parts)-1]
	last, err := strconv.ParseUint(parts[len(parts)-1], 10, 32)
	if err != nil {
		return "~" + least // the library says what is wrong with it
	}
	parts[len(parts)-1] = strconv.FormatUint(last+1, 10)
	return ">=" + least + ",<" + strings.Join(parts, ".")
}

// Has reports whether the range contains a version. A text that is no version is in none.
func (r Range) Has(version string) bool {
	v, err := semver.StrictNewVersion(version)
	return err == nil && r.constraints.Check(v)
}
