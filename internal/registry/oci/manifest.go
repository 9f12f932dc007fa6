package oci

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"regexp"
	"strings"

	"github.com/terrier-iac/terrier/internal/address"
)

// Media types of the OCI image specification, and those that OpenTofu has for modules and
// providers since 1.10.
const (
	imageType    = "application/vnd.oci.image.manifest.v1+json"
	indexType    = "application/vnd.oci.image.index.v1+json"
	emptyType    = "application/vnd.oci.empty.v1+json"
	zipType      = "archive/zip"
	moduleType   = "application/vnd.opentofu.modulepkg"
	providerType = "application/vnd.opentofu.provider"
	packageType  = "application/vnd.opentofu.provider-target"
)

const (
	versionNote = "org.opencontainers.image.version"
	titleNote   = "org.opencontainers.image.title" // clients name the file by it
)

// The configuration that manifests have that need none.
const (
	empty    = "{}"
	emptySum = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
)

// layer is an archive of a version.
type layer struct {
	key      string // of the store
	file     string // its name
	sha256   string // in hex
	size     int64
	platform address.Platform // of a provider
}

// manifest is a document that clients name by its checksum.
type manifest struct {
	mediaType string
	content   []byte
	sum       string // SHA-256, in hex
}

// The documents have types of their own: digests that clients have written down must not
// change with a library.
type descriptor struct {
	MediaType    string            `json:"mediaType"`
	Digest       string            `json:"digest"`
	Size         int64             `json:"size"`
	Annotations  map[string]string `json:"annotations,omitempty"`
	Data         []byte            `json:"data,omitempty"`
	Platform     *platform         `json:"platform,omitempty"`
	ArtifactType string            `json:"artifactType,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

type image struct {
	SchemaVersion int               `json:"schemaVersion"`
	MediaType     string            `json:"mediaType"`
	ArtifactType  string            `json:"artifactType"`
	Config        descriptor        `json:"config"`
	Layers        []descriptor      `json:"layers"`
	Annotations   map[string]string `json:"annotations,omitempty"`
}

type index struct {
	SchemaVersion int               `json:"schemaVersion"`
	MediaType     string            `json:"mediaType"`
	ArtifactType  string            `json:"artifactType"`
	Manifests     []descriptor      `json:"manifests"`
	Annotations   map[string]string `json:"annotations,omitempty"`
}

// imageOf is the manifest of one archive.
func imageOf(artifact string, v address.Version, l layer) manifest {
	return made(imageType, image{
		SchemaVersion: 2, MediaType: imageType, ArtifactType: artifact,
		Config:      descriptor{MediaType: emptyType, Digest: digest(emptySum), Size: int64(len(empty)), Data: []byte(empty)},
		Layers:      []descriptor{{MediaType: zipType, Digest: digest(l.sha256), Size: l.size, Annotations: map[string]string{titleNote: l.file}}},
		Annotations: map[string]string{versionNote: string(v)},
	})
}

// providerManifests are the index of a version of a provider, and after it the manifest of
// each platform.
func providerManifests(v address.Version, layers []layer) []manifest {
	root := index{SchemaVersion: 2, MediaType: indexType, ArtifactType: providerType, Manifests: []descriptor{}, Annotations: map[string]string{versionNote: string(v)}}
	all := make([]manifest, 1, 1+len(layers))
	for _, l := range layers {
		m := imageOf(packageType, v, l)
		all = append(all, m)
		root.Manifests = append(root.Manifests, descriptor{
			MediaType: imageType, Digest: digest(m.sum), Size: int64(len(m.content)), ArtifactType: packageType,
			Platform: &platform{Architecture: l.platform.Arch, OS: l.platform.OS},
		})
	}
	all[0] = made(indexType, root)
	return all
}

func made(mediaType string, document any) manifest {
	content, err := json.Marshal(document)
	if err != nil {
		panic(err) // these types can be written
	}
	sum := sha256.Sum256(content)
	return manifest{mediaType, content, hex.EncodeToString(sum[:])}
}

func digest(sum string) string { return "sha256:" + sum }

var digestGrammar = regexp.MustCompile(`^sha256:[a-f0-9]{64}$`)

// hexOf is the hexadecimal part of a digest.
func hexOf(digest string) (string, error) {
	if !digestGrammar.MatchString(digest) {
		return "", refuse(http.StatusBadRequest, "DIGEST_INVALID", "the digest is not a SHA-256")
	}
	return strings.TrimPrefix(digest, "sha256:"), nil
}
