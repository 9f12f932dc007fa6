// Package publish prepares modules and providers in directories for a registry: it finds
// them, works out their names and versions, and packs them.
//
// It sends nothing. A directory that has uncommitted changes never gets the version of a
// tag, and directories of the engine and of Git are never packed. Start reading at Modules.
package publish

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/source"
)

// The reasons of this package's faults.
const (
	ReasonModule   = source.ReasonModule
	ReasonNoModule = "ModuleMissing"
	ReasonVersion  = "VersionUnclear"
	ReasonProvider = "ProviderInvalid"
	ReasonSecrets  = "SecretsIncluded"
	ReasonSyntax   = "ConfigurationInvalid"
)

func invalid(reason, format string, args ...any) error {
	return fault.New(fault.Invalid, reason, fmt.Errorf(format, args...))
}

// ModuleOptions say which modules to publish, under which names and versions. What they
// name counts more than the metadata file of a module.
type ModuleOptions struct {
	Dir       string
	Recursive bool // every directory with a metadata file, instead of Dir alone

	Namespace, Name, System string
	Version                 string
	FromTag                 bool   // the version is that of a git tag of the commit that is checked out
	TagPrefix               string // what stands before the version in a tag; {namespace}, {name} and {system} are those of the module

	Constraint string   // only versions that match
	Exclude    []string // patterns of a .gitignore file
	Secrets    bool     // publish files that often hold secrets, too
}

// Module is a directory that can be published.
type Module struct {
	Dir     string
	Address address.Module
	Version address.Version
	Skipped string // why it is not to be published; empty if it is

	tree source.ModuleTree
}

// Modules finds the modules of a directory. Those that the options leave out are among
// them, and say why.
func Modules(o ModuleOptions) ([]Module, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	matches, err := constraint(o.Constraint)
	if err != nil {
		return nil, err
	}
	dirs := []string{o.Dir}
	if o.Recursive {
		if dirs, err = found(o.Dir); err != nil {
			return nil, err
		}
	}
	var all []Module
	owners := map[string]string{}
	for _, dir := range dirs {
		m, err := o.module(dir)
		if err != nil {
			return nil, fmt.Errorf("the module in %s: %w", dir, err)
		}
		if other := owners[m.Address.String()]; other != "" {
			return nil, invalid(ReasonModule, "%s and %s have the same name %s: change the metadata of one of them", other, dir, m.Address)
		}
		owners[m.Address.String()] = dir
		if m.Skipped == "" && !matches(m.Version) {
			m.Skipped = fmt.Sprintf("the version does not match %q", o.Constraint)
		}
		all = append(all, m)
	}
	return all, nil
}

func (o ModuleOptions) check() error {
	if info, err := os.Stat(o.Dir); err != nil || !info.IsDir() {
		return fault.New(fault.Missing, "DirectoryMissing", fmt.Errorf("there is no directory %s", o.Dir))
	}
	switch {
	case o.Version != "" && o.FromTag:
		return invalid(ReasonVersion, "--version and --version-from-tag exclude each other")
	case o.TagPrefix != "" && !o.FromTag:
		return invalid(ReasonVersion, "--tag-prefix needs --version-from-tag")
	case o.Recursive && (o.Name != "" || o.System != ""):
		return invalid(ReasonModule, "--recursive publishes several modules, so that --name and --system cannot name them: their metadata files do")
	}
	return nil
}

// found are the directories below dir that have a metadata file.
func found(dir string) ([]string, error) {
	var dirs []string
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name != dir && (d.Name() == ".git" || d.Name() == ".terraform") {
				return fs.SkipDir
			}
			if _, ok, err := metadataFile(name); err != nil || !ok {
				return err
			}
			dirs = append(dirs, name)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("looking for modules in %s: %w", dir, err)
	}
	if len(dirs) == 0 {
		return nil, fault.New(fault.Missing, ReasonNoModule, fmt.Errorf("no directory in %s has a file %s or %s with the name of a module", dir, ownMetadata, boringMetadata))
	}
	return dirs, nil
}

// module reads what the directory says of its module.
func (o ModuleOptions) module(dir string) (Module, error) {
	says, err := readMetadata(dir)
	if err != nil {
		return Module{}, err
	}
	says.Namespace, says.Name, says.System = cmp.Or(o.Namespace, says.Namespace), cmp.Or(o.Name, says.Name), cmp.Or(o.System, says.System)
	for _, part := range []struct{ name, value string }{{"namespace", says.Namespace}, {"name", says.Name}, {"system", says.System}} {
		if part.value == "" {
			return Module{}, invalid(ReasonModule, "the %s of the module is not known: name it with --%[1]s, or in a file %s with: metadata { %[1]s = \"…\" }", part.name, ownMetadata)
		}
	}
	m := Module{Dir: dir}
	if m.Address, err = address.NewModule(says.Namespace, says.Name, says.System); err != nil {
		return Module{}, err
	}
	if m.tree, err = source.OpenModule(dir, o.Exclude); err != nil {
		return Module{}, err
	}
	if !o.Secrets {
		if err := m.checkSecrets(); err != nil {
			return Module{}, err
		}
	}
	text := cmp.Or(o.Version, says.Version)
	if o.FromTag {
		prefix := strings.NewReplacer("{namespace}", says.Namespace, "{name}", says.Name, "{system}", says.System).Replace(o.TagPrefix)
		if text, m.Skipped, err = m.tagged(prefix, o.Recursive); err != nil || m.Skipped != "" {
			return m, err
		}
	}
	if text == "" {
		return Module{}, invalid(ReasonVersion, "the version of the module is not known: name it with --version, take it from a git tag with --version-from-tag, or write it into %s", ownMetadata)
	}
	if m.Version, err = address.ParseVersion(text); err != nil {
		return m, err
	}
	return m, m.checkSyntax()
}

// Pack writes the archive of a module. The same files make the same bytes.
func (m Module) Pack(w io.Writer) error {
	if m.Skipped != "" {
		return errors.New("a module that is left out is not packed")
	}
	if err := m.tree.Pack(w); err != nil {
		return fmt.Errorf("packing %s: %w", m.Dir, err)
	}
	return nil
}
