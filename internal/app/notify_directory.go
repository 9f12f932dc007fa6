package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	notificationv1beta3 "github.com/fluxcd/notification-controller/api/v1beta3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/notify"
	"github.com/terrier-iac/terrier/internal/plainyaml"
	"github.com/terrier-iac/terrier/internal/secret"
)

// directory reads alerts and providers from the cache, and Secrets, which no
// cache holds, when they are needed.
type directory struct {
	cached    client.Reader
	live      client.Reader
	across    bool // alerts may be about other namespaces
	plainHTTP bool
	now       func() time.Time
	blind     time.Time // until when the cache is not read
}

// How long to wait for alerts, and how long not to read them after a failure:
// a cache without permission never answers, and events of other stacks queue
// behind this one.
const (
	alertsTime = 5 * time.Second
	blindTime  = time.Minute
)

// Routes implements notify.Directory. It is asked by one goroutine.
func (d *directory) Routes(ctx context.Context, e notify.Event) ([]notify.Route, error) {
	if d.now().Before(d.blind) {
		return nil, errors.New("alerts could not be read; retrying within a minute")
	}
	ctx, cancel := context.WithTimeout(ctx, alertsTime)
	defer cancel()
	var alerts notificationv1beta3.AlertList
	var in []client.ListOption
	if !d.across {
		in = append(in, client.InNamespace(e.InvolvedObject.Namespace))
	}
	if err := d.cached.List(ctx, &alerts, in...); err != nil {
		d.blind = d.now().Add(blindTime)
		return nil, fmt.Errorf("listing alerts, which needs the permission to get, list and watch alerts and providers: %w", err)
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

// suspended reports whether the provider of an alert is suspended. A missing
// provider is reported when a message is sent.
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
		return notify.Destination{}, fault.New(fault.Invalid, "ProviderProxy", fmt.Errorf("the Provider %s uses a proxy, which is not supported: a proxy could reach addresses that are not allowed", name))
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

// credentials adds the values of the Secret of a provider, in the keys that Flux
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
			return fault.New(fault.Invalid, "HeadersInvalid", fmt.Errorf("the key headers of the Secret %s is not a YAML map of strings", name))
		}
	}
	return nil
}

// secret reads a Secret. A missing one may be created later.
func (d *directory) secret(ctx context.Context, namespace, name string) (map[string][]byte, error) {
	var s corev1.Secret
	err := d.live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &s)
	if apierrors.IsNotFound(err) {
		err = fmt.Errorf("there is no Secret %s in %s", name, namespace)
	}
	return s.Data, err
}

func headersOf(text []byte) (map[string]secret.Text, error) {
	var plain map[string]string
	if err := plainyaml.DecodeFile(text, &plain); err != nil {
		return nil, err
	}
	headers := map[string]secret.Text{}
	for name, value := range plain {
		headers[name] = secret.New(value)
	}
	return headers, nil
}
