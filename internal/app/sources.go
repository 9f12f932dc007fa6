package app

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/controller"
	"github.com/terrier-iac/terrier/internal/controller/sources"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/web"
)

// setupSources registers the controllers of sources.
func (p *parts) setupSources(mgr ctrl.Manager, out *outbound.Client) error {
	return sources.Setup(mgr, sources.Options{
		Store: p.artifacts, Out: out, Key: p.key,
		BaseURL: func() string { return p.http.url + web.ArtifactsPrefix },
		Scratch: p.dir("scratch", "fetches"),
		Events:  p.alerts.recorder(mgr, "source-controller", p.Now),
		Pull:    p.pulls(nil).config, KnownHosts: p.Config.KnownHosts, TrustedRoot: p.Config.TrustedRoot,
		Roots: func(ctx context.Context, kind string, source client.ObjectKey) ([]string, error) {
			return controller.RootModules(ctx, mgr.GetClient(), p.kinds, kind, source)
		},
		Now: p.Now, Log: p.log,
	})
}
