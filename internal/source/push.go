package source

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/outbound"
)

// The media types that make an artifact one of Flux's.
const (
	MediaTypeConfig  = "application/vnd.cncf.flux.config.v1+json"
	MediaTypeContent = "application/vnd.cncf.flux.content.v1.tar+gzip"
)

// pushIgnored is left out of every push: what version control and the engine
// keep beside the code, and never means to be part of it.
var pushIgnored = append([]string{".terraform/", "*.tfstate", "*.tfstate.*", "crash.log", "crash.*.log"}, ignoreVCS...)

// PushOptions say how to push and what to write on the artifact. One tree with
// the same options makes the same digest.
type PushOptions struct {
	Out      *outbound.Client
	Keys     *Keyring // nil asks anonymously
	Insecure bool     // over http, where the policy of Out allows it; a registry on this machine is spoken to over http anyway
	CA       []byte   // PEM

	Source   string    // where the tree comes from, for people
	Revision string    // which state of it, for people
	Created  time.Time // left out if zero
	Ignore   *string   // rules in the form of a .gitignore file
	Limits   archive.Limits
}

// Push packs the tree below dir and pushes it as an artifact that a
// OCIRepository can name. It returns the digest of its manifest.
func Push(ctx context.Context, dir, url string, o PushOptions) (digest string, err error) {
	text, ok := strings.CutPrefix(url, OCIScheme)
	if !ok {
		return "", invalid(ReasonURL, "the URL does not begin with %s", OCIScheme)
	}
	// The library would take a name without a registry to be one of Docker's.
	if host, _, _ := strings.Cut(text, "/"); !strings.ContainsAny(host, ".:") && host != "localhost" || host == text {
		return "", invalid(ReasonURL, "%s names no registry: write %sHOST:PORT/NAMESPACE/NAME:TAG", url, OCIScheme)
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return "", missing("DirectoryMissing", "there is no directory %s", dir)
	}
	tag, err := name.NewTag(text, ociNameOptions(o.Insecure)...)
	if err != nil {
		return "", invalid(ReasonURL, "the URL names no tag in a repository: %w", err)
	}
	if !repoGrammar.MatchString(tag.RepositoryStr()) {
		return "", invalid(ReasonURL, "%q is not the name of a repository", tag.RepositoryStr())
	}
	skip, err := ignoreRules{always: pushIgnored, own: o.Ignore}.load(dir)
	if err != nil {
		return "", err
	}
	left, err := FindPointer(os.DirFS(dir), ".", func(name string) bool { return skip(name, false) })
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", dir, err)
	}
	if left != "" {
		return "", invalid(archive.Reason, "%s is a pointer of Git LFS without its content: run git lfs pull in %s", left, dir)
	}
	var content bytes.Buffer
	if err := archive.Pack(dir, skip, &content, o.Limits); err != nil {
		return "", fmt.Errorf("packing %s: %w", dir, err)
	}
	image, err := artifactImage(content.Bytes(), o)
	if err != nil {
		return "", fmt.Errorf("making the artifact: %w", err)
	}
	sum, err := image.Digest()
	if err != nil {
		return "", fmt.Errorf("making the artifact: %w", err)
	}
	r, err := openOCI(ctx, o.Out, tag.Repository, o.Keys, outbound.Options{
		PlainHTTP: OnThisMachine(tag.RegistryStr()) || o.Insecure && o.Out.PlainHTTP(),
		CA:        o.CA,
	})
	if err != nil {
		return "", err
	}
	defer r.close()
	if err := remote.Write(tag, image, r.options...); err != nil {
		return "", ociFault("pushing "+tag.String(), err)
	}
	return sum.String(), nil
}

func artifactImage(content []byte, o PushOptions) (v1.Image, error) {
	annotations := map[string]string{}
	for key, value := range map[string]string{
		"org.opencontainers.image.source":   o.Source,
		"org.opencontainers.image.revision": o.Revision,
	} {
		if value != "" {
			annotations[key] = value
		}
	}
	if !o.Created.IsZero() {
		annotations["org.opencontainers.image.created"] = o.Created.UTC().Format(time.RFC3339)
	}
	image := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	image = mutate.ConfigMediaType(image, MediaTypeConfig)
	image, err := mutate.AppendLayers(image, static.NewLayer(content, MediaTypeContent))
	if err != nil {
		return nil, err
	}
	return mutate.Annotations(image, annotations).(v1.Image), nil
}
