package infra

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/dialect/dialecttest"
)

func TestSuite(t *testing.T) {
	o := &v1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "net", Generation: 1}}
	o.Spec.SourceRef = &v1alpha2.SourceRef{Kind: "GitRepository", Name: "code"}
	dialecttest.Run(t, Dialect{}, o)
}
