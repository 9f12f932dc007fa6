package oci

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry"
	"github.com/terrier-iac/terrier/internal/registry/room"
)

// The keys of what is made from archives of modules:
//
//	oci/modules/NS/NAME/SYSTEM/VERSION.zip      the zip archive of a module that was published as a tar archive
//	index/oci/modules/NS/NAME/SYSTEM.json       checksums and sizes of these, and of zip archives of another program
//
// Both can be deleted: they are made again, with the same bytes.
const (
	zipsPrefix    = "oci/modules/"
	recordsPrefix = "index/oci/modules/"
)

// Bounds.
const (
	mostRecord     = 64 << 20
	mostConversion = 30 * time.Minute // of one archive
	conversions    = 4                // at once: each may need as much of the disk as two archives
	mostGrowth     = 20               // a zip archive has at most so many times the size of the tar archive,
	freeGrowth     = 64 << 20         // unless it has no more bytes than this
	keptFor        = 30 * 24 * time.Hour
)

// zips knows the zip archive of every version of a module.
type zips struct {
	Options
	flights cache.Flight[string, layer]
	slots   chan struct{}
}

// record is what was found out about archives of a module.
type record struct {
	Versions map[address.Version]zipped `json:"versions"`
}

// zipped is the zip archive of a version.
type zipped struct {
	File   string `json:"file"`   // the name of the archive that was published
	SHA256 string `json:"sha256"` // of the zip archive, in hex
	Size   int64  `json:"size"`
}

func newZips(o Options) *zips { return &zips{Options: o, slots: make(chan struct{}, conversions)} }

func recordKey(m address.Module) string { return recordsPrefix + m.String() + ".json" }

func isZip(file string) bool { return strings.HasSuffix(file, string(archive.Zip)) }

// convertible reports whether an archive is a zip archive, or can be made into one.
func convertible(file string) bool {
	return isZip(file) || strings.HasSuffix(file, string(archive.TarGz)) || strings.HasSuffix(file, ".tgz")
}

// ready reports whether the index of the registry has all that is needed.
func ready(v registry.ModuleVersion) bool { return isZip(v.File) && v.SHA256 != "" && v.Size > 0 }

// read returns what was found out about a module.
func (z *zips) read(ctx context.Context, m address.Module) (r record, err error) {
	v, err := z.Store.Open(ctx, recordKey(m))
	if fault.Of(err) == fault.Missing {
		return record{}, nil
	}
	if err != nil {
		return r, err
	}
	defer v.Close()
	b, err := io.ReadAll(blob.Bounded(ctx, v, mostRecord))
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		return r, fmt.Errorf("reading %s: %w: delete it, and it is made again", recordKey(m), err)
	}
	return r, nil
}

// known is the layer of a version, if no archive has to be read for it.
func (z *zips) known(m address.Module, v registry.ModuleVersion, r record) (layer, bool) {
	if ready(v) {
		return layerOf(m, v, zipped{v.File, v.SHA256, v.Size}), true
	}
	found, ok := r.Versions[v.Version]
	return layerOf(m, v, found), ok && found.File == v.File
}

func layerOf(m address.Module, v registry.ModuleVersion, z zipped) layer {
	l := layer{key: registry.ModuleKey(m, z.File), sha256: z.SHA256, size: z.Size}
	if !isZip(z.File) {
		l.key = zipsPrefix + m.String() + "/" + string(v.Version) + string(archive.Zip)
	}
	l.file = strings.ReplaceAll(m.String(), "/", "-") + "-" + string(v.Version) + string(archive.Zip)
	return l
}

// layer is the layer of a version. The first request reads the archive, once for all who
// ask.
func (z *zips) layer(ctx context.Context, m address.Module, v registry.ModuleVersion) (layer, error) {
	var r record
	var err error
	if !ready(v) {
		if r, err = z.read(ctx, m); err != nil {
			return layer{}, err
		}
	}
	if l, ok := z.known(m, v, r); ok {
		return l, nil
	}
	return z.once(ctx, m, v)
}

func (z *zips) once(ctx context.Context, m address.Module, v registry.ModuleVersion) (layer, error) {
	return z.flights.Do(ctx, m.String()+" "+string(v.Version), func(ctx context.Context) (layer, error) {
		ctx, cancel := context.WithTimeout(ctx, mostConversion)
		defer cancel()
		select {
		case z.slots <- struct{}{}:
			defer func() { <-z.slots }()
		case <-ctx.Done():
			return layer{}, context.Cause(ctx)
		}
		made, err := z.make(ctx, m, v)
		if err != nil {
			return layer{}, fmt.Errorf("reading the archive of %s %s: %w", m, v.Version, err)
		}
		return layerOf(m, v, made), nil
	})
}

// open opens a zip archive that was made here. If it was deleted, it is made again.
func (z *zips) open(ctx context.Context, m address.Module, l layer) (registry.Archive, error) {
	for tries := 0; ; tries++ {
		v, err := z.Store.Open(ctx, l.key)
		if err == nil {
			return registry.Archive{ReadSeekCloser: v, Name: l.file, Size: v.Size, Modified: v.Modified}, nil
		}
		if fault.Of(err) != fault.Missing || tries > 0 {
			return registry.Archive{}, err
		}
		_, file, _ := strings.Cut(strings.TrimPrefix(l.key, zipsPrefix), m.String()+"/")
		version, err := z.Registry.ModuleVersion(ctx, m, address.Version(strings.TrimSuffix(file, string(archive.Zip))))
		if err != nil {
			return registry.Archive{}, err
		}
		if _, err := z.once(ctx, m, version); err != nil {
			return registry.Archive{}, err
		}
	}
}

// make reads an archive, stores the zip archive that it makes of a tar archive, and then
// records it.
func (z *zips) make(ctx context.Context, m address.Module, v registry.ModuleVersion) (made zipped, err error) {
	key := registry.ModuleKey(m, v.File)
	a, err := z.Registry.OpenArchive(ctx, key)
	if fault.Of(err) == fault.Missing {
		z.Log.Error("archive is gone", "key", key)
		return made, fault.New(fault.Missing, reasonGone, fmt.Errorf("%s is no longer in the storage of the registry: restore it, or publish the same archive again", key))
	}
	if err != nil {
		return made, err
	}
	in, err := z.Room.Spool(ctx, z.Scratch, a, z.MaxArchive)
	if err = errors.Join(err, a.Close()); err != nil {
		return made, err
	}
	defer in.Close()
	if v.SHA256 != "" && in.SHA256 != v.SHA256 {
		return made, fmt.Errorf("%s has changed in the store: it has the checksum %s, and had %s", key, in.SHA256, v.SHA256)
	}
	made = zipped{v.File, in.SHA256, in.Size}
	if !isZip(v.File) {
		if made.SHA256, made.Size, err = z.convert(ctx, layerOf(m, v, made).key, in); err != nil {
			return made, err
		}
	}
	return made, blob.Update(ctx, z.Store, recordKey(m), mostRecord, func(old []byte) ([]byte, error) {
		var r record
		if old != nil {
			if err := json.Unmarshal(old, &r); err != nil {
				return nil, fmt.Errorf("reading %s: %w: delete it, and it is made again", recordKey(m), err)
			}
		}
		if r.Versions == nil {
			r.Versions = map[address.Version]zipped{}
		}
		r.Versions[v.Version] = made
		return json.Marshal(r)
	})
}

// convert makes a zip archive of a tar archive, and stores it. The same archive makes the
// same bytes, so what another process stored is the same as well.
func (z *zips) convert(ctx context.Context, key string, in *room.File) (sum string, size int64, err error) {
	claim, err := z.Room.Claim(0)
	if err != nil {
		return "", 0, err
	}
	defer claim.Close()
	out, err := room.Scratch(z.Scratch)
	if err != nil {
		return "", 0, err
	}
	defer out.Close()
	h := sha256.New()
	to := &bounded{Writer: claim.Writer(io.MultiWriter(out, h)), left: max(freeGrowth, mostGrowth*in.Size)}
	if err := archive.ToZip(in.File, in.Size, to, archive.Limits{}); err != nil {
		if to.left < 0 {
			err = fault.New(fault.Missing, registry.VersionMissing, fmt.Errorf("the archive has %d bytes, and its zip archive would have more than %d: it is not served over OCI: use the registry protocol, or publish a new version as a zip archive", in.Size, max(freeGrowth, mostGrowth*in.Size)))
		}
		return "", 0, err
	}
	if size, err = out.Seek(0, io.SeekEnd); err != nil {
		return "", 0, err
	}
	if err := z.Store.Put(ctx, key, io.NewSectionReader(out, 0, size)); err != nil {
		return "", 0, fmt.Errorf("storing %s: %w", key, err)
	}
	return hex.EncodeToString(h.Sum(nil)), size, nil
}

// bounded is a writer that fails once it gets more than so many bytes. What is left is
// negative from then on.
type bounded struct {
	io.Writer
	left int64
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.left -= int64(len(p)); b.left < 0 {
		return 0, errors.New("the zip archive is too large")
	}
	return b.Writer.Write(p)
}

// Sweep deletes zip archives that were made of tar archives 30 days ago. They are made
// again at their next use.
func (h *Handler) Sweep(ctx context.Context) error {
	return registry.DeleteBefore(ctx, h.Store, zipsPrefix, h.Now().Add(-keptFor))
}
