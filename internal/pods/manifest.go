package pods

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/agent"
	"github.com/terrier-iac/terrier/internal/runner/remote"
	"github.com/terrier-iac/terrier/internal/stack"
)

// The labels of a pod.
const (
	labelName         = "app.kubernetes.io/name"
	labelManagedBy    = "app.kubernetes.io/managed-by"
	labelInstallation = "terrier.dev/installation" // of the controller that made it
	labelKind         = "terrier.dev/run-kind"

	nameOfRuns = "terrier-run" // the value of labelName
)

// The annotations of a pod: for people, and what a controller that has lost its
// directory finds a run by.
const (
	annotationStack = "terrier.dev/stack" // namespace/name of its object
	annotationUID   = "terrier.dev/stack-uid"
	annotationRun   = "terrier.dev/run"
	annotationKey   = "terrier.dev/run-key"
	annotationSeal  = "terrier.dev/run-seal"
)

// What keeps the autoscalers from taking the node of a pod that changes resources.
const (
	annotationSafeToEvict  = "cluster-autoscaler.kubernetes.io/safe-to-evict"
	annotationDoNotDisrupt = "karpenter.sh/do-not-disrupt"
)

// The volumes of a pod that are ours. No template has volumes of such names.
const (
	reservedVolumes = "terrier-"
	volumeWork      = reservedVolumes + "work"
	volumeToken     = reservedVolumes + "token"
	volumeTmp       = reservedVolumes + "tmp"
	volumeProviders = reservedVolumes + "providers"
)

// Where the container of a run has them.
const (
	dirTerrier = "/run/terrier"
	dirWork    = dirTerrier + "/work"
	dirToken   = dirTerrier + "/token"
	fileToken  = "token" // in dirToken
	dirTmp     = "/tmp"

	dirProviders = dirTerrier + "/providers"
)

const (
	noUser       = 65532       // has no rights on any node
	tokenSeconds = 10 * 60     // the shortest that the API server issues; the kubelet renews it
	tokenMode    = 0o400       //
	lastWords    = time.Minute // beyond the grace of the engine, to send what it left
)

// defaultAccount exists in every namespace, and belongs to no stack more than to others.
const defaultAccount = "default"

// manifest is the pod of a run: what the operator chose, changed by the template of the
// stack, and then what no template changes.
func (p *Pods) manifest(l remote.Launch) (*corev1.Pod, error) {
	asked := runner.Pod{}
	if l.Job.Pod != nil {
		asked = *l.Job.Pod
	}
	pod, err := patched(p.defaults(l.Job, asked), asked.Template)
	if err != nil {
		return nil, err
	}
	r := &pod.Spec.Containers[0].Resources
	fit(r, p.config.Settings.Resources.Requests)
	if err := agent.TooSmall(r.Limits.Memory().Value(), *l.Job); err != nil {
		return nil, err
	}
	p.insist(pod, l)
	return pod, nil
}

// defaults is a pod as a template finds it. It is "restricted" by the Pod Security
// Standards.
func (p *Pods) defaults(job *runner.Job, asked runner.Pod) *corev1.Pod {
	s := p.config.Settings
	account := asked.Account
	if account == "" {
		account = s.Account
	}
	spec := corev1.PodSpec{
		ServiceAccountName: account,
		PriorityClassName:  s.PriorityClass,
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: new(true), RunAsUser: new(int64(noUser)), RunAsGroup: new(int64(noUser)),
			FSGroup: new(int64(noUser)), FSGroupChangePolicy: new(corev1.FSGroupChangeOnRootMismatch),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{
			Name: stack.PodContainer, Image: s.Image, ImagePullPolicy: s.PullPolicy, Resources: resourcesFor(s.Resources, job.Limits),
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
			VolumeMounts: []corev1.VolumeMount{{Name: volumeTmp, MountPath: dirTmp}},
		}},
		Volumes: []corev1.Volume{{Name: volumeTmp, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
	}
	for _, name := range s.PullSecrets {
		spec.ImagePullSecrets = append(spec.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
	}
	if account == defaultAccount {
		spec.AutomountServiceAccountToken = new(false) // no user has given it rights for a module
	}
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: asked.Namespace},
		Spec:       spec,
	}
}

// insist sets what a run relies on, whatever a template says.
func (p *Pods) insist(pod *corev1.Pod, l remote.Launch) {
	pod.Name = l.Name
	pod.Labels = with(pod.Labels, map[string]string{
		labelName: nameOfRuns, labelManagedBy: "terrier", labelInstallation: p.config.Installation, labelKind: string(l.Job.Kind),
	})
	pod.Annotations = with(pod.Annotations, namesOf(l))
	if l.Job.Kind.Writes() {
		pod.Annotations = with(pod.Annotations, map[string]string{annotationSafeToEvict: "false", annotationDoNotDisrupt: "true"})
	}
	s := &pod.Spec
	s.RestartPolicy = corev1.RestartPolicyNever
	s.EnableServiceLinks = new(false) // they are environment, which no check has passed
	s.TerminationGracePeriodSeconds = new(int64((graceFor(l.Job) + lastWords) / time.Second))
	s.Volumes = append(s.Volumes,
		corev1.Volume{Name: volumeWork, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		corev1.Volume{Name: volumeToken, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			DefaultMode: new(int32(tokenMode)),
			Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
				Audience: p.config.Audience, ExpirationSeconds: new(int64(tokenSeconds)), Path: fileToken,
			}}},
		}}})
	c := &s.Containers[0]
	url, authority := p.config.Server()
	c.Args = []string{agent.Argument}
	c.Env = []corev1.EnvVar{
		{Name: agent.EnvURL, Value: url}, {Name: agent.EnvAuthority, Value: string(authority)},
		{Name: agent.EnvToken, Value: dirToken + "/" + fileToken}, {Name: agent.EnvDir, Value: dirWork}, {Name: agent.EnvStack, Value: l.Key}, {Name: agent.EnvSurroundings, Value: "true"},
	}
	c.VolumeMounts = append(c.VolumeMounts,
		corev1.VolumeMount{Name: volumeWork, MountPath: dirWork}, corev1.VolumeMount{Name: volumeToken, MountPath: dirToken, ReadOnly: true})
	if cache := p.config.Settings.ProviderCache; cache != nil {
		s.Volumes = append(s.Volumes, corev1.Volume{Name: volumeProviders, VolumeSource: *cache.DeepCopy()})
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volumeProviders, MountPath: dirProviders, ReadOnly: true})
		c.Env = append(c.Env, corev1.EnvVar{Name: agent.EnvProviders, Value: dirProviders})
	}
	c.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	for i := range s.InitContainers {
		if c := &s.InitContainers[i]; c.SecurityContext == nil {
			c.SecurityContext = &corev1.SecurityContext{
				AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			}
		}
	}
}

// namesOf are the annotations that name the run of a pod.
func namesOf(l remote.Launch) map[string]string {
	return map[string]string{
		annotationStack: l.Job.Name, annotationUID: l.Job.Stack, annotationRun: l.ID, annotationKey: l.Key, annotationSeal: l.Seal,
	}
}

// graceFor is how long the engine of a run may go on after it was interrupted.
func graceFor(job *runner.Job) time.Duration {
	grace := job.Limits.Grace
	if grace == 0 {
		grace = runner.DefaultGrace
	}
	if !job.Kind.Writes() {
		return min(grace, runner.ReadGrace)
	}
	return grace
}

// resourcesFor are those of the operator. Without a limit of memory among them, a pod
// may have what its run may, and what the programs around it take.
func resourcesFor(chosen corev1.ResourceRequirements, l runner.Limits) corev1.ResourceRequirements {
	r := *chosen.DeepCopy()
	if _, ok := r.Limits[corev1.ResourceMemory]; !ok && l.Memory > 0 {
		r.Limits = maps.Clone(r.Limits)
		if r.Limits == nil {
			r.Limits = corev1.ResourceList{}
		}
		r.Limits[corev1.ResourceMemory] = *resource.NewQuantity(l.Memory+agent.OwnMemory, resource.BinarySI)
	}
	return r
}

// fit makes requests and limits fit each other where the template of a stack set one of
// them and the operator the other: the template decides.
func fit(r *corev1.ResourceRequirements, requests corev1.ResourceList) {
	for name, limit := range r.Limits {
		request, ok := r.Requests[name]
		if !ok || request.Cmp(limit) <= 0 {
			continue
		}
		if chosen, ok := requests[name]; ok && chosen.Cmp(request) == 0 {
			r.Requests[name] = limit
		} else {
			r.Limits[name] = request
		}
	}
}

// with is a map with more in it. What is more comes first.
func with(m, more map[string]string) map[string]string {
	out := maps.Clone(m)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, more)
	return out
}
