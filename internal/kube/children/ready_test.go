package children

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// knownReporters are kinds whose schemas have conditions.
type knownReporters map[string]bool

func (k knownReporters) reports(_, kind string) bool { return k[kind] }

// D-05: an object of a kind that says how it is has to say so of what it is now,
// and a kind is a group and a name. L-03: no replicas are ready replicas.
func TestReadiness(t *testing.T) {
	kinds := knownReporters{"GitRepository": true, "Widget": true}
	for name, tt := range map[string]struct {
		object  string
		want    State
		message string // "" for any
	}{
		"a deployment that rolled out": {`{apiVersion: apps/v1, kind: Deployment, metadata: {generation: 2}, spec: {replicas: 2},
			status: {observedGeneration: 2, replicas: 2, updatedReplicas: 2, readyReplicas: 2, availableReplicas: 2, conditions: [{type: Available, status: "True"}]}}`, Ready, ""},
		"a deployment of an earlier generation": {`{apiVersion: apps/v1, kind: Deployment, metadata: {generation: 3}, spec: {replicas: 2},
			status: {observedGeneration: 2, replicas: 2, updatedReplicas: 2, readyReplicas: 2, availableReplicas: 2, conditions: [{type: Available, status: "True"}]}}`, Progressing, ""},
		"a deployment with old pods": {`{apiVersion: apps/v1, kind: Deployment, metadata: {generation: 2}, spec: {replicas: 2},
			status: {observedGeneration: 2, replicas: 3, updatedReplicas: 1, readyReplicas: 3, availableReplicas: 3, conditions: [{type: Available, status: "True"}]}}`, Progressing, ""},
		"a deployment of nothing": {`{apiVersion: apps/v1, kind: Deployment, metadata: {generation: 2}, spec: {replicas: 0},
			status: {observedGeneration: 2, conditions: [{type: Available, status: "True"}]}}`, Ready, ""},
		"a deployment that gave up": {`{apiVersion: apps/v1, kind: Deployment, metadata: {generation: 2}, spec: {replicas: 2},
			status: {observedGeneration: 2, replicas: 2, updatedReplicas: 1, conditions: [{type: Progressing, status: "False", reason: ProgressDeadlineExceeded}]}}`, Failed, ""},
		"a new deployment": {`{apiVersion: apps/v1, kind: Deployment, metadata: {generation: 1}, spec: {replicas: 1}}`, Progressing, ""},
		"a stateful set that rolled out": {`{apiVersion: apps/v1, kind: StatefulSet, metadata: {generation: 1}, spec: {replicas: 1},
			status: {observedGeneration: 1, replicas: 1, readyReplicas: 1, currentReplicas: 1, updatedReplicas: 1, currentRevision: a, updateRevision: a}}`, Ready, ""},
		"a stateful set of nothing": {`{apiVersion: apps/v1, kind: StatefulSet, metadata: {generation: 1}, spec: {replicas: 0},
			status: {observedGeneration: 1, replicas: 0, currentRevision: a, updateRevision: a}}`, Ready, ""},
		"a daemon set without nodes": {`{apiVersion: apps/v1, kind: DaemonSet, metadata: {generation: 1},
			status: {observedGeneration: 1, desiredNumberScheduled: 0, currentNumberScheduled: 0, updatedNumberScheduled: 0, numberAvailable: 0, numberReady: 0}}`, Ready, ""},
		"a daemon set on its way": {`{apiVersion: apps/v1, kind: DaemonSet, metadata: {generation: 1},
			status: {observedGeneration: 1, desiredNumberScheduled: 2, currentNumberScheduled: 2, updatedNumberScheduled: 2, numberAvailable: 1, numberReady: 1}}`, Progressing, ""},
		"a job at work":              {`{apiVersion: batch/v1, kind: Job, status: {active: 1, startTime: x}}`, Progressing, "the job has not completed yet"},
		"a job that is done":         {`{apiVersion: batch/v1, kind: Job, status: {succeeded: 1, conditions: [{type: Complete, status: "True"}]}}`, Ready, ""},
		"a job that failed":          {`{apiVersion: batch/v1, kind: Job, status: {conditions: [{type: Failed, status: "True", message: too often}]}}`, Failed, "too often"},
		"a job of somebody else":     {`{apiVersion: batch.volcano.sh/v1alpha1, kind: Job}`, Ready, ""},
		"a bound claim":              {`{apiVersion: v1, kind: PersistentVolumeClaim, status: {phase: Bound}}`, Ready, ""},
		"a claim without its volume": {`{apiVersion: v1, kind: PersistentVolumeClaim, spec: {volumeName: v}, status: {phase: Lost}}`, Failed, "its PersistentVolume v is lost"},
		"a claim that waits":         {`{apiVersion: v1, kind: PersistentVolumeClaim, status: {phase: Pending}}`, Progressing, "its phase is Pending, not Bound"},
		"a service":                  {`{apiVersion: v1, kind: Service, spec: {type: ClusterIP}}`, Ready, ""},
		"a new load balancer":        {`{apiVersion: v1, kind: Service, spec: {type: LoadBalancer}}`, Progressing, "its load balancer has no address yet"},
		"a load balancer":            {`{apiVersion: v1, kind: Service, spec: {type: LoadBalancer}, status: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}}`, Ready, ""},
		"a namespace":                {`{apiVersion: v1, kind: Namespace, status: {phase: Active}}`, Ready, ""},
		"a namespace that goes":      {`{apiVersion: v1, kind: Namespace, metadata: {deletionTimestamp: "2026-11-28T07:00:00Z"}, status: {phase: Terminating}}`, Progressing, "its deletion has begun"},
		"a namespace that is not empty": {`{apiVersion: v1, kind: Namespace, metadata: {deletionTimestamp: "2026-11-28T07:00:00Z"}, status: {phase: Terminating,
			conditions: [{type: NamespaceDeletionDiscoveryFailure, status: "False", message: fine}, {type: NamespaceContentRemaining, status: "True", message: a pod is left}]}}`, Progressing, "a pod is left"},
		"a stack that cannot be destroyed": {`{apiVersion: infra.contrib.fluxcd.io/v1alpha2, kind: Terraform, metadata: {generation: 2, deletionTimestamp: "2026-11-28T07:00:00Z"},
			status: {observedGeneration: 2, conditions: [{type: Ready, status: "False", message: the bucket is not empty, observedGeneration: 2}]}}`, Progressing, "the bucket is not empty"},
		"a stack that was ready when it was deleted": {`{apiVersion: infra.contrib.fluxcd.io/v1alpha2, kind: Terraform, metadata: {generation: 2, deletionTimestamp: "2026-11-28T07:00:00Z"},
			status: {observedGeneration: 1, conditions: [{type: Ready, status: "False", message: a plan waits, observedGeneration: 1}]}}`, Progressing, "its deletion has begun"},
		"an ingress with rules":   {`{apiVersion: networking.k8s.io/v1, kind: Ingress, spec: {rules: [{host: a}]}}`, Ready, ""},
		"an autoscaler":           {`{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, status: {conditions: [{type: AbleToScale, status: "True"}]}}`, Ready, ""},
		"a new autoscaler":        {`{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler}`, Progressing, "it has not scaled anything yet"},
		"a config map":            {`{apiVersion: v1, kind: ConfigMap}`, Ready, ""},
		"a disruption budget":     {`{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {generation: 1}}`, Ready, ""},
		"a network policy":        {`{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy}`, Ready, ""},
		"a cron job":              {`{apiVersion: batch/v1, kind: CronJob}`, Ready, ""},
		"a new stack":             {`{apiVersion: infra.contrib.fluxcd.io/v1alpha2, kind: Terraform, metadata: {generation: 1}}`, Progressing, "its controller has not reported a status yet"},
		"a stack as it is born":   {`{apiVersion: infra.contrib.fluxcd.io/v1alpha2, kind: Terraform, metadata: {generation: 1}, status: {observedGeneration: -1}}`, Progressing, "its controller has not seen this generation yet"},
		"a stack that was edited": {`{apiVersion: infra.contrib.fluxcd.io/v1alpha2, kind: Terraform, metadata: {generation: 2}, status: {observedGeneration: 1, conditions: [{type: Ready, status: "True"}]}}`, Progressing, "its controller has not seen this generation yet"},
		"a stack whose condition is of before": {`{apiVersion: infra.contrib.fluxcd.io/v1alpha2, kind: Terraform, metadata: {generation: 2},
			status: {observedGeneration: 2, conditions: [{type: Ready, status: "True", observedGeneration: 1}]}}`, Progressing, "its controller has not seen this generation yet"},
		"a stack that is applied": {`{apiVersion: infra.contrib.fluxcd.io/v1alpha2, kind: Terraform, metadata: {generation: 2},
			status: {observedGeneration: 2, conditions: [{type: Ready, status: "True", observedGeneration: 2}]}}`, Ready, ""},
		"a stack without its outputs": {`{apiVersion: infra.contrib.fluxcd.io/v1alpha2, kind: Terraform, metadata: {generation: 1}, spec: {writeOutputsToSecret: {name: out}},
			status: {observedGeneration: 1, conditions: [{type: Ready, status: "True"}]}}`, Progressing, "its outputs are not in the Secret out yet"},
		"a stack with its outputs": {`{apiVersion: infra.contrib.fluxcd.io/v1alpha2, kind: Terraform, metadata: {generation: 1}, spec: {writeOutputsToSecret: {name: out}},
			status: {observedGeneration: 1, conditions: [{type: Ready, status: "True"}, {type: Output, status: "True", reason: TerraformOutputsWritten}]}}`, Ready, ""},
		"a stack that waits for its outputs": {`{apiVersion: infra.contrib.fluxcd.io/v1alpha2, kind: Terraform, metadata: {generation: 1},
			status: {observedGeneration: 1, conditions: [{type: Ready, status: "False", message: waits}]}}`, Progressing, "waits"},
		"a stack that stalled": {`{apiVersion: infra.contrib.fluxcd.io/v1alpha2, kind: Terraform, metadata: {generation: 1},
			status: {observedGeneration: 1, conditions: [{type: Stalled, status: "True", message: bad variable}, {type: Ready, status: "False"}]}}`, Failed, "bad variable"},
		"a source that nobody has seen":                      {`{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {generation: 1}}`, Progressing, "its controller has not reported a status yet"},
		"a custom object that says no":                       {`{apiVersion: example.com/v1, kind: Widget, status: {conditions: [{type: Ready, status: "False", reason: Starting}]}}`, Progressing, "Starting"},
		"a custom object that says yes":                      {`{apiVersion: example.com/v1, kind: Widget, status: {conditions: [{type: Ready, status: "True"}]}}`, Ready, ""},
		"a custom object of a kind that never says anything": {`{apiVersion: example.com/v1, kind: Note}`, Ready, ""},
		"a service of another group": {`{apiVersion: serving.knative.dev/v1, kind: Service, metadata: {generation: 1},
			status: {observedGeneration: 1, conditions: [{type: Ready, status: "Unknown", message: deploying}]}}`, Progressing, "deploying"},
	} {
		u := &unstructured.Unstructured{}
		data, err := yaml.YAMLToJSON([]byte(tt.object))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := u.UnmarshalJSON(data); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, message := readiness(u, kinds)
		if got != tt.want || tt.message != "" && message != tt.message {
			t.Errorf("%s: readiness() = %s, %q, want %s, %q", name, got, message, tt.want, tt.message)
		}
		if (got == Ready) != (message == "") {
			t.Errorf("%s: readiness() = %s, %q, want a reason exactly if it is not ready", name, got, message)
		}
	}
}
