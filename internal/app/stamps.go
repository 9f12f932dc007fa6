package app

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	alustanv1 "github.com/terrier-iac/terrier/api/alustan/v1alpha1"
	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/config/admission"
	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/kube"
)

// newStamping is how the API server records the user of each change. The control plane in this
// process does so by itself.
func newStamping(p *parts, direct client.Client) *kube.Stamping {
	s := &kube.Stamping{
		Client: direct, Files: admission.Files, Namespace: access.ServerNamespace, Probe: stackToProbe,
		Install: p.Cluster != nil && p.Cluster.Definitions, Now: p.Now, Log: p.log,
	}
	for _, d := range p.leftOut.All() {
		if d.Kind().Group == v1alpha2.GroupVersion.Group {
			s.Probe = func() client.Object { return &alustanv1.Terraform{} }
		}
	}
	return s
}

// stackToProbe is a stack that the API server takes.
func stackToProbe() client.Object {
	s := &v1alpha2.Terraform{}
	s.Spec.Suspend = true
	s.Spec.Interval = &metav1.Duration{Duration: time.Hour}
	s.Spec.SourceRef = &v1alpha2.SourceRef{Kind: "GitRepository", Name: "none"}
	return s
}
