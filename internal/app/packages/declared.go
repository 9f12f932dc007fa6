package packages

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/location"
	"github.com/terrier-iac/terrier/internal/registry/origin"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/source"
)

// The annotations of a GitRepository that registers its tags as versions of modules.
const (
	annotations         = "registry.terrier.dev/"
	annotationModule    = annotations + "module"
	annotationTags      = annotations + "tags"
	annotationDirectory = annotations + "directory"
	annotationWebhook   = annotations + "webhook-secret"
)

// webhookKey is the key in the Secret of a webhook, as a Receiver of Flux has it.
const webhookKey = "token"

// Cluster is where GitRepositories are, and how their users hear of problems.
type Cluster struct {
	Objects client.Reader // from memory
	Live    client.Reader // asks the API server: Secrets are not in memory
	Events  interface {
		Event(obj client.Object, kind, reason, message string)
	}
}

// declared are the repositories that GitRepositories register. Each publishes in the
// namespace of the registry with the name of its own: who may make one there may publish
// there, and nowhere else.
type declared struct {
	known string // the file of the operator with keys of ssh hosts

	mu sync.Mutex
	in *Cluster // nil until the controllers begin
}

// FollowObjects says where GitRepositories are. A registry that is off needs none.
func (p *Packages) FollowObjects(in Cluster) {
	if p == nil {
		return
	}
	p.declared.mu.Lock()
	defer p.declared.mu.Unlock()
	p.declared.in = &in
}

// Follow makes versions of tags, until ctx ends.
func (p *Packages) Follow(ctx context.Context) error {
	if p == nil {
		<-ctx.Done()
		return nil
	}
	return p.Registry.Follow(ctx)
}

var errStarting = fault.New(fault.Later, "Starting", errors.New("the controllers are starting"))

// Repositories implements origin.Source.
func (d *declared) Repositories(ctx context.Context) ([]origin.Repository, error) {
	d.mu.Lock()
	in := d.in
	d.mu.Unlock()
	if in == nil {
		return nil, errStarting
	}
	var list sourcev1.GitRepositoryList
	if err := in.Objects.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the GitRepositories: %w", err)
	}
	var all []origin.Repository
	for i := range list.Items {
		if o := &list.Items[i]; o.DeletionTimestamp.IsZero() && registers(o) {
			all = append(all, d.repository(*in, o))
		}
	}
	return all, nil
}

// registers reports whether an object says anything about modules.
func registers(o *sourcev1.GitRepository) bool {
	for name := range o.Annotations {
		if strings.HasPrefix(name, annotations) {
			return true
		}
	}
	return false
}

// repository is what an object registers.
func (d *declared) repository(in Cluster, o *sourcev1.GitRepository) origin.Repository {
	r := origin.Repository{
		Key: origin.Key{Namespace: o.Namespace, Name: o.Name}, URL: o.Spec.URL,
		Module: o.Annotations[annotationModule], Tags: o.Annotations[annotationTags], Directory: o.Annotations[annotationDirectory],
		Interval: o.Spec.Interval.Duration, Suspended: o.Spec.Suspend, Requested: o.Annotations[meta.ReconcileRequestAnnotation],
		Invalid: unusable(o),
		Tell: func(problem bool, reason, message string) {
			kind := corev1.EventTypeNormal
			if problem {
				kind = corev1.EventTypeWarning
			}
			in.Events.Event(o, kind, reason, message)
		},
	}
	if t := o.Spec.Timeout; t != nil {
		r.Timeout = t.Duration
	}
	if v := o.Spec.Verification; v != nil {
		r.Mode = string(v.GetMode())
	}
	r.Access = func(ctx context.Context) (origin.Access, error) { return d.access(ctx, in, o) }
	if name := o.Annotations[annotationWebhook]; name != "" {
		r.Secret = func(ctx context.Context) (secret.Text, error) {
			data, err := in.secret(ctx, o.Namespace, name)
			if err == nil && len(data[webhookKey]) == 0 {
				err = fault.New(fault.Missing, origin.ReasonWebhook, fmt.Errorf("the Secret %q has no key %q: add the secret of the webhook there", name, webhookKey))
			}
			return secret.New(string(data[webhookKey])), err
		}
	}
	return r
}

// unusable says why an object cannot register a module; nil if it can.
func unusable(o *sourcev1.GitRepository) error {
	names := []string{annotationModule, annotationTags, annotationDirectory, annotationWebhook}
	for _, name := range slices.Sorted(maps.Keys(o.Annotations)) {
		if strings.HasPrefix(name, annotations) && !slices.Contains(names, name) {
			return errObject("there is no annotation %s: there are %s", name, strings.Join(names, ", "))
		}
	}
	if o.Annotations[annotationModule] == "" {
		return errObject("the annotation %s is missing: write NAME/SYSTEM, for instance vpc/aws", annotationModule)
	}
	for _, field := range []struct {
		name string
		set  bool
	}{
		{"spec.provider " + o.Spec.Provider, o.Spec.Provider != "" && o.Spec.Provider != sourcev1.GitProviderGeneric},
		{"spec.proxySecretRef", o.Spec.ProxySecretRef != nil},
		{"spec.serviceAccountName", o.Spec.ServiceAccountName != ""},
		{"the annotation " + location.SearchAnnotation, o.Annotations[location.SearchAnnotation] != ""},
	} {
		if field.set {
			return errObject("%s is not supported for modules from tags: remove it, or register another GitRepository", field.name)
		}
	}
	return nil
}

func errObject(format string, args ...any) error {
	return fault.New(fault.Invalid, origin.ReasonSettings, fmt.Errorf(format, args...))
}

// access reads the credentials of an object.
func (d *declared) access(ctx context.Context, in Cluster, o *sourcev1.GitRepository) (a origin.Access, err error) {
	if a.KnownHosts, err = source.ReadKnownHosts(d.known); err != nil {
		return a, err
	}
	if ref := o.Spec.SecretRef; ref != nil {
		data, err := in.secret(ctx, o.Namespace, ref.Name)
		if err != nil {
			return a, err
		}
		if key := o.Annotations[location.SSHKeyAnnotation]; key != "" {
			if len(data[key]) == 0 {
				return a, fault.New(fault.Missing, source.ReasonAuth, fmt.Errorf("the Secret %q has no key %q: add the private key there", ref.Name, key))
			}
			data = maps.Clone(data)
			data["identity"] = data[key]
		}
		a.Auth = source.GitAuthFrom(data)
	}
	if v := o.Spec.Verification; v != nil {
		a.Keys, err = in.secret(ctx, o.Namespace, v.SecretRef.Name)
	}
	return a, err
}

// secret reads a Secret beside an object.
func (in Cluster) secret(ctx context.Context, namespace, name string) (map[string][]byte, error) {
	data, _, err := kube.ReadSecret(ctx, in.Live, types.NamespacedName{Namespace: namespace, Name: name})
	return data, fault.New(fault.Of(err), source.ReasonAuth, err)
}
