package build

import (
	"errors"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/image"
	"github.com/terrier-iac/terrier/internal/testkit"
)

const kitImage = "registry.example/buildkit@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// scene is a namespace for builds on a real API server, where the test is the controller of
// Jobs and the node.
type scene struct {
	*testkit.Cluster
	*Builds
	wanted image.Dockerfile
}

func newScene(t *testing.T) scene {
	t.Helper()
	c := testkit.Kube(t)
	b, err := New(c.Config, Config{
		Namespace: c.Namespace, Image: kitImage, Deadline: 20 * time.Minute,
		Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2Gi")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return scene{c, b, image.Dockerfile{
		Key: "4711", Namespace: "team-a", Code: "registry.example/net@sha256:1", To: "registry.example/net:terrier-dockerfile-4711", Login: []byte(`{"auths":{}}`),
	}}
}

// built calls Build, and expects an error with a text, or that there is none.
func (s scene) built(t *testing.T, want error) string {
	t.Helper()
	digest, err := s.Build(t.Context(), s.wanted)
	if !errors.Is(err, want) {
		t.Fatalf("Build() = %q, %v, want %v", digest, err, want)
	}
	return digest
}

func (s scene) job(t *testing.T) *batchv1.Job {
	t.Helper()
	var job batchv1.Job
	s.Get(t, nameOf(s.wanted), &job)
	return &job
}

// runs makes the pod of a Job.
func (s scene) runs(t *testing.T, job *batchv1.Job, status *corev1.PodStatus) {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: job.Name + "-x", Labels: job.Spec.Template.Labels}, Spec: job.Spec.Template.Spec}
	p.Labels[batchv1.JobNameLabel] = job.Name
	if err := s.Client.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	p.Status = *status
	if err := s.Client.Status().Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}

// ends makes the pod of the Job, if there is to be one, and ends the Job.
func (s scene) ends(t *testing.T, condition batchv1.JobConditionType, reason string, pod *corev1.PodStatus) {
	t.Helper()
	job := s.job(t)
	if pod != nil {
		s.runs(t, job, pod)
	}
	now := metav1.Now()
	job.Status.StartTime = &now
	before := batchv1.JobFailureTarget
	if condition == batchv1.JobComplete {
		before, job.Status.CompletionTime, job.Status.Succeeded = batchv1.JobSuccessCriteriaMet, &now, 1
	}
	for _, c := range []batchv1.JobConditionType{before, condition} {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: c, Status: corev1.ConditionTrue, Reason: reason, LastTransitionTime: now, LastProbeTime: now})
	}
	if err := s.Client.Status().Update(t.Context(), job); err != nil {
		t.Fatal(err)
	}
}

// forget removes what a Job leaves here, where nothing collects garbage.
func (s scene) forget(t *testing.T) {
	t.Helper()
	for _, o := range []client.Object{&corev1.Pod{}, &corev1.Secret{}} {
		if err := s.Client.DeleteAllOf(t.Context(), o, client.InNamespace(s.Namespace), client.MatchingLabels{"app.kubernetes.io/name": NameOfBuilds}, client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
	}
}

func ended(container string, code int32, message string) *corev1.PodStatus {
	status := corev1.ContainerStatus{Name: container, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: message}}}
	if container == containerResult {
		return &corev1.PodStatus{Phase: corev1.PodSucceeded, ContainerStatuses: []corev1.ContainerStatus{status}}
	}
	return &corev1.PodStatus{Phase: corev1.PodFailed, InitContainerStatuses: []corev1.ContainerStatus{status}}
}

// A build is one Job, with the login of its stack for as long as it runs.
func TestABuildIsOneJob(t *testing.T) {
	s := newScene(t)
	s.built(t, image.ErrBuilding)
	s.built(t, image.ErrBuilding)
	job := s.job(t)
	pod := job.Spec.Template.Spec
	if *job.Spec.BackoffLimit != 0 || *job.Spec.ActiveDeadlineSeconds != 20*60 || *job.Spec.TTLSecondsAfterFinished != 60*60 || *pod.AutomountServiceAccountToken || *pod.EnableServiceLinks {
		t.Errorf("the Job is %+v", job.Spec)
	}
	if pod.HostNetwork || pod.HostPID || !*pod.SecurityContext.RunAsNonRoot {
		t.Errorf("the pod is %+v", pod)
	}
	var names, images []string
	for _, c := range append(pod.InitContainers, pod.Containers...) {
		names, images = append(names, c.Name), append(images, c.Image)
		login := false
		for _, m := range c.VolumeMounts {
			login = login || m.Name == volumeLogin
		}
		kit := c.Name == containerBuild
		if login != kit || *c.SecurityContext.AllowPrivilegeEscalation != kit || c.SecurityContext.Privileged != nil || c.Resources.Limits.Memory().IsZero() {
			t.Errorf("the container %s has %+v, %+v and %+v", c.Name, c.SecurityContext, c.VolumeMounts, c.Resources)
		}
	}
	if got := strings.Join(names, " "); got != "context build result" {
		t.Errorf("the containers are %s", got)
	}
	if got := strings.Join(images, " "); got != "registry.example/net@sha256:1 "+kitImage+" registry.example/net@sha256:1" {
		t.Errorf("the images are %s", got)
	}
	if got := strings.Join(pod.InitContainers[1].Args, " "); !strings.Contains(got, "--output=type=image,name="+s.wanted.To+",push=true") {
		t.Errorf("BuildKit is started with %s", got)
	}
	var login corev1.Secret
	s.Get(t, job.Name, &login)
	if string(login.Data[corev1.DockerConfigJsonKey]) != `{"auths":{}}` || !metav1.IsControlledBy(&login, job) {
		t.Errorf("the login is %s of %+v", login.Data, login.OwnerReferences)
	}

	s.ends(t, batchv1.JobComplete, "CompletionsReached", ended(containerResult, 0, "sha256:2\n"))
	for range 2 { // another controller asks for it, too
		if digest := s.built(t, nil); digest != "sha256:2" {
			t.Errorf("the digest is %q", digest)
		}
	}
	if s.Exists(t, job.Name, &corev1.Secret{}) {
		t.Error("the login is there after the build")
	}

	// The pod is gone, and with it the digest.
	s.forget(t)
	s.built(t, image.ErrBuilding)
	s.built(t, image.ErrBuilding)
	if again := s.job(t); again.UID == job.UID {
		t.Error("a Job whose pod is gone stays")
	}
}

// Two controllers may look after one build. None makes the login again once a container of it
// has started: another one may have deleted it after the build.
func TestALoginIsNotMadeAgain(t *testing.T) {
	s := newScene(t)
	s.built(t, image.ErrBuilding)
	job := s.job(t)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: job.Name}}
	other := func() scene {
		b, err := New(s.Config, s.config)
		if err != nil {
			t.Fatal(err)
		}
		return scene{s.Cluster, b, s.wanted}
	}
	for _, tt := range []struct {
		name  string
		by    scene
		made  bool
		after *corev1.PodStatus
	}{
		{"by the controller that made it", s, false, nil},
		{"by another one, before there is a pod", other(), true, nil},
		{"by another one, while the pod waits", other(), true, &corev1.PodStatus{Phase: corev1.PodPending, InitContainerStatuses: []corev1.ContainerStatus{
			{Name: containerContext, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}},
		}}},
		{"by another one, after a container started", other(), false, &corev1.PodStatus{Phase: corev1.PodPending, InitContainerStatuses: []corev1.ContainerStatus{
			{Name: containerContext, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
		}}},
	} {
		if err := client.IgnoreNotFound(s.Client.Delete(t.Context(), secret.DeepCopy())); err != nil {
			t.Fatal(err)
		}
		if tt.after != nil {
			s.forget(t)
			s.runs(t, job.DeepCopy(), tt.after)
		}
		tt.by.built(t, image.ErrBuilding)
		if made := s.Exists(t, job.Name, &corev1.Secret{}); made != tt.made {
			t.Errorf("%s: the login is made again: %v, want %v", tt.name, made, tt.made)
		}
	}
}

// The login of a Job before may be there for a while: that of this Job is made after it.
func TestALoginOfAJobBeforeIsWaitedFor(t *testing.T) {
	s := newScene(t)
	before := login(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: nameOf(s.wanted)}}, s.wanted)
	before.OwnerReferences = nil
	if err := s.Client.Create(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	s.built(t, image.ErrBuilding)
	if err := s.Client.Delete(t.Context(), before, client.Preconditions{UID: &before.UID}); err != nil {
		t.Fatal(err)
	}
	s.built(t, image.ErrBuilding)
	var own corev1.Secret
	if s.Get(t, nameOf(s.wanted), &own); !metav1.IsControlledBy(&own, s.job(t)) {
		t.Errorf("the login is of %+v", own.OwnerReferences)
	}
}

// A build that fails says why once, and another one begins then.
func TestABuildThatFailsSaysWhy(t *testing.T) {
	s := newScene(t)
	long := strings.Repeat("step\n", 400) + "#9 ERROR: process \"/bin/sh -c exit 3\" did not complete successfully"
	for name, tt := range map[string]struct {
		reason string
		pod    *corev1.PodStatus
		kind   fault.Kind
		want   string
	}{
		"a step":        {batchv1.JobReasonBackoffLimitExceeded, ended(containerBuild, 1, long), fault.Broken, "did not complete successfully"},
		"without words": {batchv1.JobReasonBackoffLimitExceeded, ended(containerBuild, 137, ""), fault.Broken, "BuildKit ended with 137"},
		"the code":      {batchv1.JobReasonBackoffLimitExceeded, ended(containerContext, 1, "no space"), fault.Broken, "the container context ended with 1: no space"},
		"the deadline":  {batchv1.JobReasonDeadlineExceeded, nil, fault.Broken, "did not end within 20m0s (--image-build-timeout). The events of its namespace say"},
	} {
		t.Run(name, func(t *testing.T) {
			s.built(t, image.ErrBuilding)
			s.ends(t, batchv1.JobFailed, tt.reason, tt.pod)
			digest, err := s.Build(t.Context(), s.wanted)
			if err == nil || digest != "" || fault.Of(err) != tt.kind || !strings.Contains(err.Error(), tt.want) || len(err.Error()) > 2*mostWords {
				t.Errorf("Build() = %q, %v (%s), want %s with %q", digest, err, fault.Of(err), tt.kind, tt.want)
			}
			s.forget(t)
			err = s.Client.Get(t.Context(), client.ObjectKey{Namespace: s.Namespace, Name: nameOf(s.wanted)}, &batchv1.Job{})
			if !apierrors.IsNotFound(err) {
				t.Errorf("reading the Job that failed: %v, want that it is gone", err)
			}
		})
	}
}

func TestTheNamespaceIsMissing(t *testing.T) {
	s := newScene(t)
	s.config.Namespace = s.Namespace + "-none"
	_, err := s.Build(t.Context(), s.wanted)
	if fault.Of(err) != fault.Denied || !strings.Contains(err.Error(), "--image-build-namespace") {
		t.Errorf("Build() = %v (%s), want Denied", err, fault.Of(err))
	}
}
