package controller

import (
	"context"
	"encoding/json"

	"github.com/terrier-iac/terrier/internal/controller/states"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/runner"
)

// nothingExists is what an inventory is of when everything was destroyed.
const nothingExists = "nothing"

// inventory lists what exists, if the stack wants it listed and the object does
// not list it yet; nil leaves in the object what is there. It is made from the
// state that we keep, whenever that has changed; of other states the run that
// changed them leaves it.
func (cm *committer) inventory(ctx context.Context, p *pass) *dialect.Inventory {
	m := p.o.Status
	of := m.State
	if m.Destroyed {
		of = nothingExists
	}
	switch {
	case !p.st.Configuration.Inventory || p.o.Deleting || p.o.Unsettled != nil:
		return nil
	case p.listed != nil:
		return p.listed
	case of == "" || of == p.st.Listed:
		return nil
	case m.Destroyed:
		return &dialect.Inventory{Of: of}
	case p.job == nil: // what must not be shown is not known in this pass
		return nil
	}
	_, ref, _ := states.Backend(p.st.Configuration, p.obj.GetNamespace())
	if ref == nil {
		return nil
	}
	hidden, err := p.secretPrints(ctx, cm.states.Records)
	if hidden.All { // a list without any ID would stay when the IDs can be shown
		return nil
	}
	var state []byte
	if err == nil {
		state, err = cm.states.Read(ctx, p.id, *ref, of)
	}
	var inv plan.Inventory
	if err == nil {
		inv, err = plan.InventoryOf(state, p.job.Mask)
	}
	if err != nil {
		cm.log.Warn("stack not listed", "stack", p.job.Name, "err", err) // the next pass tries again
		return nil
	}
	for i, it := range inv.Items {
		inv.Items[i].ID = hidden.String(it.ID) // of Secrets that have changed since, too
	}
	return listed(of, inv)
}

// takeInventory takes over the inventory that a run left of a state that we do
// not keep.
func (se *settler) takeInventory(p *pass, r *runner.Report) error {
	b, err := se.records.Left(p.id, r.ID, runner.FileInventory)
	if err != nil || b == nil {
		return err
	}
	var inv plan.Inventory
	if err := json.Unmarshal(b, &inv); err != nil {
		return err
	}
	p.listed = listed(r.ID, inv)
	return nil
}

func listed(of string, inv plan.Inventory) *dialect.Inventory {
	out := &dialect.Inventory{Of: of, More: inv.More, Sealed: inv.Sealed}
	for _, it := range inv.Items {
		out.Items = append(out.Items, dialect.Item{Name: it.Name, Type: it.Type, ID: it.ID})
	}
	return out
}
