// Package build builds Dockerfiles of stacks with BuildKit, as Jobs in a namespace of their
// own.
//
// A Dockerfile is a program of a tenant. So it runs in a pod without a token, with the login
// of one stack to its own registry, with a deadline and bounds, and where the operator has
// nothing else.
//
// Start reading at Builds.Build.
package build

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/image"
	"github.com/terrier-iac/terrier/internal/kube"
)

// Config is what the operator chose for all builds.
type Config struct {
	Namespace string // of the Jobs, with nothing else in it
	Image     string // of BuildKit, rootless, by its digest
	Resources corev1.ResourceRequirements
	Deadline  time.Duration
}

// Builds are Jobs of a cluster. They implement image.Dockerfiles.
type Builds struct {
	config Config
	live   client.Client
	logins cache.Map[types.UID, struct{}] // Jobs that have needed their login, or have it
}

var _ image.Dockerfiles = (*Builds)(nil)

// New returns the builds of a cluster.
func New(api *rest.Config, c Config) (*Builds, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), batchv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	live, err := client.New(api, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server for builds: %w", err)
	}
	return &Builds{config: c, live: live}, nil
}

// Build implements image.Dockerfiles. A Job that has succeeded stays for a while, so that a
// controller that starts then need not build again. One that has failed is deleted, and the
// next call makes another.
func (b *Builds) Build(ctx context.Context, d image.Dockerfile) (string, error) {
	job := &batchv1.Job{}
	key := client.ObjectKey{Namespace: b.config.Namespace, Name: nameOf(d)}
	err := b.live.Get(ctx, key, job)
	if apierrors.IsNotFound(err) {
		job = b.job(d)
		err = b.live.Create(ctx, job, client.FieldOwner(kube.FieldManager))
		if apierrors.IsAlreadyExists(err) {
			return "", image.ErrBuilding // another controller made it
		}
	}
	switch {
	case err != nil:
		return "", b.denied(err, "the Job "+key.Name)
	case !job.DeletionTimestamp.IsZero():
		return "", image.ErrBuilding
	case has(job, batchv1.JobComplete):
		return b.result(ctx, job)
	case has(job, batchv1.JobFailed):
		why := b.why(ctx, job)
		return "", errors.Join(why, b.remove(ctx, job))
	}
	return "", cmp.Or(b.logIn(ctx, job, d), image.ErrBuilding)
}

// logIn makes the login of a Job, for which its pod waits. A controller may ask late, when
// another one has deleted the login after the build: it is made only while no container of
// the pod has started.
func (b *Builds) logIn(ctx context.Context, job *batchv1.Job, d image.Dockerfile) error {
	if _, done := b.logins.Get(job.UID); done {
		return nil
	}
	pod, err := b.pod(ctx, job)
	if err != nil {
		return err
	}
	if pod == nil || !started(pod) {
		err := b.live.Create(ctx, login(job, d), client.FieldOwner(kube.FieldManager))
		if apierrors.IsAlreadyExists(err) {
			return nil // another controller made it, or it is that of a Job before, which goes with that
		}
		if err != nil {
			return b.denied(err, "the login of the Job "+job.Name)
		}
	}
	b.logins.Put(job.UID, struct{}{})
	return nil
}

// started reports whether a container of a pod runs or ran. All volumes are mounted then.
func started(pod *corev1.Pod) bool {
	return slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses), func(c corev1.ContainerStatus) bool {
		return c.State.Running != nil || c.State.Terminated != nil
	})
}

// denied says what the controller needs for builds.
func (b *Builds) denied(err error, what string) error {
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		return fault.New(fault.Denied, "", fmt.Errorf("%s in the namespace %s is refused: %w. The operator has to make the namespace of --image-build-namespace, and to let this controller use Jobs, Secrets and pods there", what, b.config.Namespace, err))
	}
	return fmt.Errorf("%s: %w", what, err)
}

// result is the digest that the last container of the pod wrote. The login is not needed any
// more.
func (b *Builds) result(ctx context.Context, job *batchv1.Job) (string, error) {
	pod, err := b.pod(ctx, job)
	if err != nil {
		return "", err
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: job.Name}}
	if err := client.IgnoreNotFound(b.live.Delete(ctx, secret)); err != nil {
		return "", b.denied(err, "the login of the Job "+job.Name)
	}
	if pod != nil {
		for _, c := range pod.Status.ContainerStatuses {
			if t := c.State.Terminated; c.Name == containerResult && t != nil && t.Message != "" {
				return strings.TrimSpace(t.Message), nil
			}
		}
	}
	// The pod is gone, and with it what it said.
	return "", cmp.Or(b.remove(ctx, job), image.ErrBuilding)
}

// why says why a build failed, as far as its pod still says so. At a deadline the cluster
// deletes the pod.
func (b *Builds) why(ctx context.Context, job *batchv1.Job) error {
	because := "the Job " + job.Name + " failed"
	for _, c := range job.Status.Conditions {
		if c.Type == batchv1.JobFailed && c.Reason == batchv1.JobReasonDeadlineExceeded {
			because = fmt.Sprintf("the Job %s did not end within %s (--image-build-timeout)", job.Name, b.config.Deadline)
		}
	}
	pod, err := b.pod(ctx, job)
	if err != nil {
		return err
	}
	if pod == nil {
		return fmt.Errorf("%s. The events of its namespace say how its pod did: kubectl -n %s get events", because, job.Namespace)
	}
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		switch t := c.State.Terminated; {
		case t == nil || t.ExitCode == 0:
		case c.Name == containerBuild:
			return errors.New(cmp.Or(tail(t.Message), fmt.Sprintf("BuildKit ended with %d", t.ExitCode)))
		default:
			return fmt.Errorf("%s: the container %s ended with %d: %s", because, c.Name, t.ExitCode, tail(t.Message))
		}
	}
	return errors.New(because)
}

// mostWords is how much of what BuildKit printed is shown.
const mostWords = 800

// tail is the end of a text, from a whole line on.
func tail(text string) string {
	text = strings.TrimSpace(text)
	if len(text) <= mostWords {
		return text
	}
	text = text[len(text)-mostWords:]
	if _, rest, ok := strings.Cut(text, "\n"); ok {
		return rest
	}
	return strings.ToValidUTF8(text, "")
}

// pod is the newest pod of a Job; nil if there is none.
func (b *Builds) pod(ctx context.Context, job *batchv1.Job) (*corev1.Pod, error) {
	var all corev1.PodList
	if err := b.live.List(ctx, &all, client.InNamespace(job.Namespace), client.MatchingLabels{batchv1.JobNameLabel: job.Name}); err != nil {
		return nil, b.denied(err, "the pod of the Job "+job.Name)
	}
	if len(all.Items) == 0 {
		return nil, nil
	}
	newest := slices.MaxFunc(all.Items, func(a, b corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return &newest, nil
}

// remove deletes a Job with its pods. Its login goes with it.
func (b *Builds) remove(ctx context.Context, job *batchv1.Job) error {
	err := b.live.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationBackground), client.Preconditions{UID: &job.UID})
	if err = client.IgnoreNotFound(err); err != nil {
		return b.denied(err, "the Job "+job.Name)
	}
	return nil
}

func has(job *batchv1.Job, condition batchv1.JobConditionType) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == condition && c.Status == corev1.ConditionTrue
	})
}
