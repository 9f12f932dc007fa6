package command

import (
	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
)

// hints say what to do about a reason of this package's faults.
var hints = map[string]string{
	access.ReasonNotFound:     "See what there is with: terrier get -A",
	access.ReasonNotInstalled: "Start a control plane with terrier up, or install Terrier's definitions into this cluster.",
	access.ReasonUnreachable:  "See that it runs (terrier up) and that --kubeconfig and --context name the right one.",
	access.ReasonAccessDenied: "Ask whoever runs the cluster for a role that allows it.",
	access.ReasonUnknownUser:  "See that the kubeconfig is the one of this cluster and that its token is still good.",
	access.ReasonNoKubeconfig: "Name a file with --kubeconfig or KUBECONFIG, or start a control plane here with: terrier up",
	access.ReasonNoServer:     "Start it with terrier up, or name it with --server or TERRIER_SERVER.",
	access.ReasonNoToken:      "Use a kubeconfig with a token, for instance one of: kubectl create token",
	access.ReasonImpersonate:  "Whoever runs the server gives its account that right: docs/rbac.md has the role.",
	"CertificateOnly":         "Make a ServiceAccount with the roles that you need, and sign in with its token: kubectl create token NAME. docs/sign-in.md has the commands.",
	query.ReasonNoPlan:        "See how the stack stands with terrier explain, or ask for a new plan with terrier replan.",
	query.ReasonNoRuns:        "See how the stack stands with: terrier explain",
	query.ReasonNotKept:       "See which runs are kept with: terrier runs",
	query.ReasonUnpublished:   "They are written after an apply. See how far that is with: terrier explain",
	query.ReasonNotRetained:   "See what there is with: terrier retained -A",
	query.ReasonPlanChanged:   "Look at the new plan with terrier plan, and decide again.",
	query.ReasonNotManual:     "See what decides with: terrier explain",
	query.ReasonManifest:      "Edit the file by hand.",
	query.ReasonNoOutputs:     "Set writeOutputsToSecret.name to publish them.",
	ReasonNoGap:               "See how it stands with: terrier explain",
	"RepairUnclear":           "Say what to import it by with --id 'ADDRESS=ID', or that it does not exist with --absent 'ADDRESS'.",
	"PreviewFailed":           "See the whole story with: terrier logs",
	query.ReasonNoLock:        "There is nothing to free.",
	query.ReasonLockChanged:   "See who holds it now with: terrier explain STACK",
	query.ReasonStateForeign:  "Use the engine with that backend: terrier break-glass, or the engine by hand.",
	query.ReasonNoVersion:     "See what is kept with: terrier state versions STACK",
	query.ReasonStateUnseen:   "Have Terrier look at it first: terrier replan STACK. Or replace it all the same with --force.",
	query.ReasonStateBehind:   "Pull what is there with terrier state pull STACK, or replace it with --force: then lineage and serial are rewritten so that it follows.",
	query.ReasonRunning:       "Wait until it has ended: terrier logs STACK -f. Or keep further runs off first, with terrier suspend STACK.",
	ReasonGlassDenied:         "The operator allows it with --allow-break-the-glass.",
	ReasonGlassWhole:          "Break it with: terrier break-glass STACK",
	ReasonHandBusy:            "Wait for its end: terrier logs STACK -f",
	"CommandInvalid":          "See what can be run with: terrier break-glass --help",
	query.ReasonNoSuchThing:   "See what there is with: terrier tenants -A, or: kubectl get tenantregistries,tenanttemplates -A",
	query.ReasonNoTenants:     "Start a control plane with terrier up, or install Terrier's definitions into this cluster.",
	query.ReasonNoRevision:    "See which are kept with: terrier rollout status TEMPLATE",
	query.ReasonNotBlocked:    "See how it stands with: terrier rows REGISTRY",
	query.ReasonTokenChanged:  "Look at them with terrier rows REGISTRY, and decide again.",
	query.ReasonNotStopped:    "See how far it is with: terrier rollout status TEMPLATE",
	query.ReasonNotRead:       "It is not lost. See that the controller runs, and how the registry stands with: terrier rows REGISTRY",
	query.ReasonBadTemplate:   "Each fault names the resource by its id, and the field.",
	query.ReasonRegistryIdle:  "Resume it first with: terrier resume tenantregistry/NAME",
	query.ReasonNoLynq:        "See that --context is the cluster that Lynq runs in.",
	access.ReasonBusy:         "Try again in a moment.",
	"Suspended":               "Resume it first with: terrier resume",
	"NotAnswered":             "It is not lost. See how far it is with: terrier explain",
	"NeedsKubeconfig":         "Unset TERRIER_TOKEN, and name a kubeconfig with --kubeconfig or KUBECONFIG.",
	"Conflict":                "Try again.",
	"DataDirectory":           "Nothing in it was touched.",
	"JournalDamaged":          "Look into it before you trust the journal again. docs/audit.md says what holds what, and how a head that is missing is acknowledged.",
}

// Hint says what to do about err, or nothing if there is nothing to say.
func Hint(err error) string {
	if h := hints[fault.Reason(err, "")]; h != "" {
		return h
	}
	switch fault.Of(err) {
	case fault.Conflict, fault.Later:
		return "Try again in a moment."
	default:
		return ""
	}
}
