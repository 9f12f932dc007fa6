package secretsync

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/controller/vaults"
	"github.com/terrier-iac/terrier/internal/externalsecret"
	"github.com/terrier-iac/terrier/internal/vault"
)

// SecretPrefix begins the names of Secrets that are written for a ServiceAccount. The rest
// is the path of a secret, with dots for slashes.
const SecretPrefix = "vault-secret-"

// Annotations of a ServiceAccount besides those of Vault's agent.
const (
	MountAnnotation   = "terrier.dev/vault-mount"   // of the secrets; the name of the namespace if there is none
	LeasesAnnotation  = "terrier.dev/vault-leases"  // paths with their mounts, with commas between them, of secrets that the server makes for each reading
	SecretsAnnotation = "terrier.dev/vault-secrets" // paths, with commas between them, besides those that workloads refer to
)

// Default is the server of ServiceAccounts with annotations.
type Default struct {
	Server, Namespace string
	CA                []byte
	Method            vault.Method // of accounts that do not say
	Path, Role        string       // of accounts that name none
	Audience          string       // of their tokens; empty for that of the API server
	Refresh           time.Duration
}

// accountReconciler makes a store for each ServiceAccount with the annotations of Vault's
// agent, and an ExternalSecret for each Secret that its workloads expect. Everything else
// follows from these objects.
type accountReconciler struct {
	Options
	cache client.Reader
	guard *guard
	told  cache.Map[types.UID, string] // what the newest event of an account says
}

func (r *accountReconciler) setup(mgr ctrl.Manager) error {
	owned := handler.EnqueueRequestForOwner(mgr.GetScheme(), mgr.GetRESTMapper(), &corev1.ServiceAccount{}, handler.OnlyControllerOwner())
	changed := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	return ctrl.NewControllerManagedBy(mgr).
		Named("serviceaccount-secrets").
		For(&corev1.ServiceAccount{}, builder.WithPredicates(predicate.AnnotationChangedPredicate{})).
		Watches(&appsv1.Deployment{}, handler.EnqueueRequestsFromMapFunc(accountOf), changed).
		Watches(&appsv1.StatefulSet{}, handler.EnqueueRequestsFromMapFunc(accountOf), changed).
		Watches(&appsv1.DaemonSet{}, handler.EnqueueRequestsFromMapFunc(accountOf), changed).
		Watches(object(kindOf), owned, changed).
		Watches(object(externalsecret.SecretStore), owned, changed).
		Complete(r)
}

// accountOf is the account of the pods of a workload.
func accountOf(_ context.Context, o client.Object) []reconcile.Request {
	var t corev1.PodTemplateSpec
	switch o := o.(type) {
	case *appsv1.Deployment:
		t = o.Spec.Template
	case *appsv1.StatefulSet:
		t = o.Spec.Template
	case *appsv1.DaemonSet:
		t = o.Spec.Template
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: cmp.Or(t.Spec.ServiceAccountName, "default")}}}
}

// Reconcile makes what lacks. It deletes no ExternalSecret: a workload that is gone may come
// again.
func (r *accountReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	account := &corev1.ServiceAccount{}
	if err := r.cache.Get(ctx, req.NamespacedName, account); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	_, hasRole := account.Annotations[vaults.RoleAnnotation]
	_, hasPath := account.Annotations[vaults.PathAnnotation]
	_, hasCredentials := account.Annotations[vaults.CredentialsAnnotation]
	if !account.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	if off, err := r.guard.off(ctx); off || err != nil {
		return ctrl.Result{RequeueAfter: recheck}, err
	}
	leased := leasedPaths(account)
	if !hasRole && !hasPath && !hasCredentials {
		return ctrl.Result{}, errors.Join(r.endStore(ctx, account, storeName(account)), r.endStore(ctx, account, leasedStoreName(account)))
	}
	if len(leased) == 0 {
		if err := r.endStore(ctx, account, leasedStoreName(account)); err != nil {
			return ctrl.Result{}, err
		}
	}
	paths, err := r.paths(ctx, account)
	if err != nil || len(paths) == 0 {
		return ctrl.Result{}, err
	}
	method, problem := r.method(account)
	if problem != "" {
		if said, _ := r.told.Get(account.UID); said != problem {
			r.Events.Event(account, corev1.EventTypeWarning, "VaultSecretsNotSynced", problem)
			r.told.Put(account.UID, problem)
		}
		return ctrl.Result{}, nil
	}
	r.told.Delete(account.UID)
	wanted := []*unstructured.Unstructured{r.store(account, storeName(account), mountOf(account), method)}
	if len(leased) > 0 {
		wanted = append(wanted, r.store(account, leasedStoreName(account), "", method))
	}
	for _, path := range paths {
		if slices.Contains(leased, path) {
			wanted = append(wanted, r.externalSecret(account, leasedStoreName(account), path, path))
			continue
		}
		key := path
		if mount := mountOf(account); path == mount || strings.HasPrefix(path, mount+"/") {
			key = mount + "/" + path // or it would be taken for the mount
		}
		wanted = append(wanted, r.externalSecret(account, storeName(account), path, key))
	}
	for _, o := range wanted {
		if err := r.ensure(ctx, account, o); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{}, nil
}

// method is how an account signs in. Where it gets no secrets, the problem says why, for people.
func (r *accountReconciler) method(account *corev1.ServiceAccount) (method vault.Method, problem string) {
	d := r.Default
	if d == nil {
		return "", "its workloads refer to secrets of Vault, and this installation knows no OpenBao or Vault: start the controller with --vault=URL"
	}
	method, err := vaults.MethodOf(account.Annotations, d.Method)
	switch {
	case err != nil:
		return "", err.Error()
	case !method.Kept() && cmp.Or(account.Annotations[vaults.RoleAnnotation], d.Role) == "":
		return "", "it has the annotation " + vaults.PathAnnotation + " and names no role: annotate it with " + vaults.RoleAnnotation
	case len(validation.IsDNS1123Subdomain(leasedStoreName(account))) > 0:
		return "", "its name is too long for a store"
	}
	return method, ""
}

// paths are the secrets that the workloads of an account refer to, and those that the
// account names.
func (r *accountReconciler) paths(ctx context.Context, account *corev1.ServiceAccount) ([]string, error) {
	all := append(words(account.Annotations[SecretsAnnotation]), leasedPaths(account)...)
	found, err := workloads(ctx, r.cache, account.Namespace)
	if err != nil {
		return nil, err
	}
	for _, w := range found {
		if cmp.Or(w.template.Spec.ServiceAccountName, "default") != account.Name {
			continue
		}
		for _, name := range w.secrets() {
			if path, ok := strings.CutPrefix(name, SecretPrefix); ok && path != "" {
				all = append(all, strings.ReplaceAll(path, ".", "/"))
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// leasedPaths are the secrets of an account that the server makes for each reading.
func leasedPaths(account *corev1.ServiceAccount) (all []string) {
	for _, path := range words(account.Annotations[LeasesAnnotation]) {
		all = append(all, strings.Trim(path, "/"))
	}
	return all
}

// storeName is the store of an account for secrets below its mount, and leasedStoreName the one
// for those that the server makes, which are below others.
func storeName(account *corev1.ServiceAccount) string { return "vault-" + account.Name }

func leasedStoreName(account *corev1.ServiceAccount) string { return storeName(account) + "-leases" }

func mountOf(account *corev1.ServiceAccount) string {
	return strings.Trim(cmp.Or(account.Annotations[MountAnnotation], account.Namespace), "/")
}

// auth says how an account signs in, as a store has it.
func (d *Default) auth(account *corev1.ServiceAccount, method vault.Method) map[string]any {
	role := cmp.Or(account.Annotations[vaults.RoleAnnotation], d.Role)
	path := cmp.Or(trimAuth(account.Annotations[vaults.PathAnnotation]), string(method))
	if method == d.Method {
		path = cmp.Or(trimAuth(account.Annotations[vaults.PathAnnotation]), d.Path)
	}
	key := func(name string) map[string]any {
		return map[string]any{"name": account.Annotations[vaults.CredentialsAnnotation], "key": name}
	}
	who := map[string]any{"name": account.Name}
	if d.Audience != "" {
		who["audiences"] = []any{d.Audience}
	}
	switch method {
	case vault.AppRole:
		return map[string]any{"appRole": map[string]any{"path": path, "roleRef": key(vaults.RoleIDKey), "secretRef": key(vaults.SecretIDKey)}}
	case vault.Token:
		return map[string]any{"tokenSecretRef": key(vaults.TokenKey)}
	case vault.JWT:
		return map[string]any{"jwt": map[string]any{"path": path, "role": role, "kubernetesServiceAccountToken": map[string]any{"serviceAccountRef": who}}}
	default:
		return map[string]any{"kubernetes": map[string]any{"mountPath": path, "role": role, "serviceAccountRef": who}}
	}
}

// store is one of an account; without a mount its keys begin with theirs.
func (r *accountReconciler) store(account *corev1.ServiceAccount, name, mount string, method vault.Method) *unstructured.Unstructured {
	d := r.Default
	v := map[string]any{"server": d.Server, "auth": d.auth(account, method)}
	if mount != "" {
		v["path"] = mount
	}
	if d.Namespace != "" {
		v["namespace"] = d.Namespace
	}
	if len(d.CA) > 0 {
		v["caBundle"] = base64.StdEncoding.EncodeToString(d.CA)
	}
	return r.made(account, externalsecret.SecretStore, name, map[string]any{"provider": map[string]any{"vault": v}})
}

// externalSecret is that of one secret of an account.
func (r *accountReconciler) externalSecret(account *corev1.ServiceAccount, store, path, key string) *unstructured.Unstructured {
	name := SecretPrefix + strings.ReplaceAll(path, "/", ".")
	return r.made(account, kindOf, name, map[string]any{
		"secretStoreRef":  map[string]any{"kind": externalsecret.SecretStore, "name": store},
		"refreshInterval": r.Default.Refresh.String(),
		"target":          map[string]any{"name": name, "creationPolicy": string(externalsecret.Owner), "deletionPolicy": string(externalsecret.Retain)},
		"dataFrom":        []any{map[string]any{"extract": map[string]any{"key": key}}},
	})
}

func (r *accountReconciler) made(account *corev1.ServiceAccount, kind, name string, spec map[string]any) *unstructured.Unstructured {
	o := object(kind)
	o.SetNamespace(account.Namespace)
	o.SetName(name)
	o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ServiceAccount", Name: account.Name, UID: account.UID, Controller: new(true)}})
	o.Object["spec"] = spec
	return o
}

// ensure applies an object, unless there is one that a user made, which counts more.
func (r *accountReconciler) ensure(ctx context.Context, account *corev1.ServiceAccount, wanted *unstructured.Unstructured) error {
	found := object(wanted.GetKind())
	err := r.Live.Get(ctx, client.ObjectKeyFromObject(wanted), found)
	switch {
	case apierrors.IsNotFound(err):
		err = r.Live.Create(ctx, wanted, client.FieldOwner(manager))
		if apierrors.IsAlreadyExists(err) {
			return nil // its event comes
		}
	case err != nil:
	case !metav1.IsControlledBy(found, account), equality.Semantic.DeepEqual(found.Object["spec"], wanted.Object["spec"]):
		return nil
	default:
		next := found.DeepCopy()
		next.Object["spec"] = wanted.Object["spec"]
		err = r.Live.Patch(ctx, next, client.MergeFromWithOptions(found, client.MergeFromWithOptimisticLock{}), client.FieldOwner(manager))
	}
	if err != nil {
		return lacks(fmt.Errorf("writing the %s %s for the ServiceAccount %s: %w", wanted.GetKind(), wanted.GetName(), account.Name, err), err)
	}
	return nil
}

// endStore deletes a store of an account whose annotations were removed: its secrets are
// not read any more. Secrets that were written stay.
func (r *accountReconciler) endStore(ctx context.Context, account *corev1.ServiceAccount, name string) error {
	found := object(externalsecret.SecretStore)
	err := r.cache.Get(ctx, client.ObjectKey{Namespace: account.Namespace, Name: name}, found)
	if err != nil || !metav1.IsControlledBy(found, account) {
		return client.IgnoreNotFound(err)
	}
	uid := found.GetUID()
	return client.IgnoreNotFound(r.Live.Delete(ctx, found, client.Preconditions{UID: &uid}))
}
