package workdir

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// CLIConfig returns the configuration of the engine's command line: it disables the
// checkpoint, and takes exactly the listed providers (registry.opentofu.org/
// hashicorp/random) from a mirror directory and all others from their registries. A
// listed provider never falls back to the network, and another one is never taken
// from the mirror, so that neither can replace the other.
func CLIConfig(mirrorProviders []string, mirrorDir string) File {
	var b strings.Builder
	b.WriteString("disable_checkpoint = true\n")
	if len(mirrorProviders) > 0 {
		list := make([]string, 0, len(mirrorProviders))
		for _, p := range slices.Compact(slices.Sorted(slices.Values(mirrorProviders))) {
			list = append(list, strconv.Quote(p))
		}
		all := "[" + strings.Join(list, ", ") + "]"
		fmt.Fprintf(&b, `
provider_installation {
  filesystem_mirror {
    path    = %s
    include = %s
  }
  direct {
    exclude = %s
  }
}
`, strconv.Quote(mirrorDir), all, all)
	}
	return File{Path: CLIConfigPath, Mode: 0o600, Content: []byte(b.String())}
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
