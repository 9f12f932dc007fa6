package kubeapi

import (
	"context"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/kubernetes/pkg/kubeapiserver/options"
)

// The server does the work of the policy of config/admission by itself: a policy
// knows the schema of a new kind only some seconds after its creation, or after a
// start of the server, and until then it refuses every object.
const stampPlugin = "TerrierStamps"

// The stamps; package kube has the same.
const (
	changedBy   = "terrier.dev/changed-by"   // who changed last what is asked for
	decidedBy   = "terrier.dev/decided-by"   // who decided last what has to be decided
	requestedBy = "terrier.dev/requested-by" // who changed what plans are made from: a numbered line for each change
	approvedBy  = "terrier.dev/approved-by"  // who approved the plan that was approved last: a line for each
	epochOf     = "terrier.dev/stamps"       // the epoch of the other stamps

	// Who wants a plan to be applied outside of windows: a line for each.
	overriddenBy = "terrier.dev/overridden-by"
)

var stampNames = []string{changedBy, decidedBy, requestedBy, approvedBy, overriddenBy, epochOf}

// ownEpoch begins the epochs of this server; package kube has the same. The number is that of
// the names of the stamps: before a name was one, users could write it.
const ownEpoch = "terrier-server/2/"

const (
	mostApprovals = 21 // are kept of one plan
	mostRequests  = 20 // changes are kept, the newest ones
)

// The annotations by which users approve a plan, besides spec.approvePlan.
const (
	approvedPlan = "terrier.dev/approved" // of stacks that are applied by scripts
	approvePlan  = "terrier.dev/confirm"  // the plan, and any other words: another approval of the same plan
)

// overrideWindow is the annotation by which users want a plan to be applied outside of the
// windows of policies: the plan, and any other words.
const overrideWindow = "terrier.dev/override-window"

// saying begins the annotations by which people speak to Terrier.
var saying = []string{"terrier.dev/", "reconcile.fluxcd.io/", "break-the-glass.tf-controller/"}

// deciding are those by which they decide, besides spec.approvePlan.
var deciding = []string{"terrier.dev/rejected", approvedPlan, approvePlan, overrideWindow, "terrier.dev/allow-deletions", "terrier.dev/rollout"}

// notAsked are those that plans are not made from: decisions, and when and whether runs begin.
var notAsked = []string{
	"terrier.dev/rejected", approvedPlan, approvePlan, overrideWindow, "terrier.dev/comment", "terrier.dev/suspended", "terrier.dev/unlock",
	"terrier.dev/cancel", "terrier.dev/preview-destroy", "terrier.dev/interval", "terrier.dev/retries",
	"terrier.dev/break-glass", "terrier.dev/break-glass-command", "terrier.dev/glass-command",
}

// notMade are the fields of a spec of which the same holds.
var notMade = []string{"approvePlan", "suspend", "interval", "retryInterval", "retryStrategy", "maxRetryInterval", "remediation", "breakTheGlass", "tfstate", "force"}

// stamped are the kinds that bear stamps.
var stamped = []schema.GroupResource{
	{Group: "infra.contrib.fluxcd.io", Resource: "terraforms"},
	{Group: "alustan.io", Resource: "terraforms"},
	{Group: "operator.kubernetes-tenants.org", Resource: "tenantregistries"},
	{Group: "operator.kubernetes-tenants.org", Resource: "tenanttemplates"},
}

// addStamps puts the stamps among the server's own ways of admission, where
// policies would be. Stamps of another epoch are not kept.
func addStamps(o *options.AdmissionOptions, epoch string) {
	epoch = ownEpoch + epoch
	o.GenericAdmission.Plugins.Register(stampPlugin, func(io.Reader) (admission.Interface, error) {
		return stamps{admission.NewHandler(admission.Create, admission.Update), epoch}, nil
	})
	order := o.GenericAdmission.RecommendedPluginOrder
	o.GenericAdmission.RecommendedPluginOrder = slices.Insert(slices.Clone(order), max(0, slices.Index(order, "MutatingAdmissionPolicy")), stampPlugin)
}

// stamps record who changed an object, and keep all others from writing there.
type stamps struct {
	*admission.Handler
	epoch string // a word that no user can have known before this directory had the stamps
}

var _ admission.MutationInterface = stamps{}

func (s stamps) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetSubresource() != "" || !slices.Contains(stamped, a.GetResource().GroupResource()) {
		return nil
	}
	now, ok := a.GetObject().(*unstructured.Unstructured)
	if !ok {
		return admission.NewForbidden(a, fmt.Errorf("it cannot be seen what is asked for in a %T", a.GetObject()))
	}
	was, _ := a.GetOldObject().(*unstructured.Unstructured) // nil if it is new
	s.stamp(now, was, a.GetUserInfo())
	return nil
}

// stamp writes into now what its stamps have to be.
func (s stamps) stamp(now, was *unstructured.Unstructured, by user.Info) {
	before := map[string]string{}
	if was != nil {
		before = was.GetAnnotations()
	}
	notes := now.GetAnnotations()
	want := map[string]string{}
	for _, name := range stampNames {
		want[name] = ""
		if name != epochOf && before[epochOf] == s.epoch {
			want[name] = before[name]
		}
	}
	if changed(now, was, notes, before) {
		want[changedBy] = by.GetName()
	}
	if decided(now, was, notes, before) {
		want[decidedBy] = by.GetName()
	}
	if requested(now, was, notes, before) {
		want[requestedBy] = withRequest(want[requestedBy], was == nil, by)
	}
	if plan := approves(now, was, notes, before); plan != "" {
		want[approvedBy] = withApproval(want[approvedBy], plan, by)
	} else if withdraws(now, was, notes, before) {
		want[approvedBy] = ""
	}
	if plan := notes[overrideWindow]; plan == "" || rejects(notes, before) {
		want[overriddenBy] = ""
	}
	if plan, _, _ := strings.Cut(notes[overrideWindow], " "); plan != "" && notes[overrideWindow] != before[overrideWindow] {
		want[overriddenBy] = withApproval(want[overriddenBy], plan, by)
	}
	for _, value := range want {
		if value != "" {
			want[epochOf] = s.epoch
		}
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
		if !slices.Contains(stampNames, k) && slices.ContainsFunc(saying, func(s string) bool { return strings.HasPrefix(k, s) }) {
			out[k] = v
		}
	}
	return out
}

// decided reports whether something was decided; that something no longer is, is
// none.
func decided(now, was *unstructured.Unstructured, notes, before map[string]string) bool {
	return approvesInSpec(now, was) || slices.ContainsFunc(deciding, func(k string) bool { return notes[k] != "" && notes[k] != before[k] })
}

// requested reports whether something changed that plans are made from.
func requested(now, was *unstructured.Unstructured, notes, before map[string]string) bool {
	return was == nil || !reflect.DeepEqual(asked(now), asked(was)) || !maps.Equal(asks(notes), asks(before))
}

// asked is what plans are made from of the spec.
func asked(o *unstructured.Unstructured) map[string]any {
	spec, _ := o.Object["spec"].(map[string]any)
	rest := maps.Clone(spec)
	maps.DeleteFunc(rest, func(field string, _ any) bool { return slices.Contains(notMade, field) })
	return rest
}

// asks are the annotations that plans may be made from.
func asks(notes map[string]string) map[string]string {
	out := said(notes)
	maps.DeleteFunc(out, func(k, _ string) bool { return !strings.HasPrefix(k, saying[0]) || slices.Contains(notAsked, k) })
	return out
}

// noPlans are what spec.approvePlan may say that names no plan.
var noPlans = []string{"auto", "disable"}

// approves is the plan that a request approves, empty for none.
func approves(now, was *unstructured.Unstructured, notes, before map[string]string) string {
	switch {
	case approvesInSpec(now, was) && !slices.Contains(noPlans, approval(now)):
		return approval(now)
	case notes[approvedPlan] != "" && notes[approvedPlan] != before[approvedPlan]:
		return notes[approvedPlan]
	case notes[approvePlan] != before[approvePlan]:
		plan, _, _ := strings.Cut(notes[approvePlan], " ")
		return plan
	default:
		return ""
	}
}

// withdraws reports whether approvals are taken back, or the plan is rejected. All of them
// are: each user approves it again, or does not.
func withdraws(now, was *unstructured.Unstructured, notes, before map[string]string) bool {
	return was != nil && approval(was) != "" && approval(now) == "" ||
		before[approvedPlan] != "" && notes[approvedPlan] == "" ||
		before[approvePlan] != "" && notes[approvePlan] == "" || rejects(notes, before)
}

// rejects reports whether a plan is rejected.
func rejects(notes, before map[string]string) bool {
	return notes["terrier.dev/rejected"] != "" && notes["terrier.dev/rejected"] != before["terrier.dev/rejected"]
}

// withApproval adds an approval to those of the same plan. Each user has one.
func withApproval(lines, plan string, by user.Info) string {
	plan, name := escape.Replace(plan), escape.Replace(by.GetName())
	var kept []string
	for line := range strings.SplitSeq(lines, "\n") {
		if words := strings.Split(line, "\t"); words[0] == plan && words[1] != name {
			kept = append(kept, line)
		}
	}
	if len(kept) >= mostApprovals-1 {
		kept = nil
	}
	line := []string{plan, name}
	for _, group := range by.GetGroups() {
		line = append(line, escape.Replace(group))
	}
	return strings.Join(append(kept, strings.Join(line, "\t")), "\n")
}

// withRequest adds a change. Its number tells a reader whether a line before it is gone: the
// creation of an object has the number 1, so the first line of an object that was there
// before it was stamped has another one.
func withRequest(lines string, created bool, by user.Info) string {
	var kept []string
	last := 1
	if created {
		last = 0
	}
	for line := range strings.SplitSeq(lines, "\n") {
		number, _, _ := strings.Cut(line, "\t")
		if n, err := strconv.Atoi(number); err == nil {
			kept, last = append(kept, line), n
		}
	}
	kept = kept[max(0, len(kept)-(mostRequests-1)):]
	return strings.Join(append(kept, strconv.Itoa(last+1)+"\t"+escape.Replace(by.GetName())), "\n")
}

var escape = strings.NewReplacer(`\`, `\\`, "\t", `\t`, "\n", `\n`)

func approvesInSpec(now, was *unstructured.Unstructured) bool {
	plan, before := approval(now), ""
	if was != nil {
		before = approval(was)
	}
	return plan != "" && plan != before
}

func approval(o *unstructured.Unstructured) string {
	spec, _ := o.Object["spec"].(map[string]any)
	name, _ := spec["approvePlan"].(string)
	return name
}
