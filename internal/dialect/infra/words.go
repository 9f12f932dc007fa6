package infra

import (
	"fmt"
	"strings"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/stack"
)

// words are the fields of the kind, as texts about obj name them.
func words(obj *v1alpha2.Terraform) stack.Words {
	w := stack.Words{
		Argument: obj.Name,
		Approved: "approvePlan", Automatic: "approvePlan is auto", Resume: "set suspend to false",
		Source:  "kubectl describe the object that sourceRef names",
		Retries: "remediation.retries", Pause: "The pause is retryInterval, and grows as retryStrategy says.", Interval: "interval",
		Outputs:   "Set writeOutputsToSecret.name to publish them.",
		Variables: "spec.vars, spec.varsFrom or spec.tfVarsFiles", Environment: "spec.runnerPodTemplate.spec.env",
		Credentials: "spec.runnerPodTemplate.spec.env sets a variable there",
		Account:     "name another one in spec.serviceAccountName or with --run-service-account",
		Priority:    "name another one in spec.runnerPodTemplate.spec.priorityClassName or with --run-priority-class",
		PodTemplate: "spec.runnerPodTemplate shapes it.",
		StateName:   "workspace or backendConfig.secretSuffix", StatePlace: "backendConfig.secretSuffix, workspace or backend key",
		StateBack: "backendConfig, cloud, workspace and the annotations terrier.dev/backend and terrier.dev/backend-settings",
	}
	if r := obj.Spec.SourceRef; r != nil && r.Kind != "" && r.Name != "" {
		namespace := r.Namespace
		if namespace == "" {
			namespace = obj.Namespace
		}
		w.Source = fmt.Sprintf("kubectl describe %s %s -n %s", strings.ToLower(r.Kind), r.Name, namespace)
	}
	return w
}
