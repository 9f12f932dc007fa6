package plan

import (
	"strings"
	"unicode"
)

// hashPrefix is how much of a hash stands in a plan's public name.
const hashPrefix = 10

// Name returns the public name of the plans of a revision, the one that people
// put into an approval:
//
//	main@sha1:b8e362c206…   plan-main-b8e362c206
//	main/b8e362c206…        plan-main-b8e362c206     (as old sources write it)
//	sha256:ed6f71c31a…      plan-ed6f71c31a          (buckets, inline modules)
//
// It names a revision, not a plan: what is approved is the Digest behind it.
func Name(revision string) string {
	branch, hash := splitRevision(revision)
	if len(hash) > hashPrefix {
		hash = hash[:hashPrefix]
	}
	parts := []string{"plan"}
	for _, part := range []string{branch, hash} {
		if part != "" {
			parts = append(parts, plain(part))
		}
	}
	return strings.Join(parts, "-")
}

// NameWith returns base made unique by the beginning of a digest.
func NameWith(base, digest string) string {
	_, hash := splitRevision(digest)
	if len(hash) > 8 {
		hash = hash[:8]
	}
	return base + "-" + hash
}

func splitRevision(revision string) (branch, hash string) {
	if i := strings.LastIndexByte(revision, '@'); i >= 0 {
		return revision[:i], withoutAlgorithm(revision[i+1:])
	}
	if withoutAlgorithm(revision) != revision {
		return "", withoutAlgorithm(revision)
	}
	if i := strings.LastIndexByte(revision, '/'); i >= 0 {
		return revision[:i], revision[i+1:]
	}
	return "", revision
}

func withoutAlgorithm(digest string) string {
	if i := strings.IndexByte(digest, ':'); i >= 0 {
		return digest[i+1:]
	}
	return digest
}

// plain replaces what would end a word on a command line or a path segment.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '/' || unicode.IsSpace(r) || !unicode.IsPrint(r) {
			return '-'
		}
		return r
	}, s)
}
