package pods

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/internal/runner/remote"
)

const theAttempts = ". The attempts are in kubectl -n team get events --field-selector involvedObject.name=p. " +
	"Check that the registry answers, that it has the image, and that the pod may pull it"

// An image that its registry refuses is for the stack to correct, if the stack chose it. The
// image of the operator, and each image while its registry is out, is not. The messages are
// those of containerd and CRI-O.
func TestImages(t *testing.T) {
	for name, tt := range map[string]struct {
		reason, message string
		refused         bool
	}{
		"nothing listens":        {"ErrImagePull", `failed to pull and unpack image "registry.example/denied:1": failed to resolve reference "registry.example/denied:1": failed to do request: Head "https://registry.example/v2/denied/manifests/1": dial tcp 192.0.2.1:443: connect: connection refused`, false},
		"no such host":           {"ImagePullBackOff", `Back-off pulling image "registry.example/x:1": ErrImagePull: … dial tcp: lookup registry.example: no such host`, false},
		"it is overloaded":       {"ErrImagePull", `failed to resolve reference "registry.example/x:1": unexpected status from HEAD request to https://registry.example/v2/x/manifests/1: 503 Service Unavailable`, false},
		"too many pulls":         {"ErrImagePull", `toomanyrequests: You have reached your pull rate limit`, false},
		"no cause":               {"ImagePullBackOff", `Back-off pulling image "registry.example/x:1"`, false},
		"unknown to the kubelet": {"RegistryUnavailable", "", false},
		"not found":              {"ErrImagePull", `rpc error: code = NotFound desc = failed to pull and unpack image "registry.example/x:9": failed to resolve reference "registry.example/x:9": registry.example/x:9: not found`, true},
		"still not found":        {"ImagePullBackOff", `Back-off pulling image "registry.example/x:9": ErrImagePull: rpc error: code = NotFound desc = …`, true},
		"CRI-O has none":         {"ErrImagePull", `reading manifest 9 in registry.example/x: manifest unknown`, true},
		"denied":                 {"ErrImagePull", `pull access denied, repository does not exist or may require authorization: server message: insufficient_scope: authorization failed`, true},
		"no credentials":         {"ErrImagePull", `failed to authorize: failed to fetch anonymous token: unexpected status from GET request to https://registry.example/token: 401 Unauthorized`, true},
		"another platform":       {"ErrImagePull", `no match for platform in manifest: not found`, true},
		"no name":                {"InvalidImageName", `Failed to apply default image tag "X:": couldn't parse image name`, true},
		"never pulled":           {"ErrImageNeverPull", `Container image "registry.example/x:9" is not present with pull policy of Never`, true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, ours := range []bool{false, true} {
				image := "registry.example/x:1"
				if !ours {
					image = "registry.example/denied:1"
				}
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "p"}}
				pod.Spec.Containers = []corev1.Container{{Name: "terrier-runner", Image: image}}
				pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "terrier-runner", State: corev1.ContainerState{
					Waiting: &corev1.ContainerStateWaiting{Reason: tt.reason, Message: tt.message},
				}}}
				want, says := remote.Image, "the pod p waits for its image "+image+" ("+tt.reason+")"
				if !ours && tt.refused {
					want, says = remote.UsableImage, "the pod p does not get the image "+image+", which the stack chose ("+tt.reason+")"
				}
				l := lifeOf(pod, "registry.example/x:1", time.Time{})
				if l.State != remote.Pending || l.Lacks != want || !strings.HasPrefix(l.Message, says) || l.Reason != tt.reason {
					t.Errorf("lifeOf() = %s, it lacks %q, %q: %q; want %q, and %q", l.State, l.Lacks, l.Reason, l.Message, want, says)
				}
				for sentence, want := range map[string]bool{
					"The operator of the platform chose the image with --run-image":                                                   ours,
					"Correct the image in spec.runnerPodTemplate, or in spec.containerRegistry of a stack of alustan.io, push it, or": !ours && tt.refused,
				} {
					if got := strings.Contains(l.Message, sentence); got != want {
						t.Errorf("that it says %q is %v: %q", sentence, got, l.Message)
					}
				}
			}
		})
	}
}
