package alustan

import (
	"fmt"
	"strings"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"

	"github.com/terrier-iac/terrier/api/alustan/v1alpha1"
	"github.com/terrier-iac/terrier/internal/stack"
)

// ownedFields says which fields of obj the source that it owns gets its own from.
func ownedFields(obj *v1alpha1.Terraform) string {
	if fromImage(obj) {
		return "spec.url from spec.containerRegistry.imageName, spec.ref from spec.containerRegistry.semanticVersion, and spec.secretRef from spec.containerRegistry.secretRef"
	}
	return "spec.url from spec.gitRepo.url, spec.ref from spec.gitRepo.branch, and spec.secretRef from spec.gitRepo.sshKeySecret"
}

// words are the fields and annotations of the kind, as texts about obj name them.
func words(obj *v1alpha1.Terraform) stack.Words {
	kind := sourcev1.GitRepositoryKind
	if fromImage(obj) {
		kind = sourcev1.OCIRepositoryKind
	}
	return stack.Words{
		Argument: "terraform." + v1alpha1.GroupVersion.Group + "/" + obj.Name,
		Approved: "the annotation " + Approved, Automatic: "the annotation " + Approval + " is not manual", Resume: "remove the annotation " + Suspended,
		Source:  fmt.Sprintf("kubectl describe %s %s -n %s", strings.ToLower(kind), ownName(obj.Name), obj.Namespace),
		Retries: "the annotation " + Retries, Pause: "The pause grows from 15 seconds to an hour.", Interval: "the annotation " + Interval,
		Outputs:   "Stacks of this kind publish none to a Secret. To have outputs in status.postDeployOutput, print them in the script of spec.postDeploy.",
		Variables: "spec.variables", Environment: "spec.variables",
		Credentials: "The operator gives runs credentials with --run-service-account or --run-env: see Credentials in docs/backends.md. spec.variables sets a variable there as well, but every reader of the object sees its value",
		Account:     "have the operator name another one with --run-service-account",
		Priority:    "have the operator name another one with --run-priority-class",
		PodTemplate: "No field of this kind shapes it: ask the operator of the platform.",
		StateName:   "name", StatePlace: "name or spec.backend", StateBack: "name and spec.backend",
	}
}
