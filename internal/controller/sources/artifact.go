package sources

import (
	"context"
	"fmt"
	"strings"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/controller/provenance"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/source"
)

// Object is what all kinds of sources have in common.
type Object interface {
	client.Object
	sourcev1.Source
}

// New returns an empty object of a kind of sources. Its error is Invalid.
func New(kind string) (Object, error) {
	switch kind {
	case sourcev1.GitRepositoryKind:
		return &sourcev1.GitRepository{}, nil
	case sourcev1.OCIRepositoryKind:
		return &sourcev1.OCIRepository{}, nil
	case sourcev1.BucketKind:
		return &sourcev1.Bucket{}, nil
	default:
		return nil, fault.New(fault.Invalid, "", fmt.Errorf("sourceRef.kind: %q is none of GitRepository, OCIRepository and Bucket", kind))
	}
}

// Artifact reads where the archive of a source is. Its error is Missing if there is no such
// source, or the source has no artifact yet. A source that cannot be reached keeps its last
// artifact until there is a newer one. Without a key for origins, none is certain.
func Artifact(ctx context.Context, reader client.Reader, kind string, key types.NamespacedName, origins provenance.Key) (source.Artifact, error) {
	obj, err := New(kind)
	if err != nil {
		return source.Artifact{}, err
	}
	if err := reader.Get(ctx, key, obj); err != nil {
		if client.IgnoreNotFound(err) == nil {
			err = fault.New(fault.Missing, "", fmt.Errorf("source not found: %s %s does not exist", kind, key))
		}
		return source.Artifact{}, err
	}
	a := obj.GetArtifact()
	if a == nil {
		//lint:ignore ST1005 clients know the message by this beginning
		return source.Artifact{}, fault.New(fault.Missing, "", fmt.Errorf("Source is not ready, artifact not found: %s %s%s", kind, key, notReady(obj)))
	}
	out := source.Artifact{URL: a.URL, Revision: a.Revision, Digest: a.Digest, At: a.LastUpdateTime.Time, Directory: a.Metadata[source.DirectoryFound], Origin: origins.From(obj)}
	if a.Size != nil {
		out.Size = *a.Size
	}
	return out, nil
}

// sourceSays is how much of what a source says of itself goes into a message.
const sourceSays = 400

// notReady is what a source says of why it is not ready, as the end of a
// sentence. While it only says that it is at it, that is nothing: the message
// must be the same however often it is made.
func notReady(obj Object) string {
	holder, ok := obj.(interface{ GetConditions() []metav1.Condition })
	if !ok {
		return ""
	}
	r := apimeta.FindStatusCondition(holder.GetConditions(), "Ready")
	if r == nil || r.Status != metav1.ConditionFalse {
		return ""
	}
	said, _ := plan.MaskURLs(strings.Join(strings.Fields(r.Message), " "))
	if runes := []rune(said); len(runes) > sourceSays {
		said = string(runes[:sourceSays]) + "…"
	}
	return ": " + r.Reason + ": " + said
}
