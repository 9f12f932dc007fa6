package pods

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/terrier-iac/terrier/internal/runner/remote"
)

// Reasons of a kubelet that has not got an image.
const (
	reasonErrImagePull      = "ErrImagePull"
	reasonImagePullBackOff  = "ImagePullBackOff"
	reasonInvalidImageName  = "InvalidImageName"
	reasonErrImageNeverPull = "ErrImageNeverPull"
	reasonSignatureInvalid  = "SignatureValidationFailed"
)

// noImage are all of them.
var noImage = map[string]bool{
	reasonErrImagePull: true, reasonImagePullBackOff: true, reasonInvalidImageName: true, reasonErrImageNeverPull: true, reasonSignatureInvalid: true,
	"RegistryUnavailable": true, "ImageInspectError": true,
}

// answers are words with which a registry refuses an image: it does not have the image, or
// does not give it to the pod. A registry that is out says none of them. They are in lower
// case, and each has a space or a sign that no name of an image has.
var answers = []string{
	": not found", "code = notfound", "404 not found", "manifest unknown", "name unknown",
	"access denied", "is denied", ": denied", "authorization failed", "authentication required", "no basic auth credentials", "401 unauthorized", "403 forbidden",
}

// imageWait says what a pod waits for that does not get an image. The stack can change
// nothing about the image of the operator, or while a registry does not answer.
func imageWait(pod *corev1.Pod, image, ours string, w *corev1.ContainerStateWaiting) (remote.Lack, string) {
	events := fmt.Sprintf("kubectl -n %s get events --field-selector involvedObject.name=%s", pod.Namespace, pod.Name)
	if image != ours && refusedImage(w) {
		return remote.UsableImage, fmt.Sprintf("the pod %s does not get the image %s, which the stack chose (%s)", pod.Name, image, w.Reason) + said(w.Message) +
			fmt.Sprintf(". The attempts are in %s. Correct the image in %s, or in spec.containerRegistry of a stack of alustan.io, push it, or let the imagePullSecrets of the ServiceAccount have credentials for its registry", events, templateField)
	}
	chosen := ""
	if image == ours {
		chosen = ". The operator of the platform chose the image with --run-image"
	}
	return remote.Image, fmt.Sprintf("the pod %s waits for its image %s (%s)", pod.Name, image, w.Reason) + said(w.Message) + chosen +
		fmt.Sprintf(". The attempts are in %s. Check that the registry answers, that it has the image, and that the pod may pull it", events)
}

// refusedImage reports whether it is certain that a pod does not get an image: by its name, by
// the node that must not pull it, or by the answer of its registry.
func refusedImage(w *corev1.ContainerStateWaiting) bool {
	switch w.Reason {
	case reasonInvalidImageName, reasonErrImageNeverPull, reasonSignatureInvalid:
		return true
	case reasonErrImagePull, reasonImagePullBackOff:
		text := strings.ToLower(w.Message)
		return slices.ContainsFunc(answers, func(a string) bool { return strings.Contains(text, a) })
	default:
		return false
	}
}
