package app

import (
	"context"
	"net"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/notify"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/secret"
)

// noticesGroup is the API group of alerts and providers.
const noticesGroup = "notification.toolkit.fluxcd.io"

// alerts are the notifications that this process sends.
type alerts struct {
	dispatcher *notify.Dispatcher
	notifier   notifier   // the dispatcher, or that of the leader
	directory  *directory // nil if another controller delivers for the alerts of the cluster
	upstream   bool       // events are sent to Flux
}

// openAlerts makes the dispatcher that sends notifications, before the first event.
// The controller that installed the definitions of alerts delivers for them, and
// no other, so that no message is sent twice.
func (p *parts) openAlerts(ctx context.Context, direct client.Client) (alerts, error) {
	var a alerts
	o := notify.Options{Store: p.blobs, Damage: blob.Damaged, Now: p.Now, Log: p.log}
	if to := p.Config.EventsAddress; to != "" {
		send, err := fluxEvents(to, p.outbound)
		if err != nil {
			return a, err
		}
		o.Upstream, a.upstream = send, true
	}
	if p.Config.Notifications {
		theirs, err := alertsOfOthers(ctx, direct, p.Cluster == nil || p.Cluster.Definitions)
		if err != nil {
			return a, err
		}
		if theirs {
			p.log.Warn("another controller owns the definition of alerts and delivers for them: set --events-addr to send it the events of stacks", "definition", "alerts."+noticesGroup)
		} else {
			a.directory = &directory{live: direct, across: p.Config.CrossNamespace, plainHTTP: p.Config.PlainHTTP, now: p.Now}
			o.Directory = a.directory
		}
	}
	out, err := p.outbound()
	if err != nil {
		return a, err
	}
	o.Send = notify.Sender{Out: out}.Send
	a.dispatcher = notify.New(o)
	a.notifier = a.dispatcher
	if p.leader != nil {
		a.notifier = p.leader
	}
	return a, nil
}

// alertsOfOthers reports whether another controller delivers for alerts: the one
// that owns their definition. With --install-crds=false, only a definition with the
// label of Flux belongs to another controller.
func alertsOfOthers(ctx context.Context, direct client.Client, installed bool) (bool, error) {
	name := "alerts." + noticesGroup
	if installed {
		return kube.Foreign(ctx, direct, name)
	}
	var there apiextensionsv1.CustomResourceDefinition
	err := direct.Get(ctx, client.ObjectKey{Name: name}, &there)
	return there.Labels["app.kubernetes.io/part-of"] == "flux", err
}

// fluxEvents sends events to the notification-controller of Flux. The operator
// named its address, so it may be one that is otherwise not allowed, and
// it is plain http inside of a cluster.
func fluxEvents(address string, reach func(besides ...string) (*outbound.Client, error)) (func(context.Context, notify.Event) error, error) {
	u, err := eventsURL(address)
	if err != nil {
		return nil, err
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	out, err := reach(net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return nil, err
	}
	to := notify.Destination{Type: notify.Generic, Address: secret.New(address), PlainHTTP: true}
	return func(ctx context.Context, e notify.Event) error { return notify.Sender{Out: out}.Send(ctx, to, e) }, nil
}

// run runs the dispatcher with the manager.
func (a alerts) run(mgr ctrl.Manager) error {
	if a.directory != nil {
		a.directory.cached = mgr.GetClient()
	}
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return nil
		}
		return a.dispatcher.Run(ctx)
	}))
}

// sent are the messages that were sent; nil if none can be sent.
func (a alerts) sent(namespaces query.Namespaces) query.Notices {
	if a.directory == nil && !a.upstream {
		return nil
	}
	return query.NewNotices(a.dispatcher, namespaces)
}
