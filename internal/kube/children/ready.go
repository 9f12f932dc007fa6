package children

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

// reporter knows which kinds have conditions.
type reporter interface {
	reports(apiVersion, kind string) bool
}

// readiness is the state of an object, by group and kind, and why it is not ready.
// Conditions about an earlier generation do not count.
func readiness(u *unstructured.Unstructured, kinds reporter) (State, string) {
	if u.GetDeletionTimestamp() != nil {
		return Progressing, deletionMessage(u)
	}
	if rule, ok := rules[u.GroupVersionKind().GroupKind()]; ok {
		return rule(u)
	}
	return reported(u, kinds)
}

// rules are those of kinds that have a rule of their own.
var rules = map[schema.GroupKind]func(*unstructured.Unstructured) (State, string){
	{Kind: "ConfigMap"}:      exists,
	{Kind: "Secret"}:         exists,
	{Kind: "ServiceAccount"}: exists,
	{Kind: "Namespace"}:      phase("Active"),
	{Kind: "Service"}:        service,

	{Kind: "PersistentVolumeClaim"}: claim,

	{Group: "apps", Kind: "Deployment"}:  byLibrary,
	{Group: "apps", Kind: "StatefulSet"}: byLibrary,
	{Group: "apps", Kind: "DaemonSet"}:   byLibrary,
	{Group: "batch", Kind: "Job"}:        job,
	{Group: "batch", Kind: "CronJob"}:    exists,

	{Group: "policy", Kind: "PodDisruptionBudget"}:          exists,
	{Group: "networking.k8s.io", Kind: "NetworkPolicy"}:     exists,
	{Group: "networking.k8s.io", Kind: "Ingress"}:           ingress,
	{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}: scaler,

	{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}: byLibrary,

	{Group: "infra.contrib.fluxcd.io", Kind: "Terraform"}: stack,
}

// deletionMessage says why an object is still being deleted: why a stack cannot be
// destroyed, what is left in a namespace.
func deletionMessage(u *unstructured.Unstructured) string {
	all := conditions(u)
	for _, kind := range []string{"NamespaceDeletionDiscoveryFailure", "NamespaceDeletionContentFailure", "NamespaceFinalizersRemaining", "NamespaceContentRemaining"} {
		if c := all[kind]; c.status == "True" {
			return cmp.Or(c.message, c.reason)
		}
	}
	if c, found := all["Ready"]; found && c.status != "True" && current(u, c) {
		return cmp.Or(c.message, c.reason)
	}
	return "its deletion has begun"
}

func exists(*unstructured.Unstructured) (State, string) { return Ready, "" }

func phase(ready string) func(*unstructured.Unstructured) (State, string) {
	return func(u *unstructured.Unstructured) (State, string) {
		is, _, _ := unstructured.NestedString(u.Object, "status", "phase")
		if is == ready {
			return Ready, ""
		}
		return Progressing, fmt.Sprintf("its phase is %s, not %s", cmp.Or(is, "unknown"), ready)
	}
}

// claim is by the phase alone; claims.judge knows more about one that is pending.
func claim(u *unstructured.Unstructured) (State, string) {
	if is, _, _ := unstructured.NestedString(u.Object, "status", "phase"); is == "Lost" {
		volume, _, _ := unstructured.NestedString(u.Object, "spec", "volumeName")
		return Failed, "its PersistentVolume " + volume + " is lost"
	}
	return phase("Bound")(u)
}

func service(u *unstructured.Unstructured) (State, string) {
	if kind, _, _ := unstructured.NestedString(u.Object, "spec", "type"); kind != "LoadBalancer" || balanced(u) {
		return Ready, ""
	}
	return Progressing, "its load balancer has no address yet"
}

func balanced(u *unstructured.Unstructured) bool {
	found, _, _ := unstructured.NestedSlice(u.Object, "status", "loadBalancer", "ingress")
	return len(found) > 0
}

// ingress needs no load balancer: not every controller reports that it has one.
func ingress(u *unstructured.Unstructured) (State, string) {
	rules, _, _ := unstructured.NestedSlice(u.Object, "spec", "rules")
	backend, _, _ := unstructured.NestedMap(u.Object, "spec", "defaultBackend")
	if len(rules) > 0 || len(backend) > 0 || balanced(u) {
		return Ready, ""
	}
	return Progressing, "it has no rules and no address"
}

func job(u *unstructured.Unstructured) (State, string) {
	all := conditions(u)
	if c := all["Failed"]; c.status == "True" {
		return Failed, cmp.Or(c.message, "the job has failed")
	}
	if all["Complete"].status == "True" {
		return Ready, ""
	}
	if all["Suspended"].status == "True" {
		return Progressing, "the job is suspended"
	}
	return Progressing, "the job has not completed yet"
}

func scaler(u *unstructured.Unstructured) (State, string) {
	c := conditions(u)["AbleToScale"]
	if c.status == "True" {
		return Ready, ""
	}
	return Progressing, cmp.Or(c.message, "it has not scaled anything yet")
}

// byLibrary is the status by kstatus, which knows observed generations, and that
// an object with no replicas is complete.
func byLibrary(u *unstructured.Unstructured) (State, string) {
	r, err := status.Compute(u)
	if err != nil {
		return Progressing, err.Error()
	}
	switch r.Status {
	case status.CurrentStatus:
		return Ready, ""
	case status.FailedStatus:
		return Failed, r.Message
	}
	return Progressing, r.Message
}

// stack is a Terraform object: ready once its present generation was applied, and
// its outputs were published.
func stack(u *unstructured.Unstructured) (State, string) {
	state, message := reported(u, always{})
	if state != Ready {
		return state, message
	}
	if secret, _, _ := unstructured.NestedString(u.Object, "spec", "writeOutputsToSecret", "name"); secret != "" {
		if c := conditions(u)["Output"]; c.status != "True" || c.reason != "TerraformOutputsWritten" {
			return Progressing, "its outputs are not in the Secret " + secret + " yet"
		}
	}
	return Ready, ""
}

type always struct{}

func (always) reports(string, string) bool { return true }

type condition struct {
	status, reason, message string
	generation              int64
}

func conditions(u *unstructured.Unstructured) map[string]condition {
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	all := make(map[string]condition, len(list))
	for _, e := range list {
		m, ok := e.(map[string]any)
		if !ok {
			continue
		}
		kind, _, _ := unstructured.NestedString(m, "type")
		var c condition
		c.status, _, _ = unstructured.NestedString(m, "status")
		c.reason, _, _ = unstructured.NestedString(m, "reason")
		c.message, _, _ = unstructured.NestedString(m, "message")
		c.generation, _, _ = unstructured.NestedInt64(m, "observedGeneration")
		all[kind] = c
	}
	return all
}

// reported is the state of an object by its conditions Ready and Stalled. An object
// of a kind that has conditions must have one: a new object is not ready before
// its controller has seen it.
func reported(u *unstructured.Unstructured, kinds reporter) (State, string) {
	observed, found, _ := unstructured.NestedInt64(u.Object, "status", "observedGeneration")
	if found && observed < u.GetGeneration() {
		return Progressing, "its controller has not seen this generation yet"
	}
	all := conditions(u)
	if c := all["Stalled"]; c.status == "True" && current(u, c) {
		return Failed, cmp.Or(c.message, c.reason)
	}
	ready, found := all["Ready"]
	switch {
	case found && !current(u, ready):
		return Progressing, "its controller has not seen this generation yet"
	case found && ready.status == "True":
		return Ready, ""
	case found:
		return Progressing, cmp.Or(ready.message, ready.reason, "it is not ready")
	case len(all) == 0 && kinds.reports(u.GetAPIVersion(), u.GetKind()):
		return Progressing, "its controller has not reported a status yet"
	}
	return byLibrary(u)
}

// current reports whether a condition is about the present generation; the
// conditions of many controllers name none.
func current(u *unstructured.Unstructured, c condition) bool {
	return c.generation == 0 || c.generation >= u.GetGeneration()
}
