package app

import (
	"context"
	"net"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/notify"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/web"
)

// noticesGroup is the API group of alerts and providers.
const noticesGroup = "notification.toolkit.fluxcd.io"

// openDispatcher makes the dispatcher that sends notifications, before the first event.
// The controller that installed the definitions of alerts delivers for them, and
// no other, so that no message is sent twice.
func (p *parts) openDispatcher(ctx context.Context, direct client.Client) error {
	o := notify.Options{Store: p.blobs, Now: p.Now, Log: p.log}
	if a := p.Config.EventsAddress; a != "" {
		send, err := p.fluxEvents(a)
		if err != nil {
			return err
		}
		o.Upstream = send
	}
	if p.Config.Notifications {
		theirs, err := p.alertsOfOthers(ctx, direct)
		if err != nil {
			return err
		}
		if theirs {
			p.log.Warn("another controller owns the definition of alerts and delivers for them: set --events-addr to send it the events of stacks", "definition", "alerts."+noticesGroup)
		} else {
			p.directory = &directory{live: direct, across: p.Config.CrossNamespace, plainHTTP: p.Config.PlainHTTP, now: p.Now}
			o.Directory = p.directory
		}
	}
	out, err := p.outbound()
	if err != nil {
		return err
	}
	o.Send = notify.Sender{Out: out}.Send
	p.dispatcher = notify.New(o)
	return nil
}

// alertsOfOthers reports whether another controller delivers for alerts: the one
// that owns their definition. With --install-crds=false, only a definition with the
// label of Flux belongs to another controller.
func (p *parts) alertsOfOthers(ctx context.Context, direct client.Client) (bool, error) {
	name := "alerts." + noticesGroup
	if p.Cluster == nil || p.Cluster.Definitions {
		return kube.Foreign(ctx, direct, name)
	}
	var there apiextensionsv1.CustomResourceDefinition
	err := direct.Get(ctx, client.ObjectKey{Name: name}, &there)
	return there.Labels["app.kubernetes.io/part-of"] == "flux", err
}

// fluxEvents sends events to the notification-controller of Flux. The operator
// named its address, so it may be one that is otherwise not allowed, and
// it is plain http inside of a cluster.
func (p *parts) fluxEvents(address string) (func(context.Context, notify.Event) error, error) {
	u, err := eventsURL(address)
	if err != nil {
		return nil, err
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	out, err := p.outbound(net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return nil, err
	}
	to := notify.Destination{Type: notify.Generic, Address: secret.New(address), PlainHTTP: true}
	return func(ctx context.Context, e notify.Event) error { return notify.Sender{Out: out}.Send(ctx, to, e) }, nil
}

// notices runs the dispatcher with the
// manager.
func (p *parts) notices(mgr ctrl.Manager) error {
	if p.directory != nil {
		p.directory.cached = mgr.GetClient()
	}
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return nil
		}
		return p.dispatcher.Run(ctx)
	}))
}

// notified adds the sent messages to the options of the server, if any can be sent.
func (p *parts) notified(o *web.Options) {
	if p.directory != nil || p.Config.EventsAddress != "" {
		o.Notices = query.NewNotices(p.dispatcher)
	}
}
