package app

import (
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/terrier-iac/terrier/internal/outbound"
)

func (p *parts) setupSources(mgr ctrl.Manager, out *outbound.Client) error { return nil }
