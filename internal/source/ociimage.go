package source

import (
	"context"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/terrier-iac/terrier/internal/archive"
)

// Code may be in a container image that a build has made of it: below the working
// directory, in any of the layers.
//
//	layers    each without what is elsewhere, compared with its digest
//	files     of all layers, as a container would see them: what a layer deletes is gone
//	archive   of these files, extracted and packed as that of any artifact

// What an image may have, beside the limits of the code in it.
const (
	imageBytes   = 4 << 30  // of all layers, as they are in the registry
	layersBytes  = 16 << 30 // of all layers, uncompressed
	imageEntries = 200_000  // of all layers, at or below the working directory
	imageNames   = 64 << 20 // bytes of the names of these entries, which are in memory together
	imageConfig  = 4 << 20  // bytes of the configuration, which is read into memory
	codeBytes    = 1 << 30  // with the names of the files
)

// CheckConfig refuses an image whose configuration is too large to be read into memory. Call
// it before its ConfigFile.
func CheckConfig(image v1.Image) error {
	manifest, err := image.Manifest()
	if err != nil {
		return ociFault("reading the manifest", err)
	}
	if size := manifest.Config.Size; size < 0 || size > imageConfig {
		return invalid(ReasonLayer, "the configuration of the image has %d bytes, and may have %d: build it with fewer labels and variables", size, imageConfig)
	}
	return nil
}

// platform is the one whose image is taken of several: its files may be programs, which
// run beside the controller or in pods of its image.
func platform() v1.Platform { return v1.Platform{OS: "linux", Architecture: runtime.GOARCH} }

// fetchImage writes the files below the working directory of an image.
func (o *OCI) fetchImage(ctx context.Context, r *ociRemote, digest ociDigest, w io.Writer) (map[string]string, error) {
	image, err := remote.Image(r.repo.Digest(string(digest)), append(r.options, remote.WithPlatform(platform()))...)
	if err != nil {
		return nil, ociFault("fetching the manifest", err)
	}
	manifest, err := image.Manifest()
	if err != nil {
		return nil, ociFault("reading the manifest", err)
	}
	if err := CheckConfig(image); err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, ociFault("reading the configuration of the image", err)
	}
	dir := strings.TrimPrefix(path.Clean("/"+config.Config.WorkingDir), "/")
	if dir == "" {
		return nil, invalid(ReasonLayer, "the image has no working directory: set WORKDIR in its Dockerfile to the directory with the code")
	}
	size := int64(0)
	for _, l := range manifest.Layers {
		if size += l.Size; l.Size < 0 || size > imageBytes {
			return nil, invalid(ReasonLayer, "the image is larger than %d bytes: build a smaller one with the code", int64(imageBytes))
		}
	}
	layers, err := image.Layers()
	if err != nil {
		return nil, ociFault("reading the layers", err)
	}
	budget := &layerBudget{ctx: ctx, bytes: layersBytes, entries: imageEntries, names: imageNames}
	for i, l := range layers {
		layers[i] = codeLayer{Layer: l, dir: dir, budget: budget}
	}
	return declared(manifest.Annotations), scratch(o.Scratch, func(at string) error {
		spooled := filepath.Join(at, "code")
		if err := spoolCode(codeImage{image, layers}, dir, spooled); err != nil {
			return ociFault("reading the image", err)
		}
		return o.convert(spooled, w)
	})
}

// codeImage is an image of other layers.
type codeImage struct {
	v1.Image
	layers []v1.Layer
}

// Layers implements v1.Image.
func (i codeImage) Layers() ([]v1.Layer, error) { return i.layers, nil }

// spoolCode writes an archive of the files below dir, under their names in it.
func spoolCode(image v1.Image, dir, to string) (err error) {
	files := mutate.Extract(image)
	defer func() { err = errors.Join(err, files.Close()) }()
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	found := false
	err = archive.Filter(files, f, codeBytes, func(name string) (string, error) {
		name, below := strings.CutPrefix(path.Clean(name), dir+"/")
		if !below {
			return "", nil
		}
		found = true
		return name, nil
	})
	if err == nil && !found {
		err = invalid(ReasonLayer, "the image has nothing below its working directory /%s: copy the code there", dir)
	}
	return err
}

// layerBudget is what is left for the layers of one image together.
type layerBudget struct {
	ctx     context.Context
	bytes   int64
	entries int
	names   int
}

// codeLayer is a layer without the entries that say nothing about a directory: those that
// are neither below it nor one of the directories above.
type codeLayer struct {
	v1.Layer
	dir    string
	budget *layerBudget
}

// Uncompressed implements v1.Layer. Reading it to its end compares the digest of the whole
// layer. The library would let the layer choose how much memory its decompression takes.
func (l codeLayer) Uncompressed() (io.ReadCloser, error) {
	compressed, err := l.Layer.Compressed()
	if err != nil {
		return nil, err
	}
	whole, err := archive.Layer(compressed)
	if err != nil {
		return nil, err
	}
	r, w := io.Pipe()
	go func() {
		err := archive.Filter(&boundedLayer{whole, l.budget}, w, layersBytes, l.keep)
		w.CloseWithError(errors.Join(err, whole.Close()))
	}()
	return r, nil
}

// keep names the entries to keep, and counts them.
func (l codeLayer) keep(name string) (string, error) {
	if !l.concerns(name) {
		return "", nil
	}
	if l.budget.entries--; l.budget.entries < 0 {
		return "", invalid(ReasonLayer, "the layers of the image have more than %d files below its working directory", imageEntries)
	}
	if l.budget.names -= len(name); l.budget.names < 0 {
		return "", invalid(ReasonLayer, "the names of the files below the working directory of the image have more than %d bytes together", imageNames)
	}
	return name, nil
}

// concerns reports whether an entry is below the directory, or is or deletes one of those
// above it.
func (l codeLayer) concerns(name string) bool {
	const deletes, empties = ".wh.", ".wh..wh..opq"
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	if strings.HasPrefix(name, l.dir+"/") {
		return true
	}
	parent, base := path.Split(name)
	if base == empties {
		return strings.HasPrefix(l.dir+"/", parent)
	}
	return strings.HasPrefix(l.dir+"/", parent+strings.TrimPrefix(base, deletes)+"/")
}

// boundedLayer ends with an error at the bounds of all layers together.
type boundedLayer struct {
	io.Reader
	budget *layerBudget
}

func (b *boundedLayer) Read(p []byte) (int, error) {
	if err := b.budget.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := b.Reader.Read(p)
	if b.budget.bytes -= int64(n); b.budget.bytes < 0 {
		return 0, invalid(ReasonLayer, "the layers of the image are larger than %d bytes: build a smaller one with the code", int64(layersBytes))
	}
	return n, err
}
