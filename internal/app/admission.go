package app

import (
	"context"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	config "github.com/terrier-iac/terrier/config/admission"
	"github.com/terrier-iac/terrier/config/crd"
	"github.com/terrier-iac/terrier/internal/controller/tenants/admission"
	"github.com/terrier-iac/terrier/internal/dialect/kinds"
	"github.com/terrier-iac/terrier/internal/kube"
)

// admissionHandlers are the webhooks of tenants, stacks and policies; webhookSecret is the end of the path at which
// we name registries and policies to an API server, and empty if we do not. The teller is of
// policies.
func admissionHandlers(c *rest.Config, webhookSecret string, teller func() admission.Teller) (map[string]http.Handler, error) {
	all, err := admission.Handlers(crd.Files, kinds.All())
	if err != nil || webhookSecret == "" {
		return all, err
	}
	direct, err := client.New(c, client.Options{Scheme: newScheme(kinds.All())})
	if err != nil {
		return nil, err
	}
	// Logs name the pattern of a path, and not the secret at its end.
	all[admission.ValidateTemplate+"/:webhookSecret"] = knowing{webhookSecret, admission.Knowing(direct)}
	all[admission.WarnOfStack+"/:webhookSecret"] = knowing{webhookSecret, admission.Telling(kinds.All(), teller)}
	all[admission.WarnOfPolicy+"/:webhookSecret"] = knowing{webhookSecret, admission.TellingOfPolicies(teller)}
	return all, nil
}

// knowing is a handler for callers that know the secret at the end of its path.
type knowing struct {
	webhookSecret string
	http.Handler
}

func (k knowing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if subtle.ConstantTimeCompare([]byte(path.Base(r.URL.Path)), []byte(k.webhookSecret)) != 1 {
		http.NotFound(w, r)
		return
	}
	k.Handler.ServeHTTP(w, r)
}

// registerWebhooks registers those webhooks at the API server, as soon as they answer. If that
// fails, everything else still works: the controllers find invalid objects
// later.
func (p *parts) registerWebhooks(ctx context.Context, c client.Client) {
	if p.Cluster != nil && !p.Cluster.Admission {
		return
	}
	all, err := webhooksOf(p).configurations(config.Webhooks)
	for i := 0; i < len(all) && err == nil; i++ {
		err = kube.Apply(ctx, c, all[i])
	}
	if err != nil && ctx.Err() == nil {
		p.log.Warn("admission webhooks not registered; the status of registries and templates still shows whether they are valid", "err", err)
	}
}

// webhooksOf are those of this controller.
func webhooksOf(p *parts) webhooks {
	w := webhooks{url: p.http.url, ca: p.http.ca, webhookSecret: p.webhookSecret}
	if p.Cluster == nil {
		return w
	}
	w.hosts, w.namespaces = p.Cluster.Hosts, p.Cluster.Namespaces
	switch {
	case len(p.named) > 0:
		w.of = p.named[0]
	case len(w.namespaces) > 0:
		w.of = w.namespaces[0]
	}
	return w
}

// webhooks are the addresses at which an API server reaches ours, and the namespaces.
type webhooks struct {
	url           string
	ca            []byte
	webhookSecret string   // a secret in the path for the API server only, since answers name registries and policies
	hosts         []string // other names of the same server
	namespaces    []string // all if empty
	of            string   // the first namespace that the operator named, also if it is left out: the controller has no right to a configuration of another name
}

// configurations are those of files, for this server.
func (w webhooks) configurations(files fs.FS) ([]*unstructured.Unstructured, error) {
	names, err := fs.Glob(files, "webhooks/*.yaml")
	if err != nil {
		return nil, err
	}
	var all []*unstructured.Unstructured
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &u.Object); err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		if err := w.adapt(u); err != nil {
			return nil, fmt.Errorf("adapting %s: %w", name, err)
		}
		all = append(all, u)
	}
	return all, nil
}

// adapt puts the address of this server into a configuration. Controllers that
// reconcile different namespaces of one cluster have one each.
func (w webhooks) adapt(u *unstructured.Unstructured) error {
	if w.of != "" {
		u.SetName(u.GetName() + "." + w.of)
	}
	var namespaces []any
	for _, n := range w.namespaces {
		namespaces = append(namespaces, n)
	}
	list, _, err := unstructured.NestedSlice(u.Object, "webhooks")
	if err != nil {
		return err
	}
	for i := range list {
		hook, _ := list[i].(map[string]any)
		path, _, err := unstructured.NestedString(hook, "clientConfig", "service", "path")
		if err != nil {
			return err
		}
		if slices.Contains([]string{admission.ValidateTemplate, admission.WarnOfStack, admission.WarnOfPolicy}, path) && w.webhookSecret != "" {
			path += "/" + w.webhookSecret
		}
		if hook["clientConfig"], err = w.clientConfig(path); err != nil {
			return err
		}
		if len(w.namespaces) > 0 {
			hook["namespaceSelector"] = map[string]any{"matchExpressions": []any{map[string]any{
				"key": "kubernetes.io/metadata.name", "operator": "In", "values": namespaces,
			}}}
		}
	}
	return unstructured.SetNestedSlice(u.Object, list, "webhooks")
}

// clientConfig is the address of path. The name of a Service is given as such, since
// API servers seldom know the names of the cluster.
func (w webhooks) clientConfig(path string) (map[string]any, error) {
	u, err := url.Parse(w.url)
	if err != nil {
		return nil, err
	}
	out := map[string]any{"caBundle": base64.StdEncoding.EncodeToString(w.ca)}
	for _, host := range append([]string{u.Hostname()}, w.hosts...) {
		name, namespace, ok := serviceNamed(host)
		if !ok {
			continue
		}
		port, err := strconv.ParseInt(u.Port(), 10, 32)
		if err != nil {
			return nil, err
		}
		out["service"] = map[string]any{"namespace": namespace, "name": name, "port": port, "path": path}
		return out, nil
	}
	out["url"] = "https://" + net.JoinHostPort(u.Hostname(), u.Port()) + path
	return out, nil
}

// serviceNamed reads the DNS name of a Service.
func serviceNamed(host string) (name, namespace string, ok bool) {
	parts := strings.Split(host, ".")
	if len(parts) != 3 || parts[2] != "svc" {
		return "", "", false
	}
	return parts[0], parts[1], true
}

// refuseForeground has the API server refuse deletions of tenants in the foreground. Where it
// cannot, everything else still works: the controller then makes them deletions in the
// background once it sees them.
func refuseForeground(ctx context.Context, c client.Client, log *slog.Logger) {
	all, err := deletionPolicies()
	for i := 0; i < len(all) && err == nil; i++ {
		err = kube.ApplyOnce(ctx, c, all[i])
	}
	if err != nil && ctx.Err() == nil {
		log.Warn("deletions of tenants in the foreground are not refused: install the policy of config/admission/deletion (docs/tenants.md)", "err", err)
	}
}

// deletionPolicies are the policy about deletions, and its binding.
func deletionPolicies() ([]*unstructured.Unstructured, error) {
	names, err := fs.Glob(config.Deletion, "deletion/*.yaml")
	if err != nil {
		return nil, err
	}
	var all []*unstructured.Unstructured
	for _, name := range names {
		text, err := config.Deletion.ReadFile(name)
		if err != nil {
			return nil, err
		}
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &u.Object); err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		all = append(all, u)
	}
	return all, nil
}
