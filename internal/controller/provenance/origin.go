package provenance

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/url"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/source"
)

// Metadata of an artifact that say where Terrier's controller of sources has fetched it from.
// The MAC keeps users who may change the status of a source from writing them.
const (
	originURL = "terrier.dev/origin"
	originMAC = "terrier.dev/origin-mac"
)

// Fetched returns the metadata of an artifact that was fetched as the spec of a source says now:
// its revision, and the digest of its archive. They are added to those that it has.
func (k Key) Fetched(of client.Object, revision, digest string, metadata map[string]string) map[string]string {
	from := Origin(of)
	if from == "" {
		return metadata
	}
	if metadata == nil {
		metadata = map[string]string{}
	}
	metadata[originURL], metadata[originMAC] = from, k.fetched(of, from, revision, digest, metadata[source.DirectoryFound])
	return metadata
}

// From returns the URL that the artifact of a source is certainly from: Terrier's controller has
// fetched this very archive from there for this very object, and the spec of it names the URL
// still. It is empty for all others. What another controller says is not certain: anything in a
// status may be of any user who may change it.
func (k Key) From(obj Source) string {
	a := obj.GetArtifact()
	if a == nil || k.Empty() {
		return ""
	}
	from := a.Metadata[originURL]
	if from == "" || from != Origin(obj) || !hmac.Equal([]byte(a.Metadata[originMAC]), []byte(k.fetched(obj, from, a.Revision, a.Digest, a.Metadata[source.DirectoryFound]))) {
		return ""
	}
	return from
}

func (k Key) fetched(of client.Object, parts ...string) string {
	b, err := json.Marshal(append([]string{"origin", kindOf(of), of.GetNamespace(), of.GetName(), string(of.GetUID())}, parts...))
	if err != nil {
		panic("provenance: encoding an origin: " + err.Error()) // texts
	}
	mac := hmac.New(sha256.New, []byte(k.Reveal()))
	mac.Write(b) // a hash has no errors
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:18])
}

// Origin is the URL from which a source is fetched, without credentials. It is empty if the
// content is not of that URL alone.
func Origin(of client.Object) string {
	said := ""
	switch o := of.(type) {
	case *sourcev1.GitRepository:
		if len(o.Spec.Include) > 0 || o.Spec.ProxySecretRef != nil {
			return "" // the content is of others, too, or what a proxy makes of it
		}
		said = o.Spec.URL
	case *sourcev1.OCIRepository:
		if o.Spec.ProxySecretRef != nil {
			return ""
		}
		said = o.Spec.URL
	case *sourcev1.Bucket:
		if o.Spec.ProxySecretRef != nil {
			return ""
		}
		said = "https://" + o.Spec.Endpoint + "/" + o.Spec.BucketName
	}
	u, err := url.Parse(said)
	if err != nil {
		return "" // the form of ssh, user@host:path
	}
	u.User = nil
	return u.String()
}
