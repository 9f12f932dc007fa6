package sources

import (
	"testing"

	"github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The URL of a source is claimed only where the source controller has said that the artifact
// is from it: its author may have changed it since.
func TestOriginsThatAreCertain(t *testing.T) {
	repository := func(change func(*sourcev1.GitRepository)) *sourcev1.GitRepository {
		g := &sourcev1.GitRepository{ObjectMeta: metav1.ObjectMeta{Generation: 2}, Spec: sourcev1.GitRepositorySpec{URL: "https://user:pw@git.example.com/net"},
			Status: sourcev1.GitRepositoryStatus{Artifact: &meta.Artifact{}, Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, ObservedGeneration: 2}}}}
		if change != nil {
			change(g)
		}
		return g
	}
	for name, tt := range map[string]struct {
		change func(*sourcev1.GitRepository)
		want   string
	}{
		"ready":                        {nil, "https://git.example.com/net"},
		"its URL was changed":          {func(g *sourcev1.GitRepository) { g.Generation = 3 }, ""},
		"the new URL could not be had": {func(g *sourcev1.GitRepository) { g.Status.Conditions[0].Status = metav1.ConditionFalse }, ""},
		"nothing is known":             {func(g *sourcev1.GitRepository) { g.Status.Conditions = nil }, ""},
	} {
		if got := originOf(repository(tt.change)); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	bucket := &sourcev1.Bucket{Spec: sourcev1.BucketSpec{Endpoint: "s3.example.com", BucketName: "b"}, Status: sourcev1.BucketStatus{Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue}}}}
	if got := originOf(bucket); got != "https://s3.example.com/b" {
		t.Errorf("a bucket is at %q", got)
	}
}
