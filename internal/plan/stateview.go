package plan

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// StateView is what a state says, for people.
type StateView struct {
	Lineage   string          `json:"lineage"`
	Serial    uint64          `json:"serial"`
	Engine    string          `json:"engine,omitempty"` // the version that wrote it
	Sealed    bool            `json:"sealed,omitempty"` // it is encrypted and shows nothing more
	Resources []StateResource `json:"resources"`
	Outputs   []StateOutput   `json:"outputs"`
}

// StateResource is one resource instance.
type StateResource struct {
	Address    string         `json:"address"`
	Mode       string         `json:"mode"` // managed or data
	Provider   string         `json:"provider,omitempty"`
	Tainted    bool           `json:"tainted,omitempty"`
	Deposed    string         `json:"deposed,omitempty"` // the key of one that was replaced and is still there
	Attributes map[string]any `json:"attributes,omitempty"`
}

// StateOutput is one output value.
type StateOutput struct {
	Name      string `json:"name"`
	Sensitive bool   `json:"sensitive,omitempty"`
	Value     any    `json:"value"`
}

// viewedState is the part of a state that a view is made from.
type viewedState struct {
	inventoryState
	Lineage   string `json:"lineage"`
	Serial    uint64 `json:"serial"`
	Engine    string `json:"terraform_version"`
	Resources []struct {
		Module, Mode, Type, Name, Provider string
		Instances                          []struct {
			inventoryInstance
			Index   json.RawMessage `json:"index_key"`
			Status  string          `json:"status"`
			Deposed string          `json:"deposed"`
		}
	} `json:"resources"`
}

// ViewState reads a state. Unless reveal is set, what is sensitive is masked
// wherever it stands: what the state marks, and attributes whose name says it,
// since older engines did not write down what their providers' schemas mark.
func ViewState(state []byte, reveal bool) (StateView, error) {
	v := StateView{Resources: []StateResource{}, Outputs: []StateOutput{}}
	if len(state) == 0 {
		return v, nil
	}
	var s viewedState
	if err := json.Unmarshal(state, &s); err != nil {
		return v, fmt.Errorf("reading the state: %w", err)
	}
	v.Lineage, v.Serial, v.Engine, v.Sealed = s.Lineage, s.Serial, s.Engine, s.Encrypted != nil
	var known inventoryState
	if err := json.Unmarshal(state, &known); err != nil {
		return v, fmt.Errorf("reading the state: %w", err)
	}
	m := stateMask{reveal: reveal, hide: NewRedactor(known.secrets())}
	for _, r := range s.Resources {
		for _, i := range r.Instances {
			out := StateResource{Mode: r.Mode, Provider: providerName(r.Provider), Tainted: i.Status == "tainted", Deposed: i.Deposed}
			out.Address = stateAddress(r.Module, r.Mode, r.Type, r.Name, i.Index)
			if attrs, ok := decode(i.Attributes).(map[string]any); ok {
				out.Attributes = m.attributes(attrs, i.Sensitive)
			}
			v.Resources = append(v.Resources, out)
		}
	}
	for name, o := range s.Outputs {
		value := decode(o.Value)
		if o.Sensitive && !reveal {
			value = Mask
		}
		v.Outputs = append(v.Outputs, StateOutput{Name: name, Sensitive: o.Sensitive, Value: m.value(value)})
	}
	slices.SortFunc(v.Outputs, func(a, b StateOutput) int { return strings.Compare(a.Name, b.Name) })
	return v, nil
}

// stateAddress is an instance as the engine writes it.
func stateAddress(module, mode, kind, name string, index json.RawMessage) string {
	address := kind + "." + name
	if mode == "data" {
		address = "data." + address
	}
	if module != "" {
		address = module + "." + address
	}
	switch key := decode(index).(type) {
	case string:
		return address + "[" + strings.ReplaceAll(strconv.Quote(key), "${", "$${") + "]"
	case json.Number:
		return address + "[" + key.String() + "]"
	default:
		return address
	}
}

// providerName is the source in provider["SOURCE"].
func providerName(p string) string {
	_, source, found := strings.Cut(p, `["`)
	if !found {
		return p
	}
	source, _, _ = strings.Cut(source, `"]`)
	return source
}

// stateMask hides what is sensitive in a state.
type stateMask struct {
	reveal bool
	hide   *Redactor
}

// telling are names of attributes that say what they hold.
var telling = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)(password|passwd|secret|token|private_key|credential|connection_string|access_key|api_key)`)
})

func (m stateMask) attributes(attrs map[string]any, sensitive [][]pathStep) map[string]any {
	if m.reveal {
		return attrs
	}
	for _, path := range sensitive {
		if len(path) == 0 {
			return map[string]any{} // all of it is
		}
		cover(attrs, path)
	}
	out := map[string]any{}
	for name, v := range attrs {
		if v != nil && v != "" && telling().MatchString(name) {
			v = Mask
		}
		out[name] = m.value(v)
	}
	return out
}

// cover masks what a path leads to, or as much of the way as it can be followed.
func cover(in any, path []pathStep) {
	step, last := path[0], len(path) == 1
	switch in := in.(type) {
	case map[string]any:
		key, _ := step.key().(string)
		next, ok := in[key]
		switch {
		case !ok:
			for k := range in {
				in[k] = Mask
			}
		case last || !container(next):
			in[key] = Mask
		default:
			cover(next, path[1:])
		}
	case []any:
		n, ok := step.key().(json.Number)
		i, err := n.Int64()
		if !ok || err != nil || i < 0 || int(i) >= len(in) {
			for k := range in {
				in[k] = Mask
			}
			return
		}
		if last || !container(in[i]) {
			in[i] = Mask
			return
		}
		cover(in[i], path[1:])
	}
}

func container(v any) bool {
	switch v.(type) {
	case map[string]any, []any:
		return true
	default:
		return false
	}
}

// value hides known secrets wherever they stand.
func (m stateMask) value(v any) any {
	if m.reveal {
		return v
	}
	switch v := v.(type) {
	case string:
		return m.hide.String(v)
	case map[string]any:
		out := map[string]any{}
		for name, item := range v {
			if item != nil && item != "" && telling().MatchString(name) {
				item = Mask
			}
			out[m.hide.String(name)] = m.value(item)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = m.value(item)
		}
		return out
	default:
		return v
	}
}

// StateDifference says how the resources of one state differ from another's.
type StateDifference struct {
	Gone    []string `json:"gone,omitempty"`    // in the first only
	Added   []string `json:"added,omitempty"`   // in the second only
	Changed []string `json:"changed,omitempty"` // in both, with other attributes
}

// DiffStates compares the managed resource instances of two states, of which
// the first may be unreadable: then it counts as empty.
func DiffStates(before, after []byte) (StateDifference, error) {
	var d StateDifference
	a, err := ViewState(before, true)
	if err != nil {
		a = StateView{}
	}
	b, err := ViewState(after, true)
	if err != nil {
		return d, err
	}
	was := a.managed()
	for address, now := range b.managed() {
		old, ok := was[address]
		switch {
		case !ok:
			d.Added = append(d.Added, address)
		case old != now:
			d.Changed = append(d.Changed, address)
		}
		delete(was, address)
	}
	for address := range was {
		d.Gone = append(d.Gone, address)
	}
	for _, list := range [][]string{d.Gone, d.Added, d.Changed} {
		slices.Sort(list)
	}
	return d, nil
}

// managed is a text of the attributes of each managed instance.
func (v StateView) managed() map[string]string {
	out := map[string]string{}
	for _, r := range v.Resources {
		if r.Mode != "managed" {
			continue
		}
		b, err := json.Marshal(r.Attributes) // sorted, and made of what JSON knows
		if err != nil {
			b = nil
		}
		address := r.Address
		if r.Deposed != "" {
			address += " (deposed object " + r.Deposed + ")"
		}
		out[address] = string(b)
	}
	return out
}
