package engine

import (
	"fmt"
	"slices"
	"strings"
)

// Locked is one provider of a dependency lock file.
type Locked struct {
	Address string   // registry.opentofu.org/hashicorp/random
	Version string   // 2.0.0
	Hashes  []string // h1:… of its package's files, zh:… of its archive

	Constraint string // of all modules together; empty if none has one
}

// Source is the address without its registry: hashicorp/random.
func (l Locked) Source() string {
	_, source, _ := strings.Cut(l.Address, "/")
	return source
}

// Type is the last part of the address: random.
func (l Locked) Type() string { return l.Address[strings.LastIndexByte(l.Address, '/')+1:] }

// wellFormed reports whether address and version are what engines write. Both
// become parts of a path, so neither may hold anything that leads away.
func (l Locked) wellFormed() bool {
	host, source, _ := strings.Cut(l.Address, "/")
	namespace, kind, _ := strings.Cut(source, "/")
	return of(host, lower+digits+".:-") && of(namespace, lower+digits+"_-") && of(kind, lower+digits+"_-") &&
		of(l.Version, lower+upper+digits+".+-")
}

const (
	digits = "0123456789"
	lower  = "abcdefghijklmnopqrstuvwxyz"
	upper  = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

// of reports whether text consists of characters, and begins with a letter or a
// digit. It uses no expression: compiling one takes longer than the check.
func of(text, characters string) bool {
	return text != "" && strings.Contains(lower+upper+digits, text[:1]) &&
		!strings.ContainsFunc(text, func(c rune) bool { return !strings.ContainsRune(characters, c) })
}

// ParseLockFile reads a dependency lock file in the form in which engines write
// it. Another form that an engine would understand is an error too: the
// caller needs to be certain.
func ParseLockFile(data []byte) ([]Locked, error) {
	items, err := parseSyntax(data)
	if err != nil {
		return nil, fmt.Errorf("reading the dependency lock file: %w", err)
	}
	var all []Locked
	seen := map[string]bool{}
	for _, i := range items {
		if !i.block || i.name != "provider" || len(i.labels) != 1 {
			continue
		}
		l := Locked{Address: i.labels[0]}
		for _, a := range i.body {
			switch a.name {
			case "version":
				l.Version, _ = a.literal()
			case "constraints":
				l.Constraint, _ = a.literal()
			case "hashes":
				l.Hashes = a.literals()
			}
		}
		if !l.wellFormed() || seen[l.Address] {
			return nil, fmt.Errorf("reading the dependency lock file: the entry of %.100q is not as engines write it", l.Address)
		}
		seen[l.Address] = true
		all = append(all, l)
	}
	return all, nil
}

// CompleteLockFile adds hashes to the entries of a lock file: those that known has for a
// provider, and that the file lacks. A file of another form than engines write comes back
// as it is.
func CompleteLockFile(data []byte, known func(Locked) []string) []byte {
	entries, err := ParseLockFile(data)
	if err != nil {
		return data
	}
	text := string(data)
	for _, l := range entries {
		fresh := slices.DeleteFunc(slices.Clone(known(l)), func(h string) bool { return slices.Contains(l.Hashes, h) || !isHash(h) })
		if len(fresh) == 0 {
			continue
		}
		const begin, end = "  hashes = [\n", "  ]\n"
		before, block, found := strings.Cut(text, fmt.Sprintf("provider %q {\n", l.Address))
		block, after, whole := strings.Cut(block, "}\n")
		head, list, listed := strings.Cut(block, begin)
		_, tail, ended := strings.Cut(list, end)
		if !found || !whole || !listed || !ended {
			return data
		}
		all := slices.Sorted(slices.Values(append(fresh, l.Hashes...)))
		var b strings.Builder
		fmt.Fprintf(&b, "%sprovider %q {\n%s%s", before, l.Address, head, begin)
		for _, h := range slices.Compact(all) {
			fmt.Fprintf(&b, "    %q,\n", h)
		}
		b.WriteString(end + tail + "}\n" + after)
		text = b.String()
	}
	if got, err := ParseLockFile([]byte(text)); err != nil || len(got) != len(entries) {
		return data
	}
	return []byte(text)
}

// isHash reports whether a text is a hash as lock files have them.
func isHash(h string) bool {
	scheme, value, _ := strings.Cut(h, ":")
	return (scheme == "h1" || scheme == "zh") && of("h"+value, lower+upper+digits+"+/=")
}
