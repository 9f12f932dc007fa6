package kubeapi

import (
	"context"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kubernetes/pkg/kubeapiserver/options"
)

// The server does the work of the policy of config/admission by itself: a policy
// knows the schema of a new kind only some seconds after its creation, or after a
// start of the server, and until then it refuses every object.
const stampPlugin = "TerrierStamps"

// The stamps; kube.ChangedBy and kube.DecidedBy are the same.
const (
	changedBy = "terrier.dev/changed-by" // who changed last what is asked for
	decidedBy = "terrier.dev/decided-by" // who decided last what has to be decided
)

// saying begins the annotations by which people speak to Terrier.
var saying = []string{"terrier.dev/", "reconcile.fluxcd.io/", "break-the-glass.tf-controller/"}

// deciding are those by which they decide, besides spec.approvePlan.
var deciding = []string{"terrier.dev/rejected", "terrier.dev/approved", "terrier.dev/allow-deletions", "terrier.dev/rollout"}

// stamped are the kinds that bear stamps.
var stamped = []schema.GroupResource{
	{Group: "infra.contrib.fluxcd.io", Resource: "terraforms"},
	{Group: "alustan.io", Resource: "terraforms"},
	{Group: "operator.kubernetes-tenants.org", Resource: "tenantregistries"},
	{Group: "operator.kubernetes-tenants.org", Resource: "tenanttemplates"},
}

// addStamps puts the stamps among the server's own ways of admission, where
// policies would be.
func addStamps(o *options.AdmissionOptions) {
	o.GenericAdmission.Plugins.Register(stampPlugin, func(io.Reader) (admission.Interface, error) {
		return stamps{admission.NewHandler(admission.Create, admission.Update)}, nil
	})
	order := o.GenericAdmission.RecommendedPluginOrder
	o.GenericAdmission.RecommendedPluginOrder = slices.Insert(slices.Clone(order), max(0, slices.Index(order, "MutatingAdmissionPolicy")), stampPlugin)
}

// stamps record who changed an object, and keep all others from writing there.
type stamps struct{ *admission.Handler }

var _ admission.MutationInterface = stamps{}

func (stamps) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetSubresource() != "" || !slices.Contains(stamped, a.GetResource().GroupResource()) {
		return nil
	}
	now, ok := a.GetObject().(*unstructured.Unstructured)
	if !ok {
		return admission.NewForbidden(a, fmt.Errorf("it cannot be seen what is asked for in a %T", a.GetObject()))
	}
	was, _ := a.GetOldObject().(*unstructured.Unstructured) // nil if it is new
	stamp(now, was, a.GetUserInfo().GetName())
	return nil
}

// stamp writes into now what its stamps have to be.
func stamp(now, was *unstructured.Unstructured, user string) {
	before := map[string]string{}
	if was != nil {
		before = was.GetAnnotations()
	}
	notes := now.GetAnnotations()
	want := map[string]string{changedBy: before[changedBy], decidedBy: before[decidedBy]}
	if changed(now, was, notes, before) {
		want[changedBy] = user
	}
	if decided(now, was, notes, before) {
		want[decidedBy] = user
	}
	stays := maps.Clone(notes)
	for name, value := range want {
		switch {
		case value == "":
			delete(stays, name)
		case stays == nil:
			stays = map[string]string{name: value}
		default:
			stays[name] = value
		}
	}
	if !maps.Equal(stays, notes) {
		now.SetAnnotations(stays)
	}
}

// changed reports whether something else is asked for.
func changed(now, was *unstructured.Unstructured, notes, before map[string]string) bool {
	return was == nil || !reflect.DeepEqual(now.Object["spec"], was.Object["spec"]) || !maps.Equal(said(notes), said(before))
}

// said are the annotations by which people speak to Terrier; the stamps are none
// of them.
func said(notes map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range notes {
		if k != changedBy && k != decidedBy && slices.ContainsFunc(saying, func(s string) bool { return strings.HasPrefix(k, s) }) {
			out[k] = v
		}
	}
	return out
}

// decided reports whether something was decided; that something no longer is, is
// none.
func decided(now, was *unstructured.Unstructured, notes, before map[string]string) bool {
	approves, approved := approval(now), ""
	if was != nil {
		approved = approval(was)
	}
	return approves != "" && approves != approved ||
		slices.ContainsFunc(deciding, func(k string) bool { return notes[k] != "" && notes[k] != before[k] })
}

func approval(o *unstructured.Unstructured) string {
	spec, _ := o.Object["spec"].(map[string]any)
	name, _ := spec["approvePlan"].(string)
	return name
}
