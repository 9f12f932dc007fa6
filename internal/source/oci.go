package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/secret"
)

// OCI fetches one layer of an artifact from a registry.
type OCI struct {
	URL      string // oci://registry/repository
	Ref      OCIRef
	Layer    OCILayer
	Keys     *Keyring // nil asks anonymously
	CA, Cert []byte   // PEM
	Key      secret.Text
	Insecure bool // over http, where the operator allows it
	Ignore   *string
	Verify   OCIVerifier // nil lets everything pass

	Out     *outbound.Client
	Scratch string
	Limits  archive.Limits

	signed Signature
}

var _ Fetcher = (*OCI)(nil)

// OCIRef says which manifest is wanted: Digest before SemVer before Tag. The
// zero OCIRef is the tag latest.
type OCIRef struct {
	Tag    string
	SemVer string // a range; the highest tag in it
	Filter string // a regular expression for the tags that SemVer selects from
	Digest string
}

// OCILayer says which layer is wanted and what becomes of it. The zero
// OCILayer extracts the first one.
type OCILayer struct {
	MediaType string
	Copy      bool // take the layer as it is, instead of its files
	Code      bool // take no layer, but the files below the working directory of a container image
}

// OCIScheme begins the URLs of OCI sources.
const OCIScheme = "oci://"

// Resolve asks the registry for the digest.
func (o *OCI) Resolve(ctx context.Context) (Found, error) {
	r, err := o.open(ctx)
	if err != nil {
		return Found{}, err
	}
	defer r.close()
	if o.Ref.Digest != "" {
		ref, err := name.NewDigest(r.repo.Name() + "@" + o.Ref.Digest)
		if err != nil {
			return Found{}, invalid(ReasonReference, "%q is no digest", o.Ref.Digest)
		}
		return Found{Revision: ref.DigestStr(), handle: ociDigest(ref.DigestStr())}, nil
	}
	tag := o.Ref.Tag
	if o.Ref.SemVer != "" {
		if tag, err = o.highest(r); err != nil {
			return Found{}, err
		}
	} else if tag == "" {
		tag = "latest"
	}
	ref, err := name.NewTag(r.repo.Name()+":"+tag, name.StrictValidation)
	if err != nil {
		return Found{}, invalid(ReasonReference, "%q is no tag", tag)
	}
	digest, err := r.digest(ref)
	if err != nil {
		return Found{}, ociFault(fmt.Sprintf("resolving the tag %q", tag), err)
	}
	return Found{Revision: tag + "@" + digest, handle: ociDigest(digest)}, nil
}

// ociDigest is what Resolve hands to Fetch.
type ociDigest string

// highest returns the tag with the highest version in the range.
func (o *OCI) highest(r *ociRemote) (string, error) {
	filter, err := regexp.Compile(o.Ref.Filter)
	if err != nil {
		return "", invalid(ReasonReference, "reading the filter of tags: %w", err)
	}
	tags, err := remote.List(r.repo, r.options...)
	if err != nil {
		return "", ociFault("listing tags", err)
	}
	tags = slices.DeleteFunc(tags, func(t string) bool { return !filter.MatchString(t) })
	tag, err := highestVersion(o.Ref.SemVer, tags)
	if err == nil && tag == "" {
		err = missing(ReasonOCI, "no tag is in the range %q", o.Ref.SemVer)
	}
	return tag, err
}

// Fetch verifies the signature, if one is asked for, and gets the layer; its digest is
// compared before anything is unpacked.
func (o *OCI) Fetch(ctx context.Context, found Found, w io.Writer) (map[string]string, error) {
	digest, ok := found.handle.(ociDigest)
	if !ok {
		return nil, fmt.Errorf("fetching %q: it was not found in a registry", found.Revision)
	}
	r, err := o.open(ctx)
	if err != nil {
		return nil, err
	}
	defer r.close()
	if o.Verify != nil {
		// What is fetched below is fetched by this digest, wherever a tag points by then.
		if o.signed, err = o.Verify.Verify(ctx, r.repo, string(digest), r.options); err != nil {
			return nil, ociFault("verifying the signature of "+found.Revision, err)
		}
	}
	if o.Layer.Code {
		return o.fetchImage(ctx, r, digest, w)
	}
	image, err := remote.Image(r.repo.Digest(string(digest)), r.options...)
	if err != nil {
		return nil, ociFault("fetching the manifest", err)
	}
	manifest, err := image.Manifest()
	if err != nil {
		return nil, ociFault("reading the manifest", err)
	}
	layer, err := o.pick(image, manifest)
	if err != nil {
		return nil, err
	}
	return declared(manifest.Annotations), scratch(o.Scratch, func(dir string) error {
		spooled := filepath.Join(dir, "layer")
		if err := spool(layer, spooled); err != nil {
			return ociFault("fetching the layer", err)
		}
		return o.convert(spooled, w)
	})
}

func (o *OCI) pick(image v1.Image, manifest *v1.Manifest) (v1.Layer, error) {
	for _, l := range manifest.Layers {
		if o.Layer.MediaType == "" || string(l.MediaType) == o.Layer.MediaType {
			layer, err := image.LayerByDigest(l.Digest)
			if err != nil {
				return nil, ociFault("finding the layer", err)
			}
			return layer, nil
		}
	}
	if o.Layer.MediaType == "" {
		return nil, invalid(ReasonLayer, "the artifact has no layer")
	}
	return nil, invalid(ReasonLayer, "the artifact has no layer of the media type %q", o.Layer.MediaType)
}

// spool writes a layer to a file. Reading it to its end compares its digest.
func spool(layer v1.Layer, path string) error {
	content, err := layer.Compressed()
	if err != nil {
		return err
	}
	defer content.Close()
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Close())
}

// convert writes the artifact for a layer.
func (o *OCI) convert(layer string, w io.Writer) error {
	f, err := os.Open(layer)
	if err != nil {
		return fmt.Errorf("reading the layer: %w", err)
	}
	defer f.Close()
	if o.Layer.Copy {
		if _, err := io.Copy(w, f); err != nil {
			return fmt.Errorf("copying the layer: %w", err)
		}
		return nil
	}
	return packed(o.Scratch, sourceRules(o.Ignore), o.Limits, w, func(dir string) error {
		return archive.Extract(f, dir, o.Limits)
	})
}

// ociRemote is one repository and how to speak to its registry.
type ociRemote struct {
	repo    name.Repository
	options []remote.Option
	close   func()
}

func (o *OCI) open(ctx context.Context) (*ociRemote, error) {
	text, ok := strings.CutPrefix(o.URL, OCIScheme)
	if !ok {
		return nil, invalid(ReasonURL, "the URL does not begin with %s", OCIScheme)
	}
	repo, err := name.NewRepository(text, ociNameOptions(o.Insecure)...)
	if err != nil {
		return nil, invalid(ReasonURL, "the URL names no repository: %w", err)
	}
	if !repoGrammar.MatchString(repo.RepositoryStr()) {
		return nil, invalid(ReasonURL, "%q is not the name of a repository", repo.RepositoryStr())
	}
	here := OnThisMachine(repo.RegistryStr())
	if o.Insecure && !here && !o.Out.PlainHTTP() {
		return nil, fault.New(fault.Denied, outbound.ReasonInsecure, errors.New("unencrypted connections to registries are not allowed"))
	}
	return openOCI(ctx, o.Out, repo, o.Keys, outbound.Options{
		PlainHTTP: here || o.Insecure,
		CA:        o.CA, Cert: o.Cert, Key: []byte(o.Key.Reveal()),
	})
}

func ociNameOptions(insecure bool) []name.Option {
	if insecure {
		return []name.Option{name.Insecure}
	}
	return nil
}

// OnThisMachine reports whether a registry is on this machine by name, where plain HTTP
// is safe. Package outbound decides whether it may be reached.
func OnThisMachine(registry string) bool {
	host, _, _ := strings.Cut(registry, ":")
	if addrPort, err := netip.ParseAddrPort(registry); err == nil {
		return addrPort.Addr().IsLoopback()
	}
	return host == "localhost"
}

func openOCI(ctx context.Context, out *outbound.Client, repo name.Repository, keys *Keyring, options outbound.Options) (*ociRemote, error) {
	client, err := out.HTTP(options)
	if err != nil {
		return nil, err
	}
	return &ociRemote{repo: repo, close: client.CloseIdleConnections, options: []remote.Option{
		remote.WithContext(ctx),
		remote.WithTransport(newAnswerCap(client.Transport)),
		remote.WithAuthFromKeychain(keys),
	}}, nil
}

// Bounds of answers that are held in memory: of a manifest, an index, and the list of what
// refers to a manifest, as the specification of registries has it; and of all pages of the list
// of tags together.
const (
	mostManifest = 4 << 20
	mostTags     = 16 << 20
)

// answerCap refuses larger ones. Other answers have the bounds of what is fetched, and those
// of the library.
type answerCap struct {
	http.RoundTripper
	tags *atomic.Int64 // bytes that are left
}

func newAnswerCap(inner http.RoundTripper) answerCap {
	c := answerCap{inner, new(atomic.Int64)}
	c.tags.Store(mostTags)
	return c
}

func (c answerCap) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.RoundTripper.RoundTrip(r)
	if err != nil {
		return resp, err
	}
	asked := r
	for asked.Response != nil && asked.Response.Request != nil { // a registry may have led elsewhere
		asked = asked.Response.Request
	}
	switch path := asked.URL.Path; {
	case strings.Contains(path, "/manifests/"), strings.Contains(path, "/referrers/"):
		left := new(atomic.Int64)
		left.Store(mostManifest)
		resp.Body = &cappedAnswer{resp.Body, left, invalid(ReasonOCI, "the registry answers with a manifest of more than %d MiB", mostManifest>>20)}
	case strings.HasSuffix(path, "/tags/list"):
		resp.Body = &cappedAnswer{resp.Body, c.tags, invalid(ReasonOCI, "the registry lists more than %d MiB of tags: name one in spec.ref.tag, or the digest in spec.ref.digest", mostTags>>20)}
	}
	return resp, nil
}

type cappedAnswer struct {
	io.ReadCloser
	left  *atomic.Int64
	large error
}

func (c *cappedAnswer) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	if c.left.Add(-int64(n)) < 0 {
		return 0, c.large
	}
	return n, err
}

// digest returns what a tag points to, without fetching it where the registry
// can answer that.
func (r *ociRemote) digest(ref name.Tag) (string, error) {
	if head, err := remote.Head(ref, r.options...); err == nil {
		return head.Digest.String(), nil
	}
	got, err := remote.Get(ref, r.options...)
	if err != nil {
		return "", err
	}
	return got.Digest.String(), nil
}

// ociFault gives an error of a registry its kind.
func ociFault(doing string, err error) error {
	if fault.Of(err) != fault.Broken {
		return fmt.Errorf("%s: %w", doing, err)
	}
	kind, reason := fault.Broken, ReasonOCI
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
