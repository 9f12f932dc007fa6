package publish

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/fault"
)

// Provider is a release of a provider: the signed list of its files, and those of them that
// a registry serves.
type Provider struct {
	Address  address.Provider
	Version  address.Version
	Files    []string                    // the list first, then its signature, then the others
	Packages map[address.Platform]string // the checksums of the packages
	Ignored  []string                    // files that the list names and a registry does not serve
}

var (
	sumsName = regexp.MustCompile(`^(?:terraform|opentofu)-provider-([a-z0-9-]+)_([^_/]+)_SHA256SUMS$`)
	sumsLine = regexp.MustCompile(`^([0-9a-fA-F]{64}) [ *](.+)$`)
)

// sumsBytes bounds a list of sums.
const sumsBytes = 1 << 20

// OpenProvider reads the release of a provider: a directory with one list of sums, or the
// list itself. The files that the list names lie beside it, and their sums are checked.
func OpenProvider(path, namespace string) (Provider, error) {
	list, err := sumsFile(path)
	if err != nil {
		return Provider{}, err
	}
	name := filepath.Base(list)
	part := sumsName.FindStringSubmatch(name)
	if part == nil {
		return Provider{}, invalid(ReasonProvider, "%s has not the name of a list of sums: terraform-provider-TYPE_VERSION_SHA256SUMS", list)
	}
	p := Provider{Packages: map[address.Platform]string{}}
	if p.Address, err = address.NewProvider("", namespace, part[1]); err != nil {
		return Provider{}, err
	}
	if p.Version, err = address.ParseVersion(part[2]); err != nil {
		return Provider{}, fmt.Errorf("%s: %w", list, err)
	}
	if _, err := os.Stat(list + ".sig"); err != nil {
		return Provider{}, fault.New(fault.Missing, ReasonProvider, fmt.Errorf("the signature %s.sig is missing: make it with: gpg --detach-sign %[1]s", list))
	}
	p.Files = []string{list, list + ".sig"}
	return p, p.read(list, strings.TrimSuffix(name, "SHA256SUMS"))
}

// sumsFile finds the list of sums of a release.
func sumsFile(path string) (string, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fault.New(fault.Missing, ReasonProvider, fmt.Errorf("there is no file or directory %s", path))
	}
	if err != nil || !info.IsDir() {
		return path, err
	}
	lists, err := filepath.Glob(filepath.Join(path, "*_SHA256SUMS"))
	switch {
	case err != nil:
		return "", err
	case len(lists) == 0:
		return "", fault.New(fault.Missing, ReasonProvider, fmt.Errorf("the directory %s has no file terraform-provider-TYPE_VERSION_SHA256SUMS", path))
	case len(lists) > 1:
		return "", invalid(ReasonProvider, "the directory %s has several lists of sums: name one of them, for instance %s", path, lists[0])
	}
	return lists[0], nil
}

// read reads the list and checks the files that it names. All of them begin with a prefix,
// terraform-provider-TYPE_VERSION_.
func (p *Provider) read(list, prefix string) error {
	text, err := os.ReadFile(list)
	if err != nil {
		return err
	}
	if len(text) > sumsBytes {
		return invalid(ReasonProvider, "%s is larger than %d bytes", list, sumsBytes)
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		part := sumsLine.FindStringSubmatch(lines.Text())
		if part == nil {
			return invalid(ReasonProvider, "line %d of %s is not SUM  FILE", n, list)
		}
		if err := p.add(filepath.Dir(list), part[2], part[1], prefix); err != nil {
			return fmt.Errorf("line %d of %s: %w", n, list, err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("reading %s: %w", list, err)
	}
	if len(p.Packages) == 0 {
		return invalid(ReasonProvider, "%s names no package %sOS_ARCH.zip", list, prefix)
	}
	return nil
}

// add adds a line of the list: a package, the manifest with the protocols, or a file that a
// registry does not serve.
func (p *Provider) add(dir, name, sum, prefix string) error {
	rest, ok := strings.CutPrefix(name, prefix)
	manifest := ok && rest == "manifest.json"
	platform, zip := strings.CutSuffix(rest, ".zip")
	if !ok || !zip && !manifest {
		p.Ignored = append(p.Ignored, name)
		return nil
	}
	if zip {
		at, err := address.ParsePlatform(platform)
		if err != nil {
			return err
		}
		p.Packages[at] = strings.ToLower(sum)
	}
	file := filepath.Join(dir, name)
	found, err := sumOf(file)
	if errors.Is(err, fs.ErrNotExist) && manifest { // the registry then takes the protocols for granted
		p.Ignored = append(p.Ignored, name)
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fault.New(fault.Missing, ReasonProvider, fmt.Errorf("the file %s is missing", file))
	}
	if err != nil {
		return err
	}
	if !strings.EqualFold(found, sum) {
		return invalid(ReasonProvider, "the file %s has the sum %s, and the list says %s", file, found, strings.ToLower(sum))
	}
	p.Files = append(p.Files, file)
	return nil
}

func sumOf(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("reading %s: %w", file, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
