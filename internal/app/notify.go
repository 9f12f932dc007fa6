package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	notificationv1beta3 "github.com/fluxcd/notification-controller/api/v1beta3"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/yaml"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/notify"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/service"
	"github.com/terrier-iac/terrier/internal/web"
)

// noticesGroup is the API group of alerts and providers.
const noticesGroup = "notification.toolkit.fluxcd.io"

// openDesk makes the desk that sends notifications, before anybody tells it
// anything. Who delivers for alerts is whoever installed their definitions, and
// nobody else, so that nothing comes twice.
func (p *parts) openDesk(ctx context.Context, direct client.Client) error {
	o := notify.Options{Store: p.blobs, Now: p.Now, Log: p.log}
	if a := p.Config.EventsAddress; a != "" {
		send, err := p.fluxEvents(a)
		if err != nil {
			return fault.New(fault.Invalid, "Usage", fmt.Errorf("--events-addr: %w", err))
		}
		o.Upstream = send
	}
	if p.Config.Notifications {
		theirs, err := p.alertsOfOthers(ctx, direct)
		if err != nil {
			return err
		}
		if theirs {
			p.log.Warn("alerts are left to whoever installed their definition: give --events-addr so that it hears of stacks", "definition", "alerts."+noticesGroup)
		} else {
			p.directory = &directory{live: direct, across: p.Config.CrossNamespace, plainHTTP: p.Config.PlainHTTP}
			o.Directory = p.directory
		}
	}
	out, err := p.outbound()
	if err != nil {
		return err
	}
	o.Send = notify.Sender{Out: out}.Send
	p.desk = notify.New(o)
	return nil
}

// alertsOfOthers reports whether another controller delivers for alerts: the one
// that came with their definition. Where we were told to install none, only what
// says that it is Flux's is taken for somebody else's.
func (p *parts) alertsOfOthers(ctx context.Context, direct client.Client) (bool, error) {
	name := "alerts." + noticesGroup
	if p.Cluster == nil || p.Cluster.Definitions {
		return kube.Foreign(ctx, direct, name)
	}
	var there apiextensionsv1.CustomResourceDefinition
	err := direct.Get(ctx, client.ObjectKey{Name: name}, &there)
	return there.Labels["app.kubernetes.io/part-of"] == "flux", err
}

// fluxEvents is how events get to Flux's notification-controller. Whoever
// started this program named it, so it may be where nobody else may send to, and
// is spoken to as it is: over http, inside of a cluster.
func (p *parts) fluxEvents(address string) (func(context.Context, notify.Event) error, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		return nil, fmt.Errorf("%q is not http://HOST/", address)
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

// notices runs the desk with the manager, and shows what it did. Nothing is
// shown where nothing can be sent.
func (p *parts) notices(mgr ctrl.Manager) error {
	if p.directory != nil {
		p.directory.cached = mgr.GetClient()
	}
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return nil
		}
		return p.desk.Run(ctx)
	}))
}

// notified adds what was sent to what the server shows.
func (p *parts) notified(o *web.Options) {
	if p.directory != nil || p.Config.EventsAddress != "" {
		o.Notices = service.NewNotices(p.desk)
	}
}

// directory reads alerts and providers from the cache, and Secrets, which no
// cache holds, when they are needed.
type directory struct {
	cached    client.Reader
	live      client.Reader
	across    bool // alerts may be about other namespaces
	plainHTTP bool
}

// Routes implements notify.Directory.
func (d *directory) Routes(ctx context.Context, e notify.Event) ([]notify.Route, error) {
	var alerts notificationv1beta3.AlertList
	var in []client.ListOption
	if !d.across {
		in = append(in, client.InNamespace(e.InvolvedObject.Namespace))
	}
	if err := d.cached.List(ctx, &alerts, in...); err != nil {
		return nil, fmt.Errorf("listing alerts: %w", err)
	}
	var routes []notify.Route
	var errs []error
	for i := range alerts.Items {
		a := alertOf(&alerts.Items[i])
		wants, err := a.Wants(e, d.across)
		if err != nil {
			errs = append(errs, fmt.Errorf("alert %s/%s: %w", a.Namespace, alerts.Items[i].Name, err))
		}
		if !wants || d.suspended(ctx, a) {
			continue
		}
		routes = append(routes, a.Route())
	}
	return routes, errors.Join(errs...)
}

// suspended reports whether somebody stopped the provider of an alert. That one
// is not there is found out, and told, when it is needed.
func (d *directory) suspended(ctx context.Context, a notify.Alert) bool {
	var p notificationv1beta3.Provider
	err := d.cached.Get(ctx, client.ObjectKey{Namespace: a.Namespace, Name: a.Provider}, &p)
	return err == nil && p.Spec.Suspend
}

func alertOf(o *notificationv1beta3.Alert) notify.Alert {
	a := notify.Alert{
		Namespace: o.Namespace, Provider: o.Spec.ProviderRef.Name, Severity: o.Spec.EventSeverity,
		Include: o.Spec.InclusionList, Exclude: o.Spec.ExclusionList, Metadata: o.Spec.EventMetadata,
		Summary: o.Spec.Summary, Suspended: o.Spec.Suspend,
	}
	for _, s := range o.Spec.EventSources {
		a.Sources = append(a.Sources, notify.Source{Kind: s.Kind, Namespace: s.Namespace, Name: s.Name, Labels: s.MatchLabels})
	}
	return a
}

// Destination implements notify.Directory. A Secret is of the provider's own
// namespace: there is no way to name another one.
func (d *directory) Destination(ctx context.Context, namespace, name string) (notify.Destination, error) {
	var p notificationv1beta3.Provider
	err := d.cached.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &p)
	if apierrors.IsNotFound(err) {
		return notify.Destination{}, fault.New(fault.Missing, "ProviderMissing", fmt.Errorf("there is no Provider %s in %s", name, namespace))
	}
	if err != nil {
		return notify.Destination{}, err
	}
	if p.Spec.Suspend {
		return notify.Destination{}, fault.New(fault.Denied, "ProviderSuspended", fmt.Errorf("the Provider %s is suspended", name))
	}
	if p.Spec.Proxy != "" || p.Spec.ProxySecretRef != nil {
		return notify.Destination{}, fault.New(fault.Invalid, "ProviderProxy", fmt.Errorf("the Provider %s asks for a proxy, which is not possible: a proxy could reach what this program may not", name))
	}
	to := notify.Destination{
		Type: p.Spec.Type, Address: secret.New(p.Spec.Address), Channel: p.Spec.Channel, Username: p.Spec.Username,
		Timeout: p.GetTimeout(), PlainHTTP: d.plainHTTP,
	}
	if ref := p.Spec.SecretRef; ref != nil {
		if err := d.credentials(ctx, namespace, ref.Name, &to); err != nil {
			return to, err
		}
	}
	if ref := p.Spec.CertSecretRef; ref != nil {
		data, err := d.secret(ctx, namespace, ref.Name)
		if err != nil {
			return to, err
		}
		to.CA, to.Cert, to.Key = data["ca.crt"], data["tls.crt"], data["tls.key"]
	}
	switch {
	case to.Address.Empty():
		err = fault.New(fault.Invalid, "AddressMissing", fmt.Errorf("neither the Provider %s nor its Secret has an address", name))
	case to.Type == notify.HMAC && to.Token.Empty():
		err = fault.New(fault.Invalid, "TokenMissing", fmt.Errorf("the Secret of the Provider %s has no token to sign with", name))
	}
	return to, err
}

// credentials adds what the Secret of a provider holds, in the keys that Flux
// reads.
func (d *directory) credentials(ctx context.Context, namespace, name string, to *notify.Destination) error {
	data, err := d.secret(ctx, namespace, name)
	if err != nil {
		return err
	}
	text := func(key string) string { return strings.TrimSpace(string(data[key])) }
	if a := text("address"); a != "" {
		to.Address = secret.New(a)
	}
	to.Token = secret.New(text("token"))
	if h := data["headers"]; len(h) > 0 {
		if to.Headers, err = headersOf(h); err != nil {
			return fault.New(fault.Invalid, "HeadersInvalid", fmt.Errorf("the key headers of the Secret %s is not a YAML map of texts", name))
		}
	}
	return nil
}

// secret reads a Secret. One that is not there may come.
func (d *directory) secret(ctx context.Context, namespace, name string) (map[string][]byte, error) {
	var s corev1.Secret
	err := d.live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &s)
	if apierrors.IsNotFound(err) {
		err = fmt.Errorf("there is no Secret %s in %s", name, namespace)
	}
	return s.Data, err
}

// teller writes events to Kubernetes and has them sent to those who want them.
type teller struct {
	kube.Events
	scheme    *runtime.Scheme
	desk      *notify.Desk
	component string
	instance  string
	now       func() time.Time
}

// tellers makes the teller of one controller.
func (p *parts) tellers(mgr ctrl.Manager, component string, events kube.Events) teller {
	host, _ := os.Hostname() // it only helps people to find the process
	return teller{events, mgr.GetScheme(), p.desk, component, host, p.Now}
}

// Event implements Events of the controllers.
func (t teller) Event(obj client.Object, kind, reason, message string) {
	t.EventWith(obj, kind, reason, message, nil)
}

// EventWith implements controller.FactualEvents.
func (t teller) EventWith(obj client.Object, kind, reason, message string, facts map[string]string) {
	t.Events.Event(obj, kind, reason, message)
	t.Notify(obj, kind, reason, message, facts)
}

// Record implements controller.FactualEvents: an event of which people have
// been told already.
func (t teller) Record(obj client.Object, kind, reason, message string) {
	t.Events.Event(obj, kind, reason, message)
}

// Notify has an event sent.
func (t teller) Notify(obj client.Object, kind, reason, message string, facts map[string]string) {
	gvk, err := apiutil.GVKForObject(obj, t.scheme)
	if err != nil {
		return // it is none that an alert could name
	}
	version, name := gvk.ToAPIVersionAndKind()
	e := notify.Event{
		InvolvedObject: notify.Object{
			Kind: name, APIVersion: version, Namespace: obj.GetNamespace(), Name: obj.GetName(),
			UID: string(obj.GetUID()), ResourceVersion: obj.GetResourceVersion(),
		},
		Severity: notify.Info, Timestamp: t.now().UTC().Truncate(time.Second), Message: message, Reason: reason,
		Metadata: map[string]string{}, ReportingController: t.component, ReportingInstance: t.instance,
		Labels: maps.Clone(obj.GetLabels()),
	}
	if kind == corev1.EventTypeWarning {
		e.Severity = notify.Error
	}
	for key, value := range obj.GetAnnotations() {
		if strings.HasPrefix(key, notify.EventGroup+"/") {
			e.Metadata[key] = value
		}
	}
	for key, value := range facts {
		if !strings.Contains(key, "/") {
			key = gvk.Group + "/" + key
		}
		e.Metadata[key] = value
	}
	t.desk.Tell(e)
}

func headersOf(text []byte) (map[string]secret.Text, error) {
	var plain map[string]string
	if err := yaml.Unmarshal(text, &plain); err != nil {
		return nil, err
	}
	headers := map[string]secret.Text{}
	for name, value := range plain {
		headers[name] = secret.New(value)
	}
	return headers, nil
}
