package secretsync

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/externalsecret"
	"github.com/terrier-iac/terrier/internal/fault"
)

// reasonRestart is of a Secret that was written, and whose workloads were not restarted.
const reasonRestart = "RestartFailed"

// finishRestarts restarts the workloads that use the Secret, if its content is another one,
// and notes in the Secret that this was done. A crash between the two does it again: a
// workload that has the content in its annotation already stays as it is.
func (r *reconciler) finishRestarts(ctx context.Context, p *pass) error {
	m := p.live.Mark
	if m == nil || m.Restart == externalsecret.RestartNone {
		return nil
	}
	if p.obj.GetAnnotations()[RestartAnnotation] != never {
		if err := r.restart(ctx, p, *m); err != nil {
			return err
		}
	}
	done := *m
	done.Restart = externalsecret.RestartNone
	next := p.secret.DeepCopy()
	next.Annotations[externalsecret.MarkName(p.obj.GetName())] = done.String()
	return r.put(ctx, p, next)
}

func (r *reconciler) restart(ctx context.Context, p *pass, m externalsecret.Mark) error {
	secret := p.spec.Target.Name
	name := externalsecret.RestartName(secret)
	all, err := workloads(ctx, r.cache, p.obj.GetNamespace())
	if err != nil {
		return err
	}
	for _, w := range all {
		had := w.template.Annotations[name]
		if !w.restarts(secret) || had == m.Content || had == "" && m.Restart == externalsecret.RestartKnown {
			continue
		}
		if err := r.Live.Patch(ctx, w.Object, annotated(name, m.Content), client.FieldOwner(manager)); client.IgnoreNotFound(err) != nil {
			err := fmt.Errorf("the Secret %s was written, and restarting the %s %s that uses it failed: %w", secret, w.kind, w.GetName(), err)
			if apierrors.IsForbidden(err) {
				return fault.New(fault.Denied, reasonRestart, fmt.Errorf("%w: grant patch on it to the controller (docs/rbac.md), or annotate it with %s=%s", err, RestartAnnotation, never))
			}
			return fault.New(fault.Later, reasonRestart, err)
		}
		r.Log.Info("workload restarted", "kind", w.kind, "namespace", w.GetNamespace(), "name", w.GetName(), "secret", secret)
	}
	return nil
}

// annotated changes an annotation of the pods of a workload, as "kubectl rollout restart"
// does.
func annotated(name, value string) client.Patch {
	patch := map[string]any{"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{"annotations": map[string]string{name: value}}}}}
	text, err := json.Marshal(patch)
	if err != nil { // there are texts only
		text = []byte("{}")
	}
	return client.RawPatch(types.MergePatchType, text)
}
