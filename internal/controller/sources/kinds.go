package sources

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fluxcd/pkg/apis/meta"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/location"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/source"
)

func gitKind() kind {
	return kind{
		name: sourcev1.GitRepositoryKind, reason: source.ReasonGit,
		make: func() client.Object { return &sourcev1.GitRepository{} },
		list: func() client.ObjectList { return &sourcev1.GitRepositoryList{} },
		wrap: func(o client.Object) adapter { return git{o.(*sourcev1.GitRepository)} },
	}
}

type git struct{ *sourcev1.GitRepository }

func (g git) fields() fields {
	s := &g.Status
	return fields{g.Spec.Suspend, g.Spec.Interval.Duration, g.Spec.Timeout, &s.ObservedGeneration, &s.Conditions, &s.Artifact, &s.LastHandledReconcileAt}
}

func (g git) secrets() []*meta.LocalObjectReference {
	refs := []*meta.LocalObjectReference{g.Spec.SecretRef}
	if v := g.Spec.Verification; v != nil {
		refs = append(refs, &v.SecretRef)
	}
	return refs
}

// identity is the private key for ssh: under the key that an annotation names, or under
// one of the usual keys.
func (g git) identity(data map[string][]byte, usual secret.Text) (secret.Text, error) {
	key := g.Annotations[location.SSHKeyAnnotation]
	if key == "" {
		return usual, nil
	}
	if g.Spec.SecretRef == nil {
		return secret.Text{}, fault.New(fault.Invalid, source.ReasonAuth, fmt.Errorf("the annotation %s names a key of a Secret, and spec.secretRef names none", location.SSHKeyAnnotation))
	}
	if len(data[key]) == 0 {
		return secret.Text{}, fault.New(fault.Missing, source.ReasonAuth, fmt.Errorf("the Secret %q has no key %q: add the private key there", g.Spec.SecretRef.Name, key))
	}
	return secret.New(string(data[key])), nil
}

func (g git) fetcher(ctx context.Context, in inputs) (source.Fetcher, error) {
	spec := g.Spec
	err := unsupported(map[string]bool{
		"spec.provider " + spec.Provider: spec.Provider != "" && spec.Provider != sourcev1.GitProviderGeneric,
		"spec.serviceAccountName":        spec.ServiceAccountName != "",
		"spec.proxySecretRef":            spec.ProxySecretRef != nil,
		"spec.recurseSubmodules":         spec.RecurseSubmodules,
		"spec.include":                   len(spec.Include) > 0,
	})
	if err != nil {
		return nil, err
	}
	data, err := in.secret(ctx, spec.SecretRef)
	if err != nil {
		return nil, err
	}
	f := &source.Git{
		URL: spec.URL, Auth: source.GitAuthFrom(data), Ignore: spec.Ignore, Sparse: spec.SparseCheckout,
		Search: g.Annotations[location.SearchAnnotation] == "true",
		Out:    in.out, Scratch: in.scratch, Limits: in.limits,
	}
	if a := g.Status.Artifact; a != nil {
		f.Remembered = a.Metadata[source.RepositoryFound]
	}
	if f.Auth.Identity, err = g.identity(data, f.Auth.Identity); err != nil {
		return nil, err
	}
	if f.KnownHosts, err = in.knownHosts(); err != nil {
		return nil, err
	}
	if v := spec.Verification; v != nil {
		keys, err := in.secret(ctx, &v.SecretRef)
		if err != nil {
			return nil, err
		}
		if f.Verify, err = source.GitVerifyFrom(string(v.GetMode()), keys); err != nil {
			return nil, err
		}
	}
	if r := spec.Reference; r != nil {
		f.Ref = source.GitRef{Branch: r.Branch, Tag: r.Tag, SemVer: r.SemVer, Name: r.Name, Commit: r.Commit}
	}
	return f, nil
}

func (g git) shaped() bool {
	return equality.Semantic.DeepEqual(g.Spec.Ignore, g.Status.ObservedIgnore) && slices.Equal(g.Spec.SparseCheckout, g.Status.ObservedSparseCheckout)
}

func (g git) verifies() bool { return g.Spec.Verification != nil }

func (g git) note() {
	g.Status.SourceVerificationMode = nil
	if v := g.Spec.Verification; v != nil {
		g.Status.SourceVerificationMode = new(v.GetMode())
	}
	g.Status.ObservedIgnore = g.Spec.Ignore
	g.Status.ObservedSparseCheckout = g.Spec.SparseCheckout
}

func ociKind() kind {
	return kind{
		name: sourcev1.OCIRepositoryKind, reason: source.ReasonOCI,
		make: func() client.Object { return &sourcev1.OCIRepository{} },
		list: func() client.ObjectList { return &sourcev1.OCIRepositoryList{} },
		wrap: func(o client.Object) adapter { return oci{o.(*sourcev1.OCIRepository)} },
	}
}

type oci struct{ *sourcev1.OCIRepository }

func (o oci) fields() fields {
	s := &o.Status
	return fields{o.Spec.Suspend, o.Spec.Interval.Duration, o.Spec.Timeout, &s.ObservedGeneration, &s.Conditions, &s.Artifact, &s.LastHandledReconcileAt}
}

func (o oci) secrets() []*meta.LocalObjectReference {
	refs := []*meta.LocalObjectReference{o.Spec.SecretRef, o.Spec.CertSecretRef}
	if v := o.Spec.Verify; v != nil {
		refs = append(refs, v.SecretRef, v.TrustedRootSecretRef)
	}
	return refs
}

func (o oci) verifies() bool { return o.Spec.Verify != nil }

func (o oci) fetcher(ctx context.Context, in inputs) (source.Fetcher, error) {
	spec := o.Spec
	err := unsupported(map[string]bool{
		"spec.provider " + spec.Provider: spec.Provider != "" && spec.Provider != sourcev1.GenericOCIProvider,
		"spec.proxySecretRef":            spec.ProxySecretRef != nil,
	})
	if err != nil {
		return nil, err
	}
	keys, err := o.keyring(ctx, in)
	if err != nil {
		return nil, err
	}
	f := &source.OCI{
		URL: spec.URL, Keys: keys, Insecure: spec.Insecure, Ignore: spec.Ignore, Out: in.out, Scratch: in.scratch, Limits: in.limits,
		Layer: source.OCILayer{
			MediaType: o.GetLayerMediaType(), Copy: o.GetLayerOperation() == sourcev1.OCILayerCopy,
			Code: o.GetLayerMediaType() == location.CodeOfImage,
		},
	}
	if f.CA, f.Cert, f.Key, err = certificates(ctx, in, spec.CertSecretRef); err != nil {
		return nil, err
	}
	if f.Verify, err = o.verifier(ctx, in); err != nil {
		return nil, err
	}
	if r := spec.Reference; r != nil {
		f.Ref = source.OCIRef{Tag: r.Tag, SemVer: r.SemVer, Filter: r.SemverFilter, Digest: r.Digest}
	}
	return f, nil
}

// keyring holds the credentials of the Secret, then those of the ServiceAccount,
// then those that every source of the namespace has.
func (o oci) keyring(ctx context.Context, in inputs) (*source.Keyring, error) {
	var configs [][]byte
	if o.Spec.SecretRef != nil {
		data, err := in.secret(ctx, o.Spec.SecretRef)
		if err != nil {
			return nil, err
		}
		config := data[corev1.DockerConfigJsonKey]
		if own := data[o.Annotations[location.DockerConfigAnnotation]]; len(own) > 0 {
			config = own
		}
		configs = append(configs, config)
	}
	more, err := in.pullSecrets(ctx, o.Spec.ServiceAccountName)
	if err != nil {
		return nil, err
	}
	configs = append(configs, more...)
	if in.pull != nil {
		configs = append(configs, in.pull(in.namespace))
	}
	return source.ParseKeyring(configs...)
}

func (o oci) shaped() bool {
	return equality.Semantic.DeepEqual(o.Spec.Ignore, o.Status.ObservedIgnore) && equality.Semantic.DeepEqual(o.Spec.LayerSelector, o.Status.ObservedLayerSelector)
}

func (o oci) note() {
	o.Status.ObservedIgnore = o.Spec.Ignore
	o.Status.ObservedLayerSelector = o.Spec.LayerSelector
}

func bucketKind() kind {
	return kind{
		name: sourcev1.BucketKind, reason: source.ReasonBucket,
		make: func() client.Object { return &sourcev1.Bucket{} },
		list: func() client.ObjectList { return &sourcev1.BucketList{} },
		wrap: func(o client.Object) adapter { return bucket{o.(*sourcev1.Bucket)} },
	}
}

type bucket struct{ *sourcev1.Bucket }

func (b bucket) fields() fields {
	s := &b.Status
	return fields{b.Spec.Suspend, b.Spec.Interval.Duration, b.Spec.Timeout, &s.ObservedGeneration, &s.Conditions, &s.Artifact, &s.LastHandledReconcileAt}
}

func (b bucket) secrets() []*meta.LocalObjectReference {
	return []*meta.LocalObjectReference{b.Spec.SecretRef, b.Spec.CertSecretRef}
}

func (b bucket) fetcher(ctx context.Context, in inputs) (source.Fetcher, error) {
	spec := b.Spec
	provider := cmp.Or(spec.Provider, sourcev1.BucketProviderGeneric)
	err := unsupported(map[string]bool{
		"spec.provider " + provider:             provider != sourcev1.BucketProviderGeneric && provider != sourcev1.BucketProviderAmazon,
		"spec.provider aws without a secretRef": provider == sourcev1.BucketProviderAmazon && spec.SecretRef == nil,
		"spec.sts":                              spec.STS != nil,
		"spec.serviceAccountName":               spec.ServiceAccountName != "",
		"spec.proxySecretRef":                   spec.ProxySecretRef != nil,
	})
	if err != nil {
		return nil, err
	}
	f := &source.Bucket{
		Endpoint: spec.Endpoint, Name: spec.BucketName, Prefix: spec.Prefix, Region: spec.Region,
		Insecure: spec.Insecure, Ignore: spec.Ignore, Out: in.out, Scratch: in.scratch, Limits: in.limits,
	}
	if spec.SecretRef != nil {
		data, err := in.secret(ctx, spec.SecretRef)
		if err != nil {
			return nil, err
		}
		f.AccessKey, f.SecretKey = strings.TrimSpace(string(data["accesskey"])), secret.New(strings.TrimSpace(string(data["secretkey"])))
		if f.AccessKey == "" || f.SecretKey.Empty() {
			return nil, fault.New(fault.Invalid, source.ReasonAuth, errMissingKeys(spec.SecretRef.Name))
		}
	}
	if f.CA, f.Cert, f.Key, err = certificates(ctx, in, spec.CertSecretRef); err != nil {
		return nil, err
	}
	return f, nil
}

func (b bucket) shaped() bool {
	return equality.Semantic.DeepEqual(b.Spec.Ignore, b.Status.ObservedIgnore)
}

func (b bucket) verifies() bool { return false }

func (b bucket) note() { b.Status.ObservedIgnore = b.Spec.Ignore }

// certificates reads ca.crt, tls.crt and tls.key.
func certificates(ctx context.Context, in inputs, ref *meta.LocalObjectReference) (ca, cert []byte, key secret.Text, err error) {
	data, err := in.secret(ctx, ref)
	if err != nil {
		return nil, nil, secret.Text{}, err
	}
	auth := source.GitAuthFrom(data)
	return auth.CA, auth.Cert, auth.Key, nil
}
