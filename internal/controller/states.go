package controller

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// load returns the state to start a run from.
func (c *Stacks) load(ctx context.Context, p *pass, ref kube.StateRef) ([]byte, error) {
	state, owner, err := c.States.Load(ctx, ref)
	if err == nil && owner != "" && owner != p.obj.GetName() {
		err = c.disowned(ctx, p, owner)
	}
	if err != nil || len(state) > 0 || !p.o.Deleting {
		return state, err
	}
	state, err = c.get(ctx, stackKey(p.id, "state.json"))
	if fault.Of(err) == fault.Missing {
		return nil, nil
	}
	return state, err
}

// disowned refuses a state that another stack keeps: two stacks on one state
// would destroy each other's things by turns. A stack that is gone has no claim.
func (c *Stacks) disowned(ctx context.Context, p *pass, owner string) error {
	other := c.Dialect.New()
	err := c.Live.Get(ctx, types.NamespacedName{Namespace: p.obj.GetNamespace(), Name: owner}, other)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	return fault.New(fault.Denied, string(stack.StateFailed), fmt.Errorf(
		"the state belongs to the stack %s: give one of the two another backendConfig.secretSuffix or workspace", owner))
}

// inherit looks whether the state of a stack that never ran here holds
// something: it does if the object was made over what a former one left.
func (c *Stacks) inherit(ctx context.Context, p *pass) error {
	if p.o.Memory.Built || p.o.Memory.Destroyed || !p.o.Spec.DestroyLast || p.o.Blocked != nil {
		return nil
	}
	_, ref, _ := backendOf(p.st.Program, p.obj.GetNamespace())
	if ref == nil || ref.Check() != nil {
		return nil
	}
	b, err := c.load(ctx, p, *ref)
	if fault.Of(err) == fault.Denied {
		return nil // it is another stack's
	}
	var s struct {
		Resources []struct{ Mode string } `json:"resources"`
	}
	if err == nil && len(b) > 0 {
		err = json.Unmarshal(b, &s)
	}
	for _, r := range s.Resources {
		p.o.Memory.Built = p.o.Memory.Built || r.Mode == "managed"
	}
	return err
}

// stateOutputs reads the outputs out of a managed state.
func (c *Stacks) stateOutputs(ctx context.Context, ref kube.StateRef) ([]byte, error) {
	state, _, err := c.States.Load(ctx, ref)
	if err != nil {
		return nil, err
	}
	var s struct {
		Outputs json.RawMessage `json:"outputs"`
	}
	if len(state) == 0 {
		return []byte("{}"), nil
	}
	return s.Outputs, json.Unmarshal(state, &s)
}

// flush stores the newest state that the supervisor acknowledged.
func (c *Stacks) flush(ctx context.Context, p *pass, r *runner.Report, n note) error {
	if n.State == nil {
		return nil
	}
	state, err := c.left(p.id, r.ID, runner.FileState)
	if err != nil || len(state) == 0 {
		return err
	}
	// A copy of our own: a namespace that is deleted takes the Secret with it
	// before the stack is taken down.
	if err := c.put(ctx, stackKey(p.id, "state.json"), state); err != nil {
		return err
	}
	err = c.States.Save(ctx, *n.State, p.obj.GetName(), state)
	if p.o.Deleting && fault.Of(err) == fault.Denied {
		return nil // nothing can be made in a namespace that goes away
	}
	return err
}

// rescue takes over a state that could not be stored during the run, if it
// follows the one that is, and keeps it otherwise.
func (c *Stacks) rescue(ctx context.Context, p *pass, r *runner.Report, n note) error {
	if n.State != nil {
		state, err := c.left(p.id, r.ID, runner.FileRescue)
		if err != nil || state == nil {
			return err
		}
		if c.States.Save(ctx, *n.State, p.obj.GetName(), state) == nil {
			c.Events.Event(p.obj, warning, "StateRescued", "The newest state could not be stored during the run, and was taken over after it")
			return c.put(ctx, stackKey(p.id, "state.json"), state)
		}
	}
	kept, err := c.keep(ctx, p.id, r.ID, runner.FileRescue, stackKey(p.id, "rescued", r.ID+".tfstate"))
	if kept && err == nil {
		c.Events.Event(p.obj, warning, "StateRescued", "The backend refused the newest state; it is kept as rescued/"+r.ID+".tfstate")
	}
	return err
}

// newest is the last state that was stored of a stack whose state we keep.
func (c *Stacks) newest(ctx context.Context, p *pass, r *runner.Report, n note) ([]byte, error) {
	if n.State == nil {
		return c.left(p.id, r.ID, runner.FileState)
	}
	state, err := c.get(ctx, stackKey(p.id, "state.json"))
	if fault.Of(err) == fault.Missing {
		return nil, nil
	}
	return state, err
}
