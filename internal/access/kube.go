package access

import (
	"errors"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	appsv1 "k8s.io/api/apps/v1"
	authnv1 "k8s.io/api/authentication/v1"
	authzv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/dialect"
)

// compact is config with protobuf, for the kinds of Kubernetes itself.
func compact(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	return config
}

// The ConfigMap in which the server writes how its HTTP API is reached.
const (
	ServerNamespace = "terrier-system"
	ServerConfigMap = "terrier-server"
	ServerURLKey    = "url"
	ServerCAKey     = "ca.crt"
)

// NewClient returns a client for these kinds of stack, and the other kinds that
// questions and commands need. It
// does no discovery, so that a command costs one request.
func NewClient(config *rest.Config, stacks dialect.Registry) (client.WithWatch, error) {
	scheme, mapper, err := kinds(stacks)
	if err != nil {
		return nil, err
	}
	return client.NewWithWatch(config, client.Options{Scheme: scheme, Mapper: mapper})
}

// kinds are those that NewClient knows, and where they are served.
func kinds(stacks dialect.Registry) (*runtime.Scheme, meta.RESTMapper, error) {
	scheme, err := NewScheme(stacks)
	if err != nil {
		return nil, nil, err
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, d := range stacks.All() {
		mapper.Add(d.Kind(), meta.RESTScopeNamespace)
	}
	for _, kind := range []string{"Secret", "ConfigMap", "Event"} {
		mapper.Add(corev1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	mapper.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), meta.RESTScopeNamespace)
	for _, kind := range []string{tenantsv1.RegistryKind, tenantsv1.TemplateKind, tenantsv1.TenantKind} {
		mapper.Add(tenantsv1.GroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	mapper.Add(appsv1.SchemeGroupVersion.WithKind("ControllerRevision"), meta.RESTScopeNamespace)
	for _, kind := range []string{sourcev1.GitRepositoryKind, sourcev1.OCIRepositoryKind, sourcev1.BucketKind} {
		mapper.Add(sourcev1.GroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	for _, kind := range []string{LynqHub, LynqForm, LynqNode} {
		mapper.Add(LynqGroup.WithKind(kind), meta.RESTScopeNamespace)
	}
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	mapper.Add(authnv1.SchemeGroupVersion.WithKind("SelfSubjectReview"), meta.RESTScopeRoot)
	mapper.Add(authzv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"), meta.RESTScopeRoot)
	return scheme, mapper, nil
}

// LynqGroup has the kinds of Lynq, the successor of Tenant Operator.
var LynqGroup = schema.GroupVersion{Group: "operator.lynq.sh", Version: "v1"}

// The kinds of Lynq that can be imported.
const (
	LynqHub  = "LynqHub"
	LynqForm = "LynqForm"
	LynqNode = "LynqNode"
)

// NewScheme returns the types of those kinds.
func NewScheme(stacks dialect.Registry) (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	var errs []error
	for _, d := range stacks.All() {
		errs = append(errs, d.AddToScheme(s))
	}
	return s, errors.Join(errors.Join(errs...), corev1.AddToScheme(s), coordinationv1.AddToScheme(s), authnv1.AddToScheme(s), authzv1.AddToScheme(s),
		appsv1.AddToScheme(s), tenantsv1.AddToScheme(s), sourcev1.AddToScheme(s))
}

// FieldManager is the field manager of the command line.
const FieldManager = "terrier"
