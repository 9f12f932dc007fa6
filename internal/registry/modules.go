package registry

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/fault"
)

// ModuleVersion is what a registry knows about one version of a module.
type ModuleVersion struct {
	Version   address.Version `json:"-"`
	File      string          `json:"file"`             // the name of the archive
	SHA256    string          `json:"sha256,omitempty"` // in hex; empty if another program published it
	Size      int64           `json:"size,omitempty"`   // in bytes; zero if another program published it
	Published time.Time       `json:"published,omitzero"`
	By        string          `json:"by,omitempty"`
	Origin    *Origin         `json:"origin,omitempty"`    // nil: a user uploaded the archive
	Retracted *Retraction     `json:"retracted,omitempty"` // nil: clients may use it
	Unchanged bool            `json:"-"`                   // the answer to an upload of what is published
}

// Origin is the tag of a git repository that a version was made from.
type Origin struct {
	Repository string    `json:"repository"` // its URL
	Directory  string    `json:"directory,omitempty"`
	Tag        string    `json:"tag"`
	Commit     string    `json:"commit"`
	Tagger     string    `json:"tagger,omitempty"` // NAME <EMAIL>; who committed, if the tag is not annotated
	Tagged     time.Time `json:"tagged,omitzero"`
	Signer     string    `json:"signer,omitempty"` // the ID of the OpenPGP key or the fingerprint of the SSH key, if a signature was verified
}

// modules is the part of a registry that has modules.
type modules struct {
	*common
	index *indexes[moduleIndex]
}

// moduleIndex is the index of a module.
type moduleIndex struct {
	Versions map[address.Version]ModuleVersion `json:"versions"`
	inOrder  []ModuleVersion
}

func (m moduleIndex) entries() int { return len(m.Versions) }

func (m moduleIndex) arranged() moduleIndex {
	m.inOrder = make([]ModuleVersion, 0, len(m.Versions))
	for version, v := range m.Versions {
		v.Version = version
		m.inOrder = append(m.inOrder, v)
	}
	address.SortByVersion(m.inOrder, func(v ModuleVersion) address.Version { return v.Version })
	return m
}

// moduleFormats are the ends of the names of archives that clients unpack. Where a
// version has several archives, the first of these counts.
func moduleFormats() []string {
	return []string{string(archive.TarGz), string(archive.Zip), ".tgz", ".tar.xz", ".txz", ".tar.bz2", ".tbz2"}
}

// ModuleKey is the key of an archive of a module.
func ModuleKey(m address.Module, file string) string { return modulesPrefix + m.String() + "/" + file }

func moduleIndexKey(m address.Module) string { return "index/" + modulesPrefix + m.String() + ".json" }

func moduleFile(m address.Module) string { return m.Namespace + "-" + m.Name + "-" + m.System + "-" }

// ModuleVersions are all versions of a module, the lowest first, those that are
// retracted included.
func (r *modules) ModuleVersions(ctx context.Context, m address.Module) ([]ModuleVersion, error) {
	all, err := r.ListedModule(ctx, m)
	return slices.Clone(all.Versions), err
}

// ListedModule are the versions of ModuleVersions, with their edition.
func (r *modules) ListedModule(ctx context.Context, m address.Module) (Listed[ModuleVersion], error) {
	index, edition, err := r.known(ctx, m)
	if err != nil {
		return Listed[ModuleVersion]{}, err
	}
	return Listed[ModuleVersion]{index.inOrder, edition}, nil
}

// ModuleVersion is one version of a module, unless it is retracted.
func (r *modules) ModuleVersion(ctx context.Context, m address.Module, v address.Version) (ModuleVersion, error) {
	index, _, err := r.known(ctx, m)
	if err != nil {
		return ModuleVersion{}, err
	}
	found, ok := index.Versions[v]
	switch {
	case !ok:
		return ModuleVersion{}, errVersion(m, v)
	case found.Retracted != nil:
		return ModuleVersion{}, errRetracted(m, v, found.Retracted)
	}
	found.Version = v
	return found, nil
}

// Latest stands for the newest version that clients may use.
const Latest = "latest"

// Choose is the version of a list that a text names, also if it is retracted. Latest is
// the newest one that is neither retracted nor a pre-release, if there is one.
func Choose(m address.Module, all []ModuleVersion, text string) (ModuleVersion, error) {
	if text != Latest {
		v, err := address.ParseVersion(text)
		if err != nil {
			return ModuleVersion{}, err
		}
		if i := slices.IndexFunc(all, func(one ModuleVersion) bool { return one.Version == v }); i >= 0 {
			return all[i], nil
		}
		return ModuleVersion{}, errVersion(m, v)
	}
	newest, better := -1, -1
	rank := func(v ModuleVersion) int {
		switch {
		case v.Retracted != nil:
			return 0
		case v.Version.Prerelease():
			return 1
		default:
			return 2
		}
	}
	for i, v := range all {
		if r := rank(v); r >= better {
			newest, better = i, r
		}
	}
	if newest < 0 {
		return ModuleVersion{}, fault.New(fault.Missing, ModuleMissing, fmt.Errorf("there is no module %s", m))
	}
	return all[newest], nil
}

func (r *modules) known(ctx context.Context, m address.Module) (moduleIndex, Edition, error) {
	index, edition, err := r.index.edition(ctx, moduleIndexKey(m), named(r.common, Modules, m.Namespace, m.Name+"/"+m.System, r.listModule(m)))
	if err == nil && index.entries() == 0 {
		err = fault.New(fault.Missing, ModuleMissing, fmt.Errorf("there is no module %s", m))
	}
	return index, edition, err
}

// listModule finds the versions of a module that has no index.
func (r *modules) listModule(m address.Module) rebuild[moduleIndex] {
	return func(ctx context.Context) (moduleIndex, error) {
		index := moduleIndex{Versions: map[address.Version]ModuleVersion{}}
		keys, err := r.store.List(ctx, ModuleKey(m, ""))
		if err != nil {
			return index, err
		}
		for _, key := range keys {
			file := path.Base(key)
			rest, ours := strings.CutPrefix(file, moduleFile(m))
			format := slices.IndexFunc(moduleFormats(), func(f string) bool { return strings.HasSuffix(rest, f) })
			if !ours || format < 0 || key != ModuleKey(m, file) {
				continue
			}
			v, err := address.ParseVersion(strings.TrimSuffix(rest, moduleFormats()[format]))
			if err != nil {
				r.o.Log.Warn("archive has no version in its name", "key", key, "err", err)
				continue
			}
			if before, ok := index.Versions[v]; !ok || formatOf(before.File) > format {
				index.Versions[v] = ModuleVersion{File: file}
			}
		}
		if index.entries() == 0 {
			return index, nil
		}
		if err := r.addName(ctx, Modules, m.Namespace, m.Name+"/"+m.System); err != nil {
			r.o.Log.Warn("names not written", "module", m.String(), "err", err)
		}
		return index, nil
	}
}

func formatOf(file string) int {
	return slices.IndexFunc(moduleFormats(), func(f string) bool { return strings.HasSuffix(file, f) })
}

// PublishModule publishes a version of a module: a gzipped tar archive, or a zip archive.
// The same bytes again are no error. Other bytes under a version that exists are a
// Conflict.
func (r *modules) PublishModule(ctx context.Context, m address.Module, v address.Version, u Upload) (ModuleVersion, error) {
	upload, err := r.spool(ctx, m.Namespace, "the archive of the module", u, r.o.MaxArchive)
	if err != nil {
		return ModuleVersion{}, err
	}
	defer upload.Close()
	format, wrong, err := r.checkModule(ctx, upload)
	if err != nil {
		return ModuleVersion{}, err
	}
	made := ModuleVersion{
		Version: v, File: moduleFile(m) + string(v) + string(format), SHA256: upload.SHA256, Size: upload.Size,
		Published: r.o.Now().UTC().Truncate(time.Second), By: u.By, Origin: u.Origin,
	}
	key := ModuleKey(m, made.File)
	if blob.CheckKey(key) != nil {
		return ModuleVersion{}, fault.New(fault.Invalid, address.Reason, fmt.Errorf("the name of the archive of %s %s is longer than 200 characters: shorten the names of the module", m, v))
	}
	index, err := r.index.read(ctx, moduleIndexKey(m), r.listModule(m))
	if err != nil {
		return ModuleVersion{}, err
	}
	there, ok := index.Versions[v]
	if ok && !completes(made, there) {
		return r.sameModule(m, there, made)
	}
	if wrong != nil {
		return ModuleVersion{}, wrong
	}
	if !ok {
		if err := r.usage.fits(ctx, m.Namespace, 1, made.Size); err != nil {
			return ModuleVersion{}, err
		}
	}
	deed := r.deed(ModulePublished, made.By, m.Namespace, m, made.Version)
	deed.Details = map[string]string{"sha256": made.SHA256, "bytes": strconv.FormatInt(made.Size, 10)}
	if index.entries() == 0 { // from here on a list of the store has it
		if err := deed.done(ctx); err != nil {
			return ModuleVersion{}, err
		}
	}
	if same, err := r.put(ctx, key, upload); err != nil {
		return ModuleVersion{}, err
	} else if !same {
		return ModuleVersion{}, errExists(m, v)
	}
	if err := r.addName(ctx, Modules, m.Namespace, m.Name+"/"+m.System); err != nil {
		return ModuleVersion{}, err
	}
	return r.indexModule(ctx, deed, m, made)
}

func isConfiguration(file string) bool {
	file = strings.TrimSuffix(file, ".json")
	return strings.HasSuffix(file, ".tf") || strings.HasSuffix(file, ".tofu")
}

// completes reports whether an upload is of the version that an index names without a
// checksum: another program stored the archive, or this one crashed after it did.
func completes(made, there ModuleVersion) bool { return there.SHA256 == "" && there.File == made.File }

// sameModule is the answer to an upload of a version that is published.
func (r *modules) sameModule(m address.Module, there, made ModuleVersion) (ModuleVersion, error) {
	switch {
	case there.SHA256 != made.SHA256:
		return ModuleVersion{}, errOther(m, made.Version, there)
	case there.Retracted != nil:
		return ModuleVersion{}, fault.New(fault.Conflict, VersionRetracted, fmt.Errorf("version %s of %s was retracted: %s: restore it, or publish a new version", made.Version, m, there.Retracted.Reason))
	}
	there.Version, there.Unchanged = made.Version, true
	return there, nil
}

// indexModule puts a version into the index, after its archive was stored. Of two
// archives of one version, in two formats, the one that the index names first stays, and
// the other one is deleted: no later index may take it.
func (r *modules) indexModule(ctx context.Context, deed *deeds, m address.Module, made ModuleVersion) (ModuleVersion, error) {
	result, orphan := made, false
	err := r.index.update(ctx, moduleIndexKey(m), r.listModule(m), func(index *moduleIndex) (err error) {
		there, ok := index.Versions[made.Version]
		if ok && !completes(made, there) {
			orphan = there.File != made.File
			result, err = r.sameModule(m, there, made)
			return err
		}
		result.Retracted = there.Retracted
		if index.Versions == nil {
			index.Versions = map[address.Version]ModuleVersion{}
		}
		index.Versions[made.Version] = result
		return deed.done(ctx)
	})
	if orphan {
		err = errors.Join(err, r.store.Delete(ctx, ModuleKey(m, made.File)))
	}
	return result, err
}

// RetractModule withdraws a version of a module.
func (r *modules) RetractModule(ctx context.Context, m address.Module, v address.Version, by, reason string) error {
	retraction, err := r.retraction(by, reason)
	if err != nil {
		return err
	}
	deed := r.deed(ModuleRetracted, by, m.Namespace, m, v)
	deed.Reason = retraction.Reason
	return r.changeModule(ctx, deed, m, v, func(there *ModuleVersion) { there.Retracted = retraction })
}

// RestoreModule ends the retraction of a version of a module.
func (r *modules) RestoreModule(ctx context.Context, m address.Module, v address.Version, by string) error {
	return r.changeModule(ctx, r.deed(ModuleRestored, by, m.Namespace, m, v), m, v, func(there *ModuleVersion) { there.Retracted = nil })
}

func (r *modules) changeModule(ctx context.Context, deed *deeds, m address.Module, v address.Version, change func(*ModuleVersion)) error {
	if _, _, err := r.known(ctx, m); err != nil {
		return err
	}
	return r.index.update(ctx, moduleIndexKey(m), r.listModule(m), func(index *moduleIndex) error {
		there, ok := index.Versions[v]
		if !ok {
			return errVersion(m, v)
		}
		change(&there)
		index.Versions[v] = there
		return deed.done(ctx)
	})
}
