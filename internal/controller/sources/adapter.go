package sources

import (
	"context"
	"fmt"
	"time"

	"github.com/fluxcd/pkg/apis/meta"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/source"
)

// adapter is one object of some kind.
type adapter interface {
	// fields are the parts that all kinds have.
	fields() fields
	// secrets are those that the spec names; some may be nil.
	secrets() []*meta.LocalObjectReference
	// fetcher turns the spec into something that can be fetched.
	fetcher(ctx context.Context, in inputs) (source.Fetcher, error)
	// shaped reports whether the artifact was made by the rules of the spec.
	shaped() bool
	// note writes down the rules that the artifact was made by.
	note()
	// verifies reports whether the spec asks for signatures.
	verifies() bool
}

// fields point into an object.
type fields struct {
	suspended bool
	interval  time.Duration
	timeout   *metav1.Duration

	generation *int64
	conditions *[]metav1.Condition
	artifact   **meta.Artifact
	handled    *string
}

// inputs are where fetchers get what a spec refers to. References stay in the
// namespace of the object: there is no field that could say another.
type inputs struct {
	namespace string
	live      client.Reader // asks the API server: Secrets are not cached
	out       *outbound.Client
	scratch   string
	limits    archive.Limits
	pull      func(namespace string) []byte
	hosts     string // the file of the operator with known_hosts; may be empty
	trusted   string // the file of the operator with the trusted root for signatures; may be empty
}

// knownHosts are the lines of the operator.
func (in inputs) knownHosts() ([]byte, error) {
	lines, err := source.ReadKnownHosts(in.hosts)
	return lines, fault.New(fault.Of(err), source.ReasonAuth, err)
}

// secret returns the data of a Secret that is referred to, nil for no reference.
func (in inputs) secret(ctx context.Context, ref *meta.LocalObjectReference) (map[string][]byte, error) {
	if ref == nil {
		return nil, nil
	}
	data, _, err := kube.ReadSecret(ctx, in.live, types.NamespacedName{Namespace: in.namespace, Name: ref.Name})
	return data, fault.New(fault.Of(err), source.ReasonAuth, err)
}

// pullSecrets returns the registry credentials of a ServiceAccount.
func (in inputs) pullSecrets(ctx context.Context, account string) ([][]byte, error) {
	if account == "" {
		return nil, nil
	}
	var sa corev1.ServiceAccount
	if err := in.live.Get(ctx, types.NamespacedName{Namespace: in.namespace, Name: account}, &sa); err != nil {
		kind := fault.Broken
		if client.IgnoreNotFound(err) == nil {
			kind = fault.Missing
		}
		return nil, fault.New(kind, source.ReasonAuth, fmt.Errorf("reading the ServiceAccount %q: %w", account, err))
	}
	var all [][]byte
	for _, ref := range sa.ImagePullSecrets {
		data, err := in.secret(ctx, &meta.LocalObjectReference{Name: ref.Name})
		if err != nil {
			return nil, err
		}
		all = append(all, data[corev1.DockerConfigJsonKey])
	}
	return all, nil
}

// unsupported refuses a spec that uses a field which would be ignored. Fields
// are given as pairs of name and whether it is used.
func unsupported(used map[string]bool) error {
	var names []string
	for name, is := range used {
		if is {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fault.New(fault.Invalid, source.ReasonUnsupported, fmt.Errorf("not supported: %s", list(names)))
}
