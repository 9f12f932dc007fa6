package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/fault"
)

// A source with a Dockerfile at its root becomes an image in three steps:
//
//	the code      on the base of the operator, as for a source without a Dockerfile
//	the build     of the Dockerfile, elsewhere, from the code in that first image
//	the image     the build, the programs of a run, and the code

// ErrBuilding says that a Dockerfile is being built. Ask again later.
var ErrBuilding = errors.New("the Dockerfile is being built")

// ReasonDockerfile is the reason of a Dockerfile that cannot be built.
const ReasonDockerfile = "DockerfileFailed"

// dockerfile is the name of a Dockerfile, at the root of a source.
const dockerfile = "Dockerfile"

// programs is where a base has terrier-runner and the engine.
const programs = "usr/local/bin"

// Dockerfiles builds images from Dockerfiles, away from this process.
type Dockerfiles interface {
	// Build returns the digest of the image once it was pushed, and ErrBuilding before. It is
	// called again and again, by each process that wants the image.
	Build(context.Context, Dockerfile) (digest string, err error)
}

// Dockerfile is one image that is to be built.
type Dockerfile struct {
	Key       string // equal for equal inputs and one repository, and of no other namespace; lower-case letters and digits
	Namespace string // of the stack
	Code      string // the image with the code below Directory, by its digest
	To        string // repository:tag
	Login     []byte // a Docker configuration, which may have no entry
}

// fromDockerfile makes an image of a source with a Dockerfile. Base is that of the operator,
// whose programs every run needs.
func (b *Builder) fromDockerfile(ctx context.Context, to connection, under base, repo name.Repository, w Wanted) (Made, error) {
	address := addressOf(under.address(), w)
	return b.once(to, repo.Tag("terrier-run-"+address), w, func(there v1.Hash, tag name.Tag) (v1.Hash, error) {
		code, err := b.fromCode(to, under, repo, w)
		if err != nil {
			return v1.Hash{}, err
		}
		login, err := onlyLogins(w.Login)
		if err != nil {
			return v1.Hash{}, err
		}
		digest, err := b.buildDockerfile(ctx, w, Dockerfile{Key: addressOf(repo.String()+" "+under.address(), w), Namespace: w.Namespace, Code: code.Ref, To: repo.Tag("terrier-dockerfile-" + address).String(), Login: login})
		if err != nil {
			return v1.Hash{}, err
		}
		by, err := name.NewDigest(repo.String() + "@" + digest)
		if err != nil {
			return v1.Hash{}, fmt.Errorf("building the Dockerfile: %.80q is no digest", digest)
		}
		// What the registry returns is compared with the digest.
		built, err := remote.Get(by, to.options...)
		if err != nil {
			return v1.Hash{}, failed(ReasonDockerfile, "reading the image that was built from the Dockerfile", err)
		}
		packed := map[v1.Hash]v1.Layer{}
		return b.make(base{Descriptor: built}, w, there, tag, to, func(dir string, image v1.Image) (v1.Image, error) {
			return withPrograms(dir, under.Descriptor, image, packed)
		})
	})
}

// buildDockerfile builds a Dockerfile, and keeps in mind that it is built.
func (b *Builder) buildDockerfile(ctx context.Context, w Wanted, d Dockerfile) (string, error) {
	digest, err := b.Dockerfiles.Build(ctx, d)
	if errors.Is(err, ErrBuilding) {
		b.building.Put(w.place(), d)
		return "", err
	}
	b.building.Delete(w.place())
	if err != nil {
		return "", fault.New(fault.Of(err), fault.Reason(err, ReasonDockerfile), fmt.Errorf("building the Dockerfile: %s", w.Keys.Hide(err.Error())))
	}
	return digest, nil
}

// stillBuilding asks only whether a build has ended that is known to be active: registries
// count requests.
func (b *Builder) stillBuilding(ctx context.Context, w Wanted) error {
	d, active := b.building.Get(w.place())
	if !active {
		return nil
	}
	_, err := b.buildDockerfile(ctx, w, d)
	return err
}

// place is the address of what is wanted, on whatever base.
func (w Wanted) place() string { return w.Name + ":" + addressOf("", w) }

// hasDockerfile reports whether a source has a Dockerfile at its root.
func (b *Builder) hasDockerfile(w Wanted) (bool, error) {
	f, err := os.Open(w.Archive)
	if err != nil {
		return false, fmt.Errorf("opening the code: %w", err)
	}
	defer f.Close()
	return archive.Has(f, dockerfile, b.Limits)
}

// onlyLogins are the credentials of a Docker configuration. It may also name programs, which
// are not run.
func onlyLogins(config []byte) ([]byte, error) {
	var logins struct {
		Auths map[string]json.RawMessage `json:"auths"`
	}
	if len(config) > 0 {
		if err := json.Unmarshal(config, &logins); err != nil {
			// The error may quote what it read.
			return nil, fault.New(fault.Invalid, ReasonAuth, errors.New("the registry credentials are not in the form of a Docker configuration"))
		}
	}
	return json.Marshal(logins)
}

// withPrograms puts the programs of a base onto an image, and has it start as the base starts.
// The programs are static. Packed has those of each image of the base that were packed before.
func withPrograms(dir string, base *remote.Descriptor, onto v1.Image, packed map[v1.Hash]v1.Layer) (v1.Image, error) {
	file, err := onto.ConfigFile()
	if err != nil {
		return nil, err
	}
	of := v1.Platform{OS: file.OS, Architecture: file.Architecture, Variant: file.Variant}
	from, err := forPlatform(base, of)
	if err != nil {
		return nil, err
	}
	start, err := from.ConfigFile()
	if err != nil {
		return nil, err
	}
	digest, err := from.Digest()
	if err != nil {
		return nil, err
	}
	layer, known := packed[digest]
	if !known {
		file, err := packPrograms(from, dir)
		if err != nil {
			return nil, err
		}
		if layer, err = tarball.LayerFromFile(file); err != nil {
			return nil, err
		}
		packed[digest] = layer
	}
	image, err := mutate.Append(onto, mutate.Addendum{Layer: layer, History: v1.History{Created: epoch, CreatedBy: "terrier", Comment: "the programs of a run, in /" + programs}})
	if err != nil {
		return nil, err
	}
	if file, err = image.ConfigFile(); err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.Config.Entrypoint, file.Config.Cmd, file.Config.User = start.Config.Entrypoint, start.Config.Cmd, start.Config.User
	file.Config.WorkingDir, file.Config.Healthcheck = start.Config.WorkingDir, nil
	return mutate.ConfigFile(image, file)
}

// forPlatform is a base for one platform.
func forPlatform(base *remote.Descriptor, of v1.Platform) (v1.Image, error) {
	if !base.MediaType.IsIndex() {
		return base.Image()
	}
	index, err := base.ImageIndex()
	if err != nil {
		return nil, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	for _, m := range manifest.Manifests {
		if m.MediaType.IsImage() && m.Platform != nil && m.Platform.OS == of.OS && m.Platform.Architecture == of.Architecture {
			return index.Image(m.Digest)
		}
	}
	return nil, fmt.Errorf("the base image of --stack-image-base is not for %.80s/%.80s, for which the Dockerfile was built", of.OS, of.Architecture)
}

// programLimits bound the programs, and all of the base that is read for them.
var programLimits = archive.Limits{Bytes: 2 << 30, File: 1 << 30, Entries: 1 << 20}

// packPrograms packs the programs of an image, in the order that its layers have them, into a
// file in dir.
func packPrograms(of v1.Image, dir string) (file string, err error) {
	out, err := os.CreateTemp(dir, "programs-*.tar.gz")
	if err != nil {
		return "", fmt.Errorf("making a scratch file: %w", err)
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	content := mutate.Extract(of)
	defer content.Close()
	n, err := archive.Select(content, programs, out, programLimits)
	if err == nil && n == 0 {
		err = fmt.Errorf("the base image of --stack-image-base has no program in /%s", programs)
	}
	return out.Name(), err
}
