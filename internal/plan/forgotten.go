package plan

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/stack"
)

// Forgotten lists the resources that the plan takes out of the state and leaves where
// they are. A deposed object is listed under the address of its resource. An id that
// is masked is left out.
func (d *Document) Forgotten() []stack.ForgottenResource {
	var out []stack.ForgottenResource
	for _, r := range d.wire.Changes {
		if a := r.action(); r.Mode == "data" || a != Forget && a != ForgetCreate {
			continue
		}
		out = append(out, stack.ForgottenResource{Address: r.Address, Type: r.Type, Provider: r.Provider, ID: idIn(r.Delta.Before)})
	}
	return out
}

// idIn is the attribute id of a resource; empty if it has none, or a masked one.
func idIn(attributes json.RawMessage) string {
	values, _ := decode(attributes).(map[string]any)
	switch id := values["id"].(type) {
	case string:
		if !strings.Contains(id, Mask) {
			return id
		}
	case json.Number:
		return id.String()
	}
	return ""
}

// StillForgotten returns those of the forgotten resources that a state does not hold,
// under any address. One without an id stays.
func StillForgotten(forgotten []stack.ForgottenResource, state []byte) ([]stack.ForgottenResource, error) {
	held, err := objects(state)
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, o := range held {
		if o.id != "" {
			names[objectName(o.kind, o.id)] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(forgotten), func(f stack.ForgottenResource) bool {
		return f.ID != "" && names[objectName(f.Type, f.ID)]
	}), nil
}
