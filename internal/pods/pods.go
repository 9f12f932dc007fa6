// Package pods makes the places of runs out of pods: one Pod for each run, in the
// namespace of its stack's object. It keeps the contract of remote.Launcher, and
// decides nothing about runs. It stores nothing: the pods are in the API server, and
// all that it knows of them it reads there.
//
// A manifest holds no secret and no input of a run. The pod has a token that the API
// server binds to it, asks the controller for its order with that, and Identify says
// which pod a token belongs to.
//
// Start reading at Pods, then manifest.go.
package pods

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	authnclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/remote"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Config is what Pods needs.
type Config struct {
	API          *rest.Config
	Installation string   // the value of a label: pods with another one are not ours
	Namespaces   []string // that stacks are reconciled in; all if empty

	Settings Settings
	Audience string                                // of the tokens of pods
	Server   func() (url string, authority []byte) // what a pod dials, and the certificate authority in PEM that it trusts there
	Now      func() time.Time
	Log      *slog.Logger
}

// Settings are what the operator chose for all pods. What a stack says comes before
// them.
type Settings struct {
	Image         string
	PullPolicy    corev1.PullPolicy
	PullSecrets   []string // names of Secrets in the namespace of a stack
	Account       string   // ServiceAccount
	PriorityClass string
	Resources     corev1.ResourceRequirements
	ProviderCache *corev1.VolumeSource // a volume with providers, which no pod can write; nil for none
}

// Pods is a remote.Launcher whose places are pods.
type Pods struct {
	config   Config
	live     client.Client
	seen     cache.Cache
	informer cache.Informer // of pods in seen
	reviews  authnclient.TokenReviewInterface
	identities
	changed chan remote.Place
	stop    context.CancelFunc
	ended   chan struct{} // closed when seen has ended
}

var _ remote.Launcher = (*Pods)(nil)

// New returns the pods of an installation, and watches them until Close.
func New(c Config) (*Pods, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	live, err := client.New(c.API, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server for pods: %w", err)
	}
	reviews, err := authnclient.NewForConfig(c.API)
	if err != nil {
		return nil, err
	}
	p := &Pods{
		config: c, live: live, reviews: reviews.TokenReviews(), identities: newIdentities(c.Now),
		changed: make(chan remote.Place), ended: make(chan struct{}),
	}
	p.seen, err = cache.New(c.API, cache.Options{
		Scheme: scheme, DefaultNamespaces: p.namespaces(),
		ByObject: map[client.Object]cache.ByObject{&corev1.Pod{}: {Label: p.ours(), Transform: slim}},
	})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	if err := p.watch(ctx); err != nil {
		stop()
		return nil, err
	}
	return p, nil
}

// Close ends the watch. The pods go on.
func (p *Pods) Close() error {
	p.stop()
	<-p.ended
	return nil
}

// Launch implements remote.Launcher: it creates the pod of a run.
func (p *Pods) Launch(ctx context.Context, l remote.Launch) (remote.Place, error) {
	pod, err := p.manifest(l)
	if err != nil {
		return remote.Place{}, err
	}
	if err := p.live.Create(ctx, pod, client.FieldOwner(kube.FieldManager)); err != nil {
		return remote.Place{}, refused(err, pod, l.Job.Words)
	}
	return placeOf(pod), nil
}

// Room implements remote.Launcher: the API server admits the pod, its ResourceQuotas
// included, and creates none. A webhook of the cluster may keep it from answering.
func (p *Pods) Room(ctx context.Context, l remote.Launch) error {
	pod, err := p.manifest(l)
	if err != nil {
		return nil // Launch says so
	}
	if err := p.live.Create(ctx, pod, client.FieldOwner(kube.FieldManager), client.DryRunAll); err != nil {
		if err = refused(err, pod, l.Job.Words); fault.Reason(err, "") == runner.NoRoom {
			return err
		}
	}
	return nil
}

// Look implements remote.Launcher. The cache may not have a pod that was just created,
// so the API server alone says that there is none.
func (p *Pods) Look(ctx context.Context, at remote.Place) (remote.Life, error) {
	key := types.NamespacedName{Namespace: at.Namespace, Name: at.Name}
	pod, err := p.pod(ctx, key, at.UID)
	switch {
	case apierrors.IsNotFound(err), err == nil && string(pod.UID) != at.UID:
		return remote.Life{State: remote.Gone, Message: fmt.Sprintf("the pod %s was deleted", key)}, nil
	case err != nil:
		return remote.Life{}, failed(err, key)
	}
	return lifeOf(pod, p.config.Settings.Image, p.config.Now()), nil
}

// pod reads a pod from the cache if that has it, else from the API server.
func (p *Pods) pod(ctx context.Context, key types.NamespacedName, uid string) (*corev1.Pod, error) {
	var seen, live corev1.Pod
	if p.informer.HasSynced() && p.seen.Get(ctx, key, &seen) == nil && string(seen.UID) == uid {
		return &seen, nil
	}
	return &live, p.live.Get(ctx, key, &live)
}

// shortestGrace is the least that a pod is given to end. With none at all the API
// server would forget a pod that its node still runs.
const shortestGrace = time.Second

// End implements remote.Launcher: it deletes the pod.
func (p *Pods) End(ctx context.Context, at remote.Place, grace time.Duration) error {
	seconds := int64(max(grace, shortestGrace) / time.Second)
	uid := types.UID(at.UID)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: at.Namespace, Name: at.Name}}
	err := p.live.Delete(ctx, pod, &client.DeleteOptions{GracePeriodSeconds: &seconds, Preconditions: &metav1.Preconditions{UID: &uid}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // it is gone, and another one may have its name
	}
	return failed(err, client.ObjectKeyFromObject(pod))
}

// Places implements remote.Launcher.
func (p *Pods) Places(ctx context.Context) ([]remote.Place, error) {
	namespaces := p.config.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	var all []remote.Place
	for _, namespace := range namespaces {
		var pods metav1.PartialObjectMetadataList
		pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
		if err := p.live.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: p.ours()}); apierrors.IsForbidden(err) && p.ends(ctx, namespace) {
			p.config.Log.Warn("the pods of runs in a namespace are passed over: it was deleted, and the right to list them with it", "namespace", namespace)
			continue
		} else if err != nil {
			return nil, fmt.Errorf("listing the pods of runs: %w", err)
		}
		for i := range pods.Items {
			all = append(all, sealedPlaceOf(&pods.Items[i]))
		}
	}
	return all, nil
}

// LeftOut reports whether Places lists no pods of a namespace, so that there may be some with runs.
// Those of a namespace that ends are not meant: Kubernetes deletes them.
func (p *Pods) LeftOut(namespace string) bool {
	return len(p.config.Namespaces) > 0 && !slices.Contains(p.config.Namespaces, namespace)
}

// ends reports whether a namespace is known to be gone, or to be deleted with its pods.
func (p *Pods) ends(ctx context.Context, namespace string) bool {
	if namespace == metav1.NamespaceAll {
		return false
	}
	var found corev1.NamespaceList // the controller may list namespaces, and get few of them
	if err := p.live.List(ctx, &found, client.MatchingFields{metav1.ObjectNameField: namespace}); err != nil {
		return false
	}
	return len(found.Items) == 0 || !found.Items[0].DeletionTimestamp.IsZero()
}

// Changed implements remote.Launcher.
func (p *Pods) Changed() <-chan remote.Place { return p.changed }

// ours selects the pods of this installation.
func (p *Pods) ours() labels.Selector {
	return labels.SelectorFromSet(labels.Set{labelInstallation: p.config.Installation, labelName: nameOfRuns})
}

func placeOf(pod client.Object) remote.Place {
	return remote.Place{Namespace: pod.GetNamespace(), Name: pod.GetName(), UID: string(pod.GetUID())}
}

// sealedPlaceOf is a place with what Launch got for it.
func sealedPlaceOf(pod client.Object) remote.Place {
	p, a := placeOf(pod), pod.GetAnnotations()
	p.Key, p.Seal = a[annotationKey], a[annotationSeal]
	return p
}

// refused says why the API server created no pod. Admission knows no kinds of errors
// but forbidden, so its words tell them apart. The words of w name fields of the stack.
func refused(err error, pod *corev1.Pod, w stack.Words) error {
	namespace, account := pod.Namespace, pod.Spec.ServiceAccountName
	text := err.Error()
	says := func(words ...string) bool {
		for _, w := range words {
			if strings.Contains(text, w) {
				return true
			}
		}
		return false
	}
	switch {
	case apierrors.IsAlreadyExists(err):
		return fault.New(fault.Conflict, "PodExists", fmt.Errorf("a pod %s/%s exists: it is of an earlier attempt, or not of a run", namespace, pod.Name))
	case invalid(err):
		return fault.New(fault.Invalid, "PodInvalid", fmt.Errorf("the API server refuses the pod of the run: %w%s", err, behind(w.PodTemplate)))
	case !apierrors.IsForbidden(err):
		return failed(err, client.ObjectKeyFromObject(pod))
	case says("exceeded quota"):
		return fault.New(fault.Later, runner.NoRoom, fmt.Errorf("the ResourceQuota of the namespace %s has no room for the pod of the run%s", namespace, after(text, "exceeded quota")))
	case says("status unknown for quota", "insufficient quota to match"):
		return fault.New(fault.Later, runner.NoRoom, fmt.Errorf("the ResourceQuota of the namespace %s is not counted yet: %w", namespace, err))
	case says(fmt.Sprintf("serviceaccount %q not found", account)):
		return fault.New(fault.Missing, "ServiceAccountMissing", fmt.Errorf(
			"the ServiceAccount %s does not exist in the namespace %s: create it, or %s", account, namespace, cmp.Or(w.Account, "name another one with --run-service-account")))
	case says("no PriorityClass with name"):
		return fault.New(fault.Missing, "PriorityClassMissing", fmt.Errorf(
			"the PriorityClass %s does not exist: create it, or %s", pod.Spec.PriorityClassName, cmp.Or(w.Priority, "name another one with --run-priority-class")))
	case says("violates PodSecurity"):
		return fault.New(fault.Denied, "PodSecurityDenied", fmt.Errorf(
			"the Pod Security of the namespace %s forbids the pod of the run: %w%s", namespace, err, behind(w.PodTemplate)))
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return fault.New(fault.Denied, "NamespaceTerminating", fmt.Errorf(
			"the namespace %s is being deleted, and the API server creates no pod in it: to let the stack go and retain its resources, annotate it with terrier.dev/deletion=retain", namespace))
	default:
		return fault.New(fault.Denied, "PodDenied", fmt.Errorf("the API server forbids the pod of the run: %w", err))
	}
}

// invalid reports whether the API server refuses what a pod is made of.
func invalid(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)
}

// behind is a sentence for the end of a message.
func behind(sentence string) string {
	if sentence == "" {
		return ""
	}
	return ". " + sentence
}

// after is the text from a word on, behind a colon.
func after(text, word string) string {
	_, rest, ok := strings.Cut(text, word)
	if !ok {
		return ""
	}
	return ": " + word + rest
}

// failed gives an error of the API server about a pod its kind.
func failed(err error, key types.NamespacedName) error {
	wrapped := fmt.Errorf("the pod %s: %w", key, err)
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err):
		return fault.New(fault.Missing, "NamespaceMissing", wrapped)
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return fault.New(fault.Denied, "PodDenied", wrapped)
	case invalid(err):
		return fault.New(fault.Invalid, "PodInvalid", wrapped)
	case apierrors.IsTooManyRequests(err):
		return fault.New(fault.Later, "APIServerBusy", wrapped)
	default:
		return wrapped // whether the API server did it is not known
	}
}
