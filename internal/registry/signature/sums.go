package signature

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// Limits of a list of checksums. The largest have some forty lines.
const (
	MaxSums  = 1 << 20
	maxLines = 4096
)

// Sums are checksums by the names of files: SHA-256, in lower-case hex.
type Sums map[string]string

// ParseSums reads SHA256SUMS. The list may name files that are not archives, such as
// a manifest. A file with two different checksums is an error.
func ParseSums(text []byte) (Sums, error) {
	if len(text) > MaxSums {
		return nil, fmt.Errorf("SHA256SUMS has %d bytes, and %d are allowed", len(text), MaxSums)
	}
	sums := Sums{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 {
			continue
		}
		if len(fields) != 2 {
			return nil, fmt.Errorf("line %d of SHA256SUMS is not a checksum and the name of a file", n)
		}
		sum, name := strings.ToLower(fields[0]), strings.TrimPrefix(fields[1], "*") // the mark of a binary file
		if raw, err := hex.DecodeString(sum); err != nil || len(raw) != sha256.Size {
			return nil, fmt.Errorf("line %d of SHA256SUMS begins with %.80q, which is no SHA-256", n, fields[0])
		}
		if before, ok := sums[name]; ok && before != sum {
			return nil, fmt.Errorf("SHA256SUMS has two checksums for %q", name)
		}
		if sums[name] = sum; len(sums) > maxLines {
			return nil, fmt.Errorf("SHA256SUMS names more than %d files", maxLines)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading SHA256SUMS: %w", err)
	}
	if len(sums) == 0 {
		return nil, fmt.Errorf("SHA256SUMS is empty")
	}
	return sums, nil
}

// Archive is the name of the archive of a provider, which SHA256SUMS has as well.
func Archive(kind, version, platform string) string {
	return prefix(kind, version) + platform + ".zip"
}

// SumsName is the name of the list of checksums of a version.
func SumsName(kind, version string) string { return prefix(kind, version) + "SHA256SUMS" }

func prefix(kind, version string) string { return "terraform-provider-" + kind + "_" + version + "_" }

// Platforms are the checksums of the archives of one version of a provider, by
// platform (linux_amd64). Other files of the list are left out.
func (s Sums) Platforms(kind, version string) map[string]string {
	found := map[string]string{}
	for name, sum := range s {
		rest, ours := strings.CutPrefix(name, prefix(kind, version))
		platform, zip := strings.CutSuffix(rest, ".zip")
		if ours && zip && isPlatform(platform) {
			found[platform] = sum
		}
	}
	return found
}

// isPlatform accepts two words of lower-case letters and digits with a line between them.
func isPlatform(s string) bool {
	system, arch, ok := strings.Cut(s, "_")
	word := func(w string) bool {
		return w != "" && !strings.ContainsFunc(w, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
	}
	return ok && word(system) && word(arch)
}
