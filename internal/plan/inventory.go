package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Bounds of an inventory: it becomes part of an object in a cluster, which has
// no room for everything that a large stack holds.
const (
	inventoryItems = 1000
	inventoryBytes = 128 << 10
	identifier     = 1 << 10 // of one
)

// Inventory is what a state says that exists.
type Inventory struct {
	Items  []Item `json:"items"`
	More   int    `json:"more,omitempty"`   // resource instances that there was no room for
	Sealed bool   `json:"sealed,omitempty"` // the state is encrypted and shows nothing
}

// Item is one resource instance. Instances of one resource have the same name.
type Item struct {
	Name string `json:"name"`
	Type string `json:"type"`
	ID   string `json:"id"` // its arn if it has one, else its id; Mask if that is sensitive
}

// InventoryOf lists the managed resource instances of a state, in its order.
// An identifier that the state marks as sensitive, or that holds one of its
// sensitive values or one of secrets, is not shown.
func InventoryOf(state []byte, secrets []string) (Inventory, error) {
	inv := Inventory{Items: []Item{}}
	if len(state) == 0 {
		return inv, nil
	}
	var s inventoryState
	if err := json.Unmarshal(state, &s); err != nil {
		return inv, fmt.Errorf("reading the state: %w", err)
	}
	if s.Encrypted != nil {
		inv.Sealed = true
		return inv, nil
	}
	hide := NewRedactor(append(slices.Clone(secrets), s.secrets()...))
	size := 0
	for _, r := range s.Resources {
		if r.Mode != "managed" {
			continue
		}
		for _, i := range r.Instances {
			it := Item{Name: r.Name, Type: r.Type, ID: clip(hide.String(i.id()))}
			size += len(it.Name) + len(it.Type) + len(it.ID)
			if len(inv.Items) == inventoryItems || size > inventoryBytes {
				inv.More++
				continue
			}
			inv.Items = append(inv.Items, it)
		}
	}
	return inv, nil
}

// clip cuts an identifier without splitting a character.
func clip(s string) string {
	if len(s) <= identifier {
		return s
	}
	end := identifier
	for end > 0 && s[end]&0xc0 == 0x80 {
		end--
	}
	return s[:end] + "…"
}

// inventoryState is the part of a state that an inventory is made from.
type inventoryState struct {
	Encrypted json.RawMessage `json:"encrypted_data"`
	Outputs   map[string]struct {
		Value     json.RawMessage `json:"value"`
		Sensitive bool            `json:"sensitive"`
	} `json:"outputs"`
	Resources []struct {
		Mode, Type, Name string
		Instances        []inventoryInstance
	} `json:"resources"`
}

type inventoryInstance struct {
	Attributes json.RawMessage   `json:"attributes"`
	Flat       map[string]string `json:"attributes_flat"` // as very old states have them
	Sensitive  [][]pathStep      `json:"sensitive_attributes"`
}

// pathStep leads into an attribute: by name, or by an index that is wrapped in
// an object with its type.
type pathStep struct {
	Type  string          `json:"type"`
	Value json.RawMessage `json:"value"`
}

func (p pathStep) key() any {
	v := decode(p.Value)
	if m, ok := v.(map[string]any); ok {
		v = m["value"]
	}
	return v
}

// attributes are those of the instance, without wrappers of dynamic values.
func (i inventoryInstance) attributes() any { return unwrapped(decode(i.Attributes)) }

// id is what the provider calls the instance.
func (i inventoryInstance) id() string {
	attrs := map[string]json.RawMessage{}
	if i.Attributes != nil && json.Unmarshal(i.Attributes, &attrs) != nil {
		return ""
	}
	for _, name := range []string{"arn", "id"} {
		text := i.Flat[name]
		switch v := decode(attrs[name]).(type) {
		case string:
			text = v
		case json.Number:
			text = v.String()
		}
		if text != "" && i.marked(name) {
			return Mask
		}
		if text != "" {
			return text
		}
	}
	return ""
}

// marked reports whether the attribute, or all of them, are sensitive.
func (i inventoryInstance) marked(name string) bool {
	return slices.ContainsFunc(i.Sensitive, func(path []pathStep) bool {
		return len(path) == 0 || path[0].key() == name
	})
}

// secrets are the texts that the state marks as sensitive.
func (s inventoryState) secrets() []string {
	var found secrets
	for _, o := range s.Outputs {
		if o.Sensitive {
			found.all(decode(o.Value))
		}
	}
	for _, r := range s.Resources {
		for _, i := range r.Instances {
			if len(i.Sensitive) == 0 || i.Attributes == nil {
				continue
			}
			attrs := i.attributes()
			for _, path := range i.Sensitive {
				found.all(reach(attrs, path))
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// reach follows a path as far as it leads: all of what it cannot be followed
// into is taken as sensitive.
func reach(v any, path []pathStep) any {
	for _, p := range path {
		switch in := v.(type) {
		case map[string]any:
			key, _ := p.key().(string)
			next, ok := in[key]
			if !ok {
				return v
			}
			v = next
		case []any:
			n, ok := p.key().(json.Number)
			if !ok {
				return v
			}
			i, err := n.Int64()
			if err != nil || i < 0 || int(i) >= len(in) {
				return v
			}
			v = in[i]
		default:
			return v
		}
	}
	return v
}
