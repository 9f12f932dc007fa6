package plan

import (
	"encoding/json"
	"slices"
)

// priorState is the part of a document that says what there is before.
type priorState struct {
	State *struct {
		Values struct {
			Root stateModule `json:"root_module"`
		} `json:"values"`
	} `json:"prior_state"`
}

type stateModule struct {
	Resources []struct {
		Mode    string `json:"mode"`
		Deposed string `json:"deposed_key"`
	} `json:"resources"`
	Children []stateModule `json:"child_modules"`
}

func (m stateModule) count() int {
	n := 0
	for _, r := range m.Resources {
		if r.Mode != "data" && r.Deposed == "" {
			n++
		}
	}
	for _, c := range m.Children {
		n += c.count()
	}
	return n
}

// Resources counts the managed resources in the state that the plan is made against. It is
// negative if the document does not say: a large one has neither the state nor the
// resources that stay as they are.
func (d *Document) Resources() int {
	var prior priorState
	if err := json.Unmarshal(d.raw, &prior); err == nil && prior.State != nil {
		n := prior.State.Values.Root.count()
		for _, r := range d.wire.Changes {
			if r.Delta.Importing != nil {
				n-- // the engine has put it in there for the plan
			}
		}
		return n
	}
	if slices.Contains(d.wire.Truncated, "resource_changes") {
		return -1
	}
	n := 0
	for _, r := range d.wire.Changes {
		isNew := len(r.Delta.Actions) == 1 && r.Delta.Actions[0] == Create || r.Delta.Importing != nil
		if r.Mode != "data" && r.Deposed == "" && !isNew {
			n++
		}
	}
	return n
}
