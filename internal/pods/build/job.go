package build

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/internal/image"
	"github.com/terrier-iac/terrier/internal/runner/dockerfile"
)

// The containers of a build, one after another.
const (
	containerContext = "context" // copies the code out of the image that brings it
	containerBuild   = "build"   // BuildKit
	containerResult  = "result"  // says which image was pushed
)

// NameOfBuilds is the value of app.kubernetes.io/name of the pods of builds, by which users find
// them. The network policy of the chart selects all pods of their namespace.
const NameOfBuilds = "terrier-image-build"

// kept is how long a Job stays after its end.
const kept = time.Hour

// rootless is the user of BuildKit's rootless image, which has the numbers of other users to
// give away there.
const rootless = 1000

// Where containers have what.
const (
	dirBuild    = "/build" // the code and the metadata
	dirContext  = dirBuild + "/context"
	metadata    = dirBuild + "/metadata.json"
	dirLogin    = "/login"
	dirBuildKit = "/home/user/.local/share/buildkit"
	dirTmp      = "/tmp"
	lastWords   = corev1.TerminationMessagePathDefault
	annotation  = "terrier.dev/namespace" // of the stack
	volumeBuild = "build"
	volumeLogin = "login"
	volumeKit   = "buildkit"
	volumeTmp   = "tmp"
	fileLogin   = "config.json"
)

func nameOf(d image.Dockerfile) string { return "terrier-build-" + d.Key }

// login is the Secret of one build. Both the kubelet and BuildKit use it.
func login(job *batchv1.Job, d image.Dockerfile) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: job.Namespace, Name: job.Name, Labels: job.Labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))},
		},
		Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: d.Login},
	}
}

// job is the Job of a build. Nothing of the Dockerfile or the code is in it.
func (b *Builds) job(d image.Dockerfile) *batchv1.Job {
	labels := map[string]string{"app.kubernetes.io/name": NameOfBuilds, "app.kubernetes.io/managed-by": "terrier"}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.config.Namespace, Name: nameOf(d), Labels: labels, Annotations: map[string]string{annotation: d.Namespace}},
		Spec: batchv1.JobSpec{
			BackoffLimit: new(int32(0)), ActiveDeadlineSeconds: new(int64(b.config.Deadline / time.Second)), TTLSecondsAfterFinished: new(int32(kept / time.Second)),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{annotation: d.Namespace}},
				Spec:       b.pods(d),
			},
		},
	}
}

func (b *Builds) pods(d image.Dockerfile) corev1.PodSpec {
	mount := func(volume, at string) corev1.VolumeMount { return corev1.VolumeMount{Name: volume, MountPath: at} }
	empty := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	return corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
		ImagePullSecrets: []corev1.LocalObjectReference{{Name: nameOf(d)}},
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: new(true), RunAsUser: new(int64(rootless)), RunAsGroup: new(int64(rootless)), FSGroup: new(int64(rootless)),
		},
		Volumes: []corev1.Volume{
			{Name: volumeBuild, VolumeSource: empty}, {Name: volumeKit, VolumeSource: empty}, {Name: volumeTmp, VolumeSource: empty},
			{Name: volumeLogin, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
				SecretName: nameOf(d), Items: []corev1.KeyToPath{{Key: corev1.DockerConfigJsonKey, Path: fileLogin}},
			}}},
		},
		InitContainers: []corev1.Container{
			own(containerContext, d.Code, dockerfile.ArgumentContext, "/"+image.Directory, dirContext),
			{
				Name: containerBuild, Image: b.config.Image, Resources: b.config.Resources,
				Command: []string{"buildctl-daemonless.sh"},
				Args: []string{
					"build", "--progress=plain", "--frontend=dockerfile.v0",
					"--local=context=" + dirContext, "--local=dockerfile=" + dirContext,
					"--output=type=image,name=" + d.To + ",push=true", "--metadata-file=" + metadata,
				},
				Env: []corev1.EnvVar{
					// Without it RUN steps had a /proc of their own, which needs more than a pod has.
					{Name: "BUILDKITD_FLAGS", Value: "--oci-worker-no-process-sandbox"},
					{Name: "DOCKER_CONFIG", Value: dirLogin},
				},
				VolumeMounts: []corev1.VolumeMount{
					mount(volumeBuild, dirBuild), mount(volumeKit, dirBuildKit), mount(volumeTmp, dirTmp),
					{Name: volumeLogin, MountPath: dirLogin, ReadOnly: true},
				},
				// newuidmap of the image gives BuildKit the numbers of other users.
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: new(true),
					SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined},
					AppArmorProfile:          &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined},
				},
				TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
			},
		},
		Containers: []corev1.Container{own(containerResult, d.Code, dockerfile.ArgumentResult, metadata, lastWords)},
	}
}

// own is a container of terrier-runner, which the image with the code has, too.
func own(name, of string, args ...string) corev1.Container {
	return corev1.Container{
		Name: name, Image: of, Args: args,
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")},
		},
		VolumeMounts: []corev1.VolumeMount{{Name: volumeBuild, MountPath: dirBuild}},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
			Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
}
