package provenance

import (
	"testing"

	"github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/internal/secret"
)

// The URL of a source is claimed only where Terrier's controller has fetched the artifact from
// it. Nothing else that a user may write into a status makes it say anything.
func TestOriginsThatAreCertain(t *testing.T) {
	key := Key{secret.New("key")}
	fetched := func(change func(*sourcev1.GitRepository)) *sourcev1.GitRepository {
		g := &sourcev1.GitRepository{
			ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "net", UID: "u", Generation: 2}, Spec: sourcev1.GitRepositorySpec{URL: "https://user:pw@git.example.com/net"},
			Status: sourcev1.GitRepositoryStatus{ // all that a status can say
				Artifact:   &meta.Artifact{URL: "http://artifacts/x", Revision: "main@sha1:1", Digest: "sha256:1", Metadata: map[string]string{"other": "x"}},
				Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, ObservedGeneration: 2}},
			},
		}
		a := g.Status.Artifact
		a.Metadata = key.Fetched(g, a.Revision, a.Digest, a.Metadata)
		if change != nil {
			change(g)
		}
		return g
	}
	metadata := func(g *sourcev1.GitRepository) map[string]string { return g.Status.Artifact.Metadata }
	forged := Key{secret.New("guessed")}
	for name, tt := range map[string]struct {
		change func(*sourcev1.GitRepository)
		want   string
	}{
		"as it was fetched":                 {nil, "https://git.example.com/net"},
		"it cannot be fetched now":          {func(g *sourcev1.GitRepository) { g.Status.Conditions[0].Status = metav1.ConditionFalse }, "https://git.example.com/net"},
		"the artifact is served elsewhere":  {func(g *sourcev1.GitRepository) { g.Status.Artifact.URL = "http://other/x" }, "https://git.example.com/net"},
		"its URL was changed":               {func(g *sourcev1.GitRepository) { g.Spec.URL = "https://git.example.com/other" }, ""},
		"a status without a MAC, as Flux's": {func(g *sourcev1.GitRepository) { g.Status.Artifact.Metadata = nil }, ""},
		"a URL that another key says": {func(g *sourcev1.GitRepository) {
			a := g.Status.Artifact
			a.Metadata = forged.Fetched(g, a.Revision, a.Digest, nil)
		}, ""},
		"another archive":   {func(g *sourcev1.GitRepository) { g.Status.Artifact.Digest = "sha256:2" }, ""},
		"another revision":  {func(g *sourcev1.GitRepository) { g.Status.Artifact.Revision = "main@sha1:2" }, ""},
		"another directory": {func(g *sourcev1.GitRepository) { metadata(g)["terrier.dev/git-directory"] = "evil" }, ""},
		"another URL in spec and status": {func(g *sourcev1.GitRepository) {
			g.Spec.URL, metadata(g)[originURL] = "https://git.example.com/other", "https://git.example.com/other"
		}, ""},
		"what was said of another object":      {func(g *sourcev1.GitRepository) { g.Name = "other" }, ""},
		"of one of another namespace":          {func(g *sourcev1.GitRepository) { g.Namespace = "other" }, ""},
		"of one of the name that was there":    {func(g *sourcev1.GitRepository) { g.UID = "v" }, ""},
		"the content is of other sources, too": {func(g *sourcev1.GitRepository) { g.Spec.Include = []sourcev1.GitRepositoryInclude{{}} }, ""},
		"the content is what a proxy makes":    {func(g *sourcev1.GitRepository) { g.Spec.ProxySecretRef = &meta.LocalObjectReference{Name: "p"} }, ""},
		"there is no artifact":                 {func(g *sourcev1.GitRepository) { g.Status.Artifact = nil }, ""},
		"an artifact that has other metadata":  {func(g *sourcev1.GitRepository) { metadata(g)["terrier.dev/lfs-searched"] = "x" }, "https://git.example.com/net"},
		"a form of an address that is no URL":  {func(g *sourcev1.GitRepository) { g.Spec.URL = "git@git.example.com:net" }, ""},
		"the MAC was removed":                  {func(g *sourcev1.GitRepository) { delete(metadata(g), originMAC) }, ""},
	} {
		if got := key.From(fetched(tt.change)); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	if got := (Key{}).From(fetched(nil)); got != "" {
		t.Errorf("without a key the artifact is from %q", got)
	}
	bucket := &sourcev1.Bucket{Spec: sourcev1.BucketSpec{Endpoint: "s3.example.com", BucketName: "b"}}
	if got := Origin(bucket); got != "https://s3.example.com/b" {
		t.Errorf("a bucket is at %q", got)
	}
}
