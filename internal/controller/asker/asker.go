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

// ServerManager is the field manager of what the server writes in the name of
// those who use its pages and its HTTP API; service.ServerManager is the same.
const ServerManager = "terrier-server"

// commandLine is the field manager of the command line; service.FieldManager is
// the same.
const commandLine = "terrier"

// decisions are the fields that the policies take for decisions, and changes
// those of everything that people ask for.
var (
	decisions = []string{
		"spec\tapprovePlan", "metadata\tannotations\tterrier.dev/rejected",
		"metadata\tannotations\t" + tenantsv1.AnnotationAllowDeletions, "metadata\tannotations\t" + tenantsv1.AnnotationRollout,
	}
	changes = []string{"spec", "metadata\tannotations"}
)

// Of returns who decided last about what obj asks for, or if decided is false,
// who changed it last. The server is asked for obj if obj is a copy that does not
// say who manages what.
func Of(ctx context.Context, live client.Reader, obj client.Object, decided bool) (Asker, error) {
	stamp, fields := kube.ChangedBy, changes
	if decided {
		stamp, fields = kube.DecidedBy, decisions
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
	a.Manager = kube.ManagerOf(obj, fields...)
	return a, nil
}

// In says in e who it was, or what there is to say instead.
func (a Asker) In(e *audit.Entry) {
	e.Who, e.Via = a.Who, Via(a.Manager)
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

// Via is the way on which a field manager speaks for people.
func Via(manager string) audit.Via {
	switch manager {
	case ServerManager:
		return audit.ViaUI
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
