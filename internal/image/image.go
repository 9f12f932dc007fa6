// Package image makes images of stacks: a base image and one layer with the code of the
// stack at its revision, pushed to a registry of the user.
//
// It needs no daemon, no privilege and no Dockerfile, and runs nothing of what it packs. If a
// source has a Dockerfile and the operator allows it, the base is built from that elsewhere.
// The same code on the same base is the same image, byte for byte, so that what did not
// change is neither built nor sent again. An image is named by its digest: a tag can be
// moved by any user of the registry.
//
// A pod starts from the image. For a run that is a process, the code is read back from the
// registry (code.go).
//
// Start reading at Builder.Ensure.
package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/source"
)

// The reasons of this package's faults.
const (
	ReasonName  = "ImageNameInvalid"
	ReasonBase  = "BaseImageFailed"
	ReasonBuild = "ImageBuildFailed"
	ReasonPush  = "ImagePushFailed"
	ReasonCode  = "ImageCodeFailed"
	ReasonAuth  = "AuthenticationFailed"
)

// Directory is where the code is in the image.
const Directory = "terrier/module"

// format is part of every tag. It changes when the same inputs make another image.
const format = "1"

// timeout is the longest that an image takes.
const timeout = 10 * time.Minute

// Wanted says what an image is to hold, and where it is to be.
type Wanted struct {
	Name      string // of the repository, as location.ParseImage returns it
	Namespace string // of the stack: two namespaces never share a tag
	Archive   string // the file with the code
	Source    string // the digest of that file: sha256:…
	Revision  string // for people
	Keys      *source.Keyring
	Login     []byte // what Keys were read from, for the build of a Dockerfile
}

// Made is an image that is in its registry.
type Made struct {
	Ref  string // the name of the image, with its digest
	Code string // the digest of the code that was read back from it, packed again; empty where runs start from the image
}

// Builder makes images on one base. Make one, and share it.
type Builder struct {
	Base     string          // the name of the base image; with none an image has the code alone
	BaseKeys *source.Keyring // nil asks with the keys of the stack
	Code     Store           // keeps the code that is read back; nil where runs start from the image
	Out      *outbound.Client
	Scratch  string // where directories for the time of a build are made
	Limits   archive.Limits

	Dockerfiles Dockerfiles // builds those of sources; nil takes a Dockerfile for a file like others

	made     cache.Map[string, Made]       // by tag
	building cache.Map[string, Dockerfile] // address of the source → its Dockerfile, while that is built
}

// Ensure makes sure that the image is in the registry. It may take minutes. It can be
// repeated at any time, and has to be after ErrBuilding.
func (b *Builder) Ensure(ctx context.Context, w Wanted) (Made, error) {
	repo, err := name.NewRepository(w.Name)
	if err != nil {
		return Made{}, fault.New(fault.Invalid, ReasonName, fmt.Errorf("%.80q is not the name of a repository", w.Name))
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := b.stillBuilding(ctx, w); err != nil {
		return Made{}, err
	}
	to, err := b.speak(ctx, repo, w.Keys)
	if err != nil {
		return Made{}, err
	}
	defer to.close()
	on, err := b.base(ctx, w.Keys)
	if err != nil {
		return Made{}, err
	}
	defer on.close()

	if b.Dockerfiles != nil {
		switch has, err := b.hasDockerfile(w); {
		case err != nil:
			return Made{}, fault.New(fault.Of(err), fault.Reason(err, ReasonBuild), fmt.Errorf("looking for a Dockerfile: %w", err))
		case has:
			return b.fromDockerfile(ctx, to, on, repo, w)
		}
	}
	return b.fromCode(to, on, repo, w)
}

// fromCode makes an image of a base and the code.
func (b *Builder) fromCode(to connection, under base, repo name.Repository, w Wanted) (Made, error) {
	return b.once(to, repo.Tag("terrier-"+addressOf(under.address(), w)), w, func(there v1.Hash, tag name.Tag) (v1.Hash, error) {
		return b.make(under, w, there, tag, to, nil)
	})
}

// once has an image made and pushed under a tag, unless this process did so and it is there.
func (b *Builder) once(to connection, tag name.Tag, w Wanted, make func(there v1.Hash, tag name.Tag) (v1.Hash, error)) (Made, error) {
	there, err := to.digest(tag)
	if err != nil {
		return Made{}, failed(ReasonPush, "looking for "+tag.String(), err)
	}
	repo := tag.Context()
	if made, known := b.made.Get(tag.String()); known && made.Ref == repo.Digest(there.String()).String() && b.Holds(made) {
		return made, nil
	}
	digest, err := make(there, tag)
	if err != nil {
		return Made{}, err
	}
	made := Made{Ref: repo.Digest(digest.String()).String()}
	if b.Code != nil {
		if made.Code, err = b.readBack(repo.Digest(digest.String()), to, w); err != nil {
			return Made{}, err
		}
	}
	b.made.Put(tag.String(), made)
	return made, nil
}

// addressOf is the address of the content of an image, and of the namespace that it is for.
func addressOf(base string, w Wanted) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", []string{format, base, w.Source, w.Revision, w.Namespace}))
	return hex.EncodeToString(sum[:16])
}

// connection is how to speak to one registry.
type connection struct {
	options []remote.Option
	close   func()
}

func (b *Builder) speak(ctx context.Context, repo name.Repository, keys *source.Keyring) (connection, error) {
	client, err := b.Out.HTTP(outbound.Options{PlainHTTP: repo.Scheme() == "http" && source.OnThisMachine(repo.RegistryStr())})
	if err != nil {
		return connection{}, err
	}
	return connection{close: client.CloseIdleConnections, options: []remote.Option{
		remote.WithContext(ctx), remote.WithTransport(client.Transport), remote.WithAuthFromKeychain(keys),
	}}, nil
}

// digest is what a tag points to, the zero Hash if it is not there.
func (c connection) digest(tag name.Tag) (v1.Hash, error) {
	head, err := remote.Head(tag, c.options...)
	if answer, ok := errors.AsType[*transport.Error](err); ok && answer.StatusCode == http.StatusNotFound {
		return v1.Hash{}, nil
	}
	if err != nil {
		return v1.Hash{}, err
	}
	return head.Digest, nil
}

// base is what an image is made on.
type base struct {
	*remote.Descriptor // nil if that is nothing
	close              func()
}

// address is the address of the content of a base.
func (b base) address() string {
	if b.Descriptor == nil {
		return "scratch " + scratchPlatform.String()
	}
	return b.Digest.String()
}

// base finds the base image as it is now. Credentials go to the registry alone that they
// are for.
func (b *Builder) base(ctx context.Context, keys *source.Keyring) (base, error) {
	if b.Base == "" {
		return base{close: func() {}}, nil
	}
	ref, err := name.ParseReference(b.Base)
	if err != nil {
		return base{}, fault.New(fault.Invalid, ReasonBase, fmt.Errorf("the base image %.80q has no valid name: the operator has to correct --stack-image-base", b.Base))
	}
	if b.BaseKeys != nil {
		keys = b.BaseKeys
	}
	from, err := b.speak(ctx, ref.Context(), keys)
	if err != nil {
		return base{}, err
	}
	got, err := remote.Get(ref, from.options...)
	if err != nil {
		from.close()
		return base{}, failed(ReasonBase, "reading the base image "+ref.String(), err)
	}
	return base{got, from.close}, nil
}

// failed gives an error of a registry its kind.
func failed(reason, doing string, err error) error {
	if fault.Of(err) != fault.Broken {
		return fmt.Errorf("%s: %w", doing, err)
	}
	kind := fault.Broken
	if answer, ok := errors.AsType[*transport.Error](err); ok {
		switch answer.StatusCode {
		case http.StatusUnauthorized, http.StatusForbidden:
			kind, reason = fault.Denied, ReasonAuth
		case http.StatusNotFound:
			kind = fault.Missing
		}
	}
	return fault.New(kind, reason, fmt.Errorf("%s: %w", doing, err))
}

// scratch makes a directory for the time of use.
func (b *Builder) scratch(use func(dir string) error) error {
	dir, err := os.MkdirTemp(b.Scratch, "image-")
	if err != nil {
		return fmt.Errorf("making a scratch directory: %w", err)
	}
	return errors.Join(use(dir), os.RemoveAll(dir))
}

// layer packs the code below Directory, into a file in dir.
func (b *Builder) layer(dir, code string) (string, error) {
	tree := filepath.Join(dir, "tree")
	into := filepath.Join(tree, filepath.FromSlash(Directory))
	if err := os.MkdirAll(into, 0o700); err != nil {
		return "", fmt.Errorf("making a scratch directory: %w", err)
	}
	if err := b.unpack(code, into); err != nil {
		return "", err
	}
	layer := filepath.Join(dir, "layer.tar.gz")
	out, err := os.OpenFile(layer, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", fmt.Errorf("making a scratch file: %w", err)
	}
	return layer, errors.Join(archive.Pack(tree, nil, out, b.layerLimits()), out.Close())
}

// unpack unpacks the code of a source into a directory.
func (b *Builder) unpack(code, into string) error {
	f, err := os.Open(code)
	if err != nil {
		return fmt.Errorf("opening the code: %w", err)
	}
	defer f.Close()
	return archive.Extract(f, into, b.Limits)
}

// layerLimits are the limits of the code, below Directory.
func (b *Builder) layerLimits() archive.Limits {
	limits := b.Limits
	if limits.Depth > 0 {
		limits.Depth += strings.Count(Directory, "/") + 1
	}
	return limits
}
