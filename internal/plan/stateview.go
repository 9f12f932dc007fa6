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
	Masked    string          `json:"masked,omitempty"` // why every value is masked; empty if only secret ones are
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

// Title is the address, and the key of the object where it is deposed: one
// resource may have an object of now and deposed ones.
func (r StateResource) Title() string {
	if r.Deposed == "" {
		return r.Address
	}
	return r.Address + " (deposed object " + r.Deposed + ")"
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

// Showing says what a view of a state shows.
type Showing struct {
	Reveal  bool   // every value in clear
	Secrets Prints // of values that came from Secrets
	Unknown string // why it is not known which did; then every value is masked
}

// ViewState reads a state. Unless values are revealed, what is secret is masked
// wherever it stands: what the state marks, what came from a Secret, and attributes
// whose name says it, since older engines did not write down what their providers'
// schemas mark.
func ViewState(state []byte, show Showing) (StateView, error) {
	v := StateView{Resources: []StateResource{}, Outputs: []StateOutput{}}
	if len(state) == 0 {
		return v, nil
	}
	var s viewedState
	if err := json.Unmarshal(state, &s); err != nil {
		return v, fmt.Errorf("reading the state: %w", err)
	}
	v.Lineage, v.Serial, v.Engine, v.Sealed = s.Lineage, s.Serial, s.Engine, s.Encrypted != nil
	if !show.Reveal {
		v.Masked = show.Unknown
	}
	var known inventoryState
	if err := json.Unmarshal(state, &known); err != nil {
		return v, fmt.Errorf("reading the state: %w", err)
	}
	m := stateMask{Showing: show, hide: NewRedactor(known.secrets())}
	for _, r := range s.Resources {
		for _, i := range r.Instances {
			out := StateResource{Mode: r.Mode, Provider: providerName(r.Provider), Tainted: i.Status == "tainted", Deposed: i.Deposed}
			out.Address = m.text(stateAddress(r.Module, r.Mode, r.Type, r.Name, i.Index))
			if attrs, ok := i.attributes().(map[string]any); ok {
				out.Attributes = m.attributes(attrs, i.Sensitive)
			}
			v.Resources = append(v.Resources, out)
		}
	}
	for name, o := range s.Outputs {
		v.Outputs = append(v.Outputs, m.output(name, o.Value, o.Sensitive))
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

// stateMask hides what is secret in a state.
type stateMask struct {
	Showing
	hide *Redactor // of what the state marks
}

// output is an output that holds a secret value, if only in a part of it, as
// sensitive as one that the module declares so.
func (m stateMask) output(name string, raw json.RawMessage, sensitive bool) StateOutput {
	out := StateOutput{Name: name, Sensitive: sensitive || m.Secrets.Holds(raw), Value: decode(raw)}
	switch {
	case m.Reveal:
	case out.Sensitive:
		out.Value = Mask
	default:
		out.Value = m.value(out.Value)
	}
	return out
}

// text hides known secrets in a text that is no value.
func (m stateMask) text(s string) string {
	if m.Reveal {
		return s
	}
	return m.Secrets.String(m.hide.String(s))
}

// telling are names of attributes that say what they hold.
var telling = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)(password|passwd|secret|token|private_key|credential|connection_string|conn_str|passphrase|access_key|api_key)`)
})

// Telling reports whether the name of an attribute says that it holds a secret.
func Telling(name string) bool { return telling().MatchString(name) }

// MaskNamed replaces what stands under names that say that they hold a secret by Mask,
// in a value out of JSON, and says how many. The name may be the key of a map, or stand
// beside the value, as in {name: PASSWORD, value: …}. Secrets in URLs are replaced, too.
// It changes maps and lists in place.
func MaskNamed(v any) (masked any, n int) {
	return maskNamed(v, Telling)
}

// MaskURLsIn is MaskURLs for all texts of a value out of JSON.
func MaskURLsIn(v any) (masked any, n int) {
	return maskNamed(v, func(string) bool { return false })
}

func maskNamed(v any, tells func(name string) bool) (masked any, n int) {
	switch v := v.(type) {
	case string:
		return MaskURLs(v)
	case map[string]any:
		name, _ := v["name"].(string)
		key, _ := v["key"].(string)
		beside := tells(name) || tells(key)
		for name, item := range v {
			if item != nil && item != "" && item != Mask && item != true && item != false && (tells(name) || beside && name == "value") {
				v[name] = Mask
				n++
				continue
			}
			var more int
			v[name], more = maskNamed(item, tells)
			n += more
		}
	case []any:
		for i, item := range v {
			var more int
			v[i], more = maskNamed(item, tells)
			n += more
		}
	}
	return v, n
}

func (m stateMask) attributes(attrs map[string]any, sensitive [][]pathStep) map[string]any {
	if m.Reveal {
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
	if m.Unknown != "" {
		return unreadable(v)
	}
	return m.Secrets.hidden(m.marked(v))
}

// unreadable is v with nothing to read but its shape.
func unreadable(v any) any {
	switch v := v.(type) {
	case nil, bool:
		return v
	default:
		return Mask
	}
}

// marked hides what the state marks, and what the names of attributes say.
func (m stateMask) marked(v any) any {
	switch v := v.(type) {
	case string:
		return m.hide.String(v)
	case map[string]any:
		out := map[string]any{}
		for name, item := range v {
			if item != nil && item != "" && telling().MatchString(name) {
				item = Mask
			}
			out[m.hide.String(name)] = m.marked(item)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = m.marked(item)
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
	a, err := ViewState(before, Showing{Reveal: true})
	if err != nil {
		a = StateView{}
	}
	b, err := ViewState(after, Showing{Reveal: true})
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
		out[r.Title()] = string(b)
	}
	return out
}
