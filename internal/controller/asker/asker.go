// Package asker finds who asked for what an object says. Kubernetes does not
// keep that: where the policies of config/admission are in force the object bears
// a stamp that nobody can forge, and elsewhere there is only the name by which a
// program wrote, which is said to be no more than that.
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

// Asker is who asked for something, and on which way.
type Asker struct {
	Who     string // as the API server knows them; empty if it does not say
	Manager string // the program that wrote, by its own word
}

// The field managers of what the server writes in the name of those who use its
// pages and its HTTP API; those of package service are the same.
const (
	ServerManager = "terrier-server"
	APIManager    = "terrier-api"
)

// commandLine is the field manager of the command line; access.FieldManager is
// the same.
const commandLine = "terrier"

// decided are the entries about what somebody decided, of which the object says
// apart from everything else who it was.
var decided = map[audit.What]bool{
	audit.Approved: true, audit.ApprovedStale: true, audit.Rejected: true, audit.DeletionsAllowed: true, audit.RolloutResumed: true,
}

// fields are where people write to bring something about. Names in a path are
// separated by tabs, since those of annotations have dots and slashes.
var fields = map[audit.What][]string{
	audit.Approved:          {"spec\tapprovePlan"},
	audit.ApprovedStale:     {"spec\tapprovePlan"},
	audit.Suspended:         {"spec\tsuspend"},
	audit.Resumed:           {"spec\tsuspend"},
	audit.RegistrySuspended: {"spec\tsuspend"},
	audit.RegistryResumed:   {"spec\tsuspend"},
	audit.Rejected:          {annotation + "terrier.dev/rejected"},
	audit.DeletionsAllowed:  {annotation + tenantsv1.AnnotationAllowDeletions},
	audit.RolloutResumed:    {annotation + tenantsv1.AnnotationRollout},
	audit.ReplanAsked:       {annotation + "reconcile.fluxcd.io/requestedAt"},
	audit.UntrackedIgnored:      {annotation + "terrier.dev/ignore-untracked", annotation + "terrier.dev/forget-gap"},
	audit.RepairAsked:       {annotation + "terrier.dev/repair"},
}

const annotation = "metadata\tannotations\t"

// Of returns who brought about what an entry is to tell of. The server is asked
// for obj if obj is a copy that does not say who manages what.
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
	if a.Manager == "" { // it was taken away, or may be anywhere
		a.Manager = kube.ManagerOf(obj, "spec", "metadata\tannotations")
	}
	return a, nil
}

// In says in e who it was, or what there is to say instead.
func (a Asker) In(e *audit.Entry) {
	e.Who, e.Via = a.Who, viaOf(a.Manager)
	if e.Details == nil {
		e.Details = map[string]string{}
	}
	e.Details["manager"] = a.Manager
	if a.Who == "" && e.Why == "" {
		e.Why = "who it was is not known"
		if a.Manager != "" {
			e.Why += ": it was written by the field manager " + a.Manager
		}
	}
}

// appliers begin the field managers of those that apply what is in a repository.
var appliers = []string{"kustomize-controller", "helm-controller", "flux", "argocd", "fleet", "rancher-fleet", "config-sync"}

// viaOf is the way on which a field manager speaks for people.
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
