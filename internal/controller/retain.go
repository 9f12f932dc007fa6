package controller

import (
	"context"
	"encoding/json"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/record"
)

// retain writes down what a stack leaves behind.
func (c *Stacks) retain(ctx context.Context, p *pass) error {
	r := kube.Retained{
		Stack: client.ObjectKeyFromObject(p.obj).String(), UID: p.id, At: p.o.Now, Untracked: p.o.Status.Untracked,
		Why: "destroyResourcesOnDeletion is not set",
	}
	if p.o.Spec.Retain {
		r.Why = "terrier.dev/deletion is retain"
	}
	_, ref, _ := backendOf(p.st.Configuration, p.obj.GetNamespace())
	r.State = ref
	state, err := c.lastState(ctx, p, ref)
	if err != nil {
		return err
	}
	if err := c.keepRetained(ctx, &r, state); err != nil {
		return err
	}
	how := "its state is not kept here"
	if len(state) > 0 {
		how = fmt.Sprintf("resources in the state: %d", len(r.Resources))
	}
	c.Events.Event(p.obj, warning, "ResourcesRetained", fmt.Sprintf("What it built stays where it is (%s): %s", how, r.Why))
	return nil
}

// lastState is our copy of the state or, of a stack that only upstream ran, the
// one that is there; nil if there is neither. It stays where it is in any case,
// so that one that cannot be read holds up no deletion.
func (c *Stacks) lastState(ctx context.Context, p *pass, ref *kube.StateRef) ([]byte, error) {
	state, err := c.get(ctx, record.State(p.id))
	if fault.Of(err) != fault.Missing {
		return state, err
	}
	if ref == nil {
		return nil, nil
	}
	found, err := c.States.Load(ctx, *ref)
	if err != nil {
		c.Log.Warn("state of a stack that goes not read", "stack", client.ObjectKeyFromObject(p.obj).String(), "err", err)
		return nil, nil
	}
	if found.Owner != "" && found.Owner != p.obj.GetName() {
		return nil, nil // it is another stack's
	}
	return found.State, nil
}

// keepRetained keeps the record, and the state if it is known.
func (c *Stacks) keepRetained(ctx context.Context, r *kube.Retained, state []byte) error {
	if len(state) > 0 {
		var err error
		if r.Resources, err = addresses(state); err != nil {
			return err
		}
		if err := c.put(ctx, record.Retained(r.UID, record.RetainedStateFile), state); err != nil {
			return err
		}
	}
	return record.At[kube.Retained](record.Retained(r.UID, record.RetainedFile)).Write(ctx, c.Blobs, *r)
}

// addresses lists the managed resources in a state.
func addresses(state []byte) ([]string, error) {
	var s struct {
		Resources []struct {
			Module, Mode, Type, Name string
		} `json:"resources"`
	}
	if err := json.Unmarshal(state, &s); err != nil {
		return nil, fmt.Errorf("reading the state: %w", err)
	}
	var out []string
	for _, r := range s.Resources {
		if r.Mode != "managed" {
			continue
		}
		address := r.Type + "." + r.Name
		if r.Module != "" {
			address = r.Module + "." + address
		}
		out = append(out, address)
	}
	return out, nil
}
