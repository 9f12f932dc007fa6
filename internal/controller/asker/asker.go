// Package asker finds the user who made a request with an object. Kubernetes does
// not record that. Where the policies of config/admission are in force, the object
// has a stamp that cannot be forged. Elsewhere there is only the name under which
// a program wrote, and the entry says that it is no more than that.
//
// It decides nothing and writes nothing. Start reading at Of.
package asker

import (
	"context"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/kube"
)

// Asker is the user who made a request, and the program that wrote it.
type Asker struct {
	Who     string // the user as the API server knows them; empty if it does not say
	Claimed string // the user whom the object names, if that is not known to be so
	Manager string // the program that wrote, by its own name for itself
}

// The field managers under which the server writes for users of its pages and of
// its HTTP API.
const (
	ServerManager = "terrier-server"
	APIManager    = "terrier-api"
)

// commandLine is the field manager of the command line; access.FieldManager is
// the same.
const commandLine = "terrier"

// decided are the entries about decisions. The object has a separate stamp for
// the user who decided.
var decided = map[audit.What]bool{
	audit.Approved: true, audit.ApprovedStale: true, audit.Rejected: true, audit.RejectedLate: true, audit.WindowOverridden: true, audit.DeletionsAllowed: true, audit.RolloutResumed: true,
}

// fields are the fields that users write to make a request. Names in a path are
// separated by tabs, since those of annotations have dots and slashes.
var fields = map[audit.What][]string{
	audit.Approved:          {"spec\tapprovePlan", annotation + "terrier.dev/approved", annotation + kube.Confirm},
	audit.ApprovedStale:     {"spec\tapprovePlan", annotation + "terrier.dev/approved", annotation + kube.Confirm},
	audit.WindowOverridden:  {annotation + kube.OverrideWindow},
	audit.Suspended:         {"spec\tsuspend", annotation + "terrier.dev/suspended"},
	audit.Resumed:           {"spec\tsuspend", annotation + "terrier.dev/suspended"},
	audit.RegistrySuspended: {"spec\tsuspend"},
	audit.RegistryResumed:   {"spec\tsuspend"},
	audit.Rejected:          {annotation + "terrier.dev/rejected"},
	audit.RejectedLate:      {annotation + "terrier.dev/rejected"},
	audit.DeletionsAllowed:  {annotation + tenantsv1.AnnotationAllowDeletions},
	audit.RolloutResumed:    {annotation + tenantsv1.AnnotationRollout},
	audit.ReplanAsked:       {annotation + "reconcile.fluxcd.io/requestedAt"},
	audit.StepsRerunAsked:   {annotation + "terrier.dev/rerun-steps"},
	audit.CancelAsked:       {annotation + "terrier.dev/cancel"},
	audit.DriftAccepted:     {annotation + "terrier.dev/accept-drift"},
	audit.RollbackAsked:     {annotation + "terrier.dev/rollback"},
	audit.RollbackEndAsked:  {annotation + "terrier.dev/rollback"},
	audit.UntrackedIgnored:  {annotation + "terrier.dev/ignore-untracked", annotation + "terrier.dev/forget-gap"},
	audit.RepairAsked:       {annotation + "terrier.dev/repair"},
}

const annotation = "metadata\tannotations\t"

// Of returns the user behind an entry. It reads obj from the API server if obj is
// a copy without managed fields.
func Of(ctx context.Context, live client.Reader, obj client.Object, what audit.What) (Asker, error) {
	stamp := kube.ChangedBy
	if decided[what] {
		stamp = kube.DecidedBy
	}
	a := Asker{Who: obj.GetAnnotations()[stamp]}
	if len(obj.GetManagedFields()) == 0 && live != nil {
		whole := obj.DeepCopyObject().(client.Object)
		if err := live.Get(ctx, client.ObjectKeyFromObject(obj), whole); client.IgnoreNotFound(err) != nil {
			return a, err
		} else if err == nil && whole.GetUID() == obj.GetUID() {
			obj = whole
		}
	}
	a.Manager = kube.ManagerOf(obj, fields[what]...)
	if a.Manager == "" { // the field was removed, or may be any
		a.Manager = kube.ManagerOf(obj, "spec", "metadata\tannotations")
	}
	return a, nil
}

// Unverified is a where the API server is not known to have recorded users.
func (a Asker) Unverified() Asker {
	a.Who, a.Claimed = "", a.Who
	return a
}

// In writes into e who it was, or why that is not known.
func (a Asker) In(e *audit.Entry) {
	e.Who, e.Claimed, e.Via = a.Who, a.Claimed, viaOf(a.Manager)
	if e.Details == nil {
		e.Details = map[string]string{}
	}
	e.Details["manager"] = a.Manager
	if a.Who == "" && e.Why == "" {
		e.Why = "the user is not known"
		if a.Manager != "" {
			e.Why += ": it was written by the field manager " + a.Manager
		}
	}
}

// appliers begin the field managers of controllers that apply a repository.
var appliers = []string{"kustomize-controller", "helm-controller", "flux", "argocd", "fleet", "rancher-fleet", "config-sync"}

// viaOf is the way on which a user of a field manager made a request.
func viaOf(manager string) audit.Via {
	switch manager {
	case ServerManager:
		return audit.ViaUI
	case APIManager:
		return audit.ViaAPI
	case commandLine:
		return audit.ViaCLI
	case kube.FieldManager, tenantsv1.FieldManager:
		return audit.ViaController
	}
	for _, a := range appliers {
		if strings.HasPrefix(manager, a) {
			return audit.ViaGit
		}
	}
	return audit.ViaKubectl
}
