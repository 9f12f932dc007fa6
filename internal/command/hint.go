package command

import (
	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
)

// hints say what to do about a fault, by its reason.
var hints = map[string]string{
	access.ReasonNotFound:     "List the stacks with: terrier get -A. Of a deleted stack, terrier logs STACK prints the last run.",
	access.ReasonNotInstalled: "Start a control plane with terrier up, or install Terrier's definitions into this cluster.",
	access.ReasonUnreachable:  "Check that it runs (terrier up), and that --kubeconfig and --context select it.",
	access.ReasonAccessDenied: "Ask the administrator of the cluster for a role that allows it.",
	access.ReasonUnknownUser:  "Check that the kubeconfig is that of this cluster, and that its token has not expired.",
	access.ReasonNoKubeconfig: "Name a file with --kubeconfig or KUBECONFIG, or start a control plane here with: terrier up",
	access.ReasonNoServer:     "Start a server with terrier up, or name one with --server or TERRIER_SERVER.",
	access.ReasonNoToken:      "Use a kubeconfig with a token, for instance one of: kubectl create token",
	access.ReasonImpersonate:  "Ask the operator of the server to give its account that right: docs/rbac.md has the role.",
	"CertificateOnly":         "Make a ServiceAccount with the roles that you need, and sign in with its token: kubectl create token NAME. docs/sign-in.md has the commands.",
	query.ReasonNoPlan:        "Show the status with terrier explain, or request a new plan with terrier replan.",
	query.ReasonOnlyScript:    "To have a plan made before each run of the script, annotate the stack with terrier.dev/approval=manual. terrier replan runs the script, and makes no plan.",
	query.ReasonNoRuns:        "Show the status with: terrier explain",
	query.ReasonNotKept:       "List the runs that are kept with: terrier runs",
	query.ReasonUnpublished:   "Terrier writes them after an apply. Show the status with: terrier explain",
	query.ReasonNotRetained:   "List the retained resources with: terrier retained. If the namespace was deleted and created again, a user with the permission in all namespaces lists those of the former one.",
	query.ReasonAmbiguous:     "Show the kinds with: terrier get -A",
	query.ReasonPlanChanged:   "View the new plan with terrier plan, and decide again.",
	query.ReasonTooLate:       "Watch the run with terrier logs STACK -f. To interrupt it: terrier cancel STACK.",
	query.ReasonWasApplied:    "Show the status with: terrier explain STACK",
	query.ReasonNoRun:         "Show the status with: terrier explain STACK",
	query.ReasonRunChanged:    "Show the run with terrier describe STACK, and decide again.",
	query.ReasonNotManual:     "Show the mode of the stack with: terrier describe",
	query.ReasonManifest:      "Edit the file manually.",
	ReasonNothingUntracked:    "Show the status with: terrier explain",
	"RepairUnclear":           "Give the ID to import it by with --id 'ADDRESS=ID', or say that it does not exist with --absent 'ADDRESS'.",
	"PreviewFailed":           "Read the log with: terrier logs",
	query.ReasonAsExpected:    "Show the status with: terrier explain STACK",
	query.ReasonNoLock:        "No lock has to be freed.",
	query.ReasonLockChanged:   "Show the holder of the lock with: terrier explain STACK",
	query.ReasonStateForeign:  "Use the engine with that backend: in a session (terrier break-glass STACK), or outside of Terrier.",
	query.ReasonNoVersion:     "List the versions with: terrier state versions STACK",
	query.ReasonStateUnseen:   "Have Terrier check it first: terrier replan STACK. To replace it anyway, use --force.",
	query.ReasonStateBehind:   "Download the stored state with terrier state pull STACK. To replace it, use --force: it rewrites lineage and serial so that the new state follows.",
	query.ReasonRunning:       "Wait until the run has ended: terrier logs STACK -f. To prevent further runs, suspend the stack: terrier suspend STACK.",
	ReasonBreakGlassDenied:    "Ask the operator to allow it with --allow-break-the-glass.",
	ReasonNoSession:           "Open a session with: terrier break-glass STACK",
	ReasonCommandBusy:         "Wait until the command has ended: terrier logs STACK -f",
	"CommandInvalid":          "List the commands with: terrier break-glass --help",
	query.ReasonNoSuchThing:   "List them with: terrier tenants -A, or: kubectl get tenantregistries,tenanttemplates -A",
	query.ReasonNoTenants:     "Start a control plane with terrier up, or install Terrier's definitions into this cluster.",
	query.ReasonNoRevision:    "List the generations with: terrier rollout status TEMPLATE",
	query.ReasonNotBlocked:    "Show the status with: terrier rows REGISTRY",
	query.ReasonTokenChanged:  "View them with terrier rows REGISTRY, and decide again.",
	query.ReasonNotStopped:    "Show the progress with: terrier rollout status TEMPLATE",
	query.ReasonNotRead:       "The request stays. Check that the controller runs, and show the status with: terrier rows REGISTRY",
	query.ReasonBadTemplate:   "Correct the template: each fault names the id of the resource, and the field.",
	query.ReasonRegistryIdle:  "Resume it first: terrier resume tenantregistry/NAME",
	query.ReasonNoLynq:        "Select the cluster that Lynq runs in with --context.",
	access.ReasonBusy:         "Try again in a moment.",
	"Suspended":               "Resume it first: terrier resume",
	"NotAnswered":             "The request stays. Show the progress with: terrier explain",
	"NeedsKubeconfig":         "Unset TERRIER_TOKEN, and name a kubeconfig with --kubeconfig or KUBECONFIG.",
	"Conflict":                "Try again.",
	"DataDirectory":           "Terrier changed nothing in it.",
	"AuditLogDamaged":         "Investigate before you trust the audit log again. docs/audit.md says how entries are verified, and how a missing head is acknowledged.",
}

// Hint says what to do about err; empty if there is nothing to do.
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
