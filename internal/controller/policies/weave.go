package policies

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/policy/guard"
	"github.com/terrier-iac/terrier/internal/policyapi"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Weave is a Policy object of the Weave policy agent.
type Weave struct {
	Text    Text
	Judges  bool // it is for plans, and switched on
	Selects func(kind, namespace, name string, labels map[string]string) bool
}

// weavePolicy is the kind of these objects.
var weavePolicy = schema.GroupKind{Group: "pac.weave.works", Kind: "Policy"}

// findWeave finds out in which version the API server has these objects, if they count.
func findWeave(p *Policies, kinds meta.RESTMapper) error {
	if p.Weave == nil {
		return nil
	}
	m, err := kinds.RESTMapping(weavePolicy)
	if meta.IsNoMatchError(err) {
		p.Log.Warn("policies of the Weave policy agent are off: their definition is not installed", "missing", weavePolicy.String())
		return nil
	}
	if err != nil {
		return err
	}
	p.weave = m.GroupVersionKind
	return nil
}

func weaveObject(kind schema.GroupVersionKind) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	return u
}

// eachWeave does something with each of these objects.
func eachWeave(ctx context.Context, p *Policies, do func(*unstructured.Unstructured)) error {
	if p.weave.Empty() {
		return nil
	}
	all := &unstructured.UnstructuredList{}
	all.SetGroupVersionKind(p.weave.GroupVersion().WithKind(p.weave.Kind + "List"))
	if err := p.cache.List(ctx, all); err != nil {
		return err
	}
	for i := range all.Items {
		do(&all.Items[i])
	}
	return nil
}

// compileWeave makes a Policy object of Weave ready, nil if it is not for plans. Last is what
// it was, nil if it is new. One that cannot be read holds the plans of the stacks that it
// may be meant for. Its status has no place for that, so the log says it.
func compileWeave(p *Policies, obj *unstructured.Unstructured, last *compiled) *compiled {
	w, err := p.Weave(obj.Object)
	if err == nil && !w.Judges {
		return nil
	}
	name := weavePolicy.Kind + "." + weavePolicy.Group + "/" + obj.GetName()
	c := &compiled{
		id: string(obj.GetUID()), key: client.ObjectKeyFromObject(obj), generation: obj.GetGeneration(),
		source: guard.Source{Policy: name}, selector: policyapi.Selector{Targets: w.Selects}, onError: policy.Hold, foreign: true, text: w.Text,
	}
	if err == nil {
		switch b := p.builds.of(c.text, ""); {
		case b == nil:
			c.pending = true
		case b.err != nil:
			err = b.err
		default:
			c.program, c.programDigest = b.program, b.digest
		}
	}
	if err != nil {
		c.broken = fmt.Sprintf("spec: %v", err)
		if last == nil || last.broken != c.broken {
			p.Log.Warn("policy of the Weave policy agent cannot be evaluated", "policy", name, "err", err)
		}
	}
	c.digest = stack.Digest([]any{name, c.programDigest, c.broken})
	return c
}
