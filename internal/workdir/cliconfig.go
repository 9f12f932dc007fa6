package workdir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Mirror is the platform's own place of providers.
type Mirror struct {
	Dir       string   // where runs see it
	Providers []string // the addresses of those that it has: registry.opentofu.org/hashicorp/random
	Only      bool     // no provider comes from anywhere else
}

// CLIConfig returns the configuration of the engine's command line: it disables
// the checkpoint, and takes the providers of the mirror from there and all others
// from their registries. A provider that the mirror lacks is never taken from it,
// so that neither can replace the other.
func CLIConfig(m Mirror) File {
	return File{Path: CLIConfigPath, Mode: 0o600, Content: []byte("disable_checkpoint = true\n" + m.installation())}
}

// installation is the block that says where providers come from; empty if the
// engine decides.
func (m Mirror) installation() string {
	dir := strconv.Quote(m.Dir)
	switch {
	case m.Only:
		return fmt.Sprintf("\nprovider_installation {\n  filesystem_mirror {\n    path = %s\n  }\n}\n", dir)
	case len(m.Providers) == 0:
		return ""
	}
	list := make([]string, 0, len(m.Providers))
	for _, p := range slices.Compact(slices.Sorted(slices.Values(m.Providers))) {
		list = append(list, strconv.Quote(p))
	}
	all := "[" + strings.Join(list, ", ") + "]"
	return m.head() + all + "\n  }\n  direct {\n    exclude = " + all + "\n  }\n}\n"
}

// head is how the block begins that names providers of the mirror.
func (m Mirror) head() string {
	return fmt.Sprintf("\nprovider_installation {\n  filesystem_mirror {\n    path    = %s\n    include = ", strconv.Quote(m.Dir))
}

// FromRegistries returns a configuration that CLIConfig made for the mirror at
// dir, changed so that some of its providers come from their registries. It is
// false if the configuration is not of that form: the mirror then has none of
// them, or a stack said where providers come from.
func FromRegistries(config []byte, dir string, providers []string) ([]byte, bool) {
	m := Mirror{Dir: dir}
	_, rest, ok := strings.Cut(string(config), m.head())
	list, _, _ := strings.Cut(rest, "\n")
	if !ok || json.Unmarshal([]byte(list), &m.Providers) != nil {
		return nil, false
	}
	before := m.installation()
	left := slices.DeleteFunc(slices.Clone(m.Providers), func(p string) bool { return slices.Contains(providers, p) })
	if len(left) == len(m.Providers) || !strings.Contains(string(config), before) {
		return nil, false
	}
	m.Providers = left
	return []byte(strings.Replace(string(config), before, m.installation(), 1)), true
}

// FromMirror returns a configuration that CLIConfig made without a mirror, changed so
// that the providers of m come from there. It is false if the configuration says already
// where providers come from, as that of a stack may, or if m has none.
func FromMirror(config []byte, m Mirror) ([]byte, bool) {
	if strings.Contains(string(config), "provider_installation") || m.installation() == "" {
		return nil, false
	}
	return slices.Concat(config, []byte(m.installation())), true
}

// Shapes of the three parts of a provider's address. They cannot hold what
// would end a string in the CLI configuration.
var (
	mirrorHost = lazy(`^[a-z0-9][a-z0-9.-]*(:[0-9]{1,5})?$`)
	mirrorPart = lazy(`^[0-9A-Za-z](?:[0-9A-Za-z_-]{0,62}[0-9A-Za-z])?$`)
)

// MirrorProviders lists the addresses of the providers in a mirror directory
// (HOST/NAMESPACE/TYPE/ with zip files or version directories in it), sorted.
// Other names are no providers and are left out; a missing directory has none.
func MirrorProviders(mirror fs.FS) ([]string, error) {
	var found []string
	err := fs.WalkDir(mirror, ".", func(p string, entry fs.DirEntry, err error) error {
		if err != nil {
			if p == "." && errors.Is(err, fs.ErrNotExist) {
				return fs.SkipAll
			}
			return err
		}
		parts := strings.Split(p, "/")
		switch {
		case p == ".":
			return nil
		case !entry.IsDir():
			return nil
		case len(parts) == 1 && !mirrorHost().MatchString(parts[0]),
			len(parts) > 1 && !mirrorPart().MatchString(parts[len(parts)-1]):
			return fs.SkipDir
		case len(parts) == 3:
			holds, err := holdsProvider(mirror, p)
			if holds {
				found = append(found, p)
			}
			if err != nil {
				return err
			}
			return fs.SkipDir
		default:
			return nil
		}
	})
	if err != nil {
		return nil, fmt.Errorf("listing provider mirror: %w", err)
	}
	slices.Sort(found)
	return found, nil
}

// holdsProvider reports whether a directory of a mirror holds a packed or an
// unpacked provider.
func holdsProvider(mirror fs.FS, dir string) (bool, error) {
	entries, err := fs.ReadDir(mirror, dir)
	if err != nil {
		return false, err
	}
	prefix := "terraform-provider-" + path.Base(dir) + "_"
	return slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		packed := !e.IsDir() && strings.HasPrefix(e.Name(), prefix) && strings.HasSuffix(e.Name(), ".zip")
		unpacked := e.IsDir() && e.Name() != "" && '0' <= e.Name()[0] && e.Name()[0] <= '9'
		return packed || unpacked
	}), nil
}

// MirrorVersions lists the versions that a mirror has of a provider, as they are
// spelled in it.
func MirrorVersions(mirror fs.FS, provider string) []string {
	entries, err := fs.ReadDir(mirror, provider)
	if err != nil {
		return nil
	}
	var found []string
	for _, e := range entries {
		name := e.Name()
		if rest, packed := strings.CutPrefix(name, "terraform-provider-"+path.Base(provider)+"_"); packed && !e.IsDir() {
			name, _, _ = strings.Cut(rest, "_")
		} else if !e.IsDir() {
			continue
		}
		if name != "" && '0' <= name[0] && name[0] <= '9' {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}
