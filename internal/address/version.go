package address

import (
	"slices"
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
	a, errA := semver.StrictNewVersion(string(v))
	b, errB := semver.StrictNewVersion(string(o))
	if errA != nil || errB != nil {
		if errA != nil && errB != nil {
			return strings.Compare(string(v), string(o))
		}
		if errA != nil {
			return -1
		}
		return 1
	}
	if c := a.Compare(b); c != 0 {
		return c
	}
	return strings.Compare(string(v), string(o))
}

// Prerelease reports whether v is one that clients choose only if a user names it.
func (v Version) Prerelease() bool { return strings.Contains(string(v), "-") }

// SortVersions orders versions, the lowest first.
func SortVersions(all []Version) { slices.SortFunc(all, Version.Compare) }
