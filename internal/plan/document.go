package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Document is a saved plan as the engine's "show -json" describes it.
type Document struct {
	raw    json.RawMessage
	wire   wireDocument
	hide   *Redactor       // knows the values that the document marks as sensitive
	secret []string        // those values
	vars   map[string]bool // which variables of the root module may be shown
}

// wireDocument is the part of the document that is read here. Values stay as
// bytes until they are asked for: a document may be tens of megabytes.
type wireDocument struct {
	FormatVersion string               `json:"format_version"`
	EngineVersion string               `json:"terraform_version"`
	Errored       bool                 `json:"errored"`
	Changes       []wireResource       `json:"resource_changes"`
	Drift         []wireResource       `json:"resource_drift"`
	Truncated     []string             `json:"truncated"` // of a masked document
	Deferred      []json.RawMessage    `json:"deferred_changes"`
	Invocations   []json.RawMessage    `json:"action_invocations"`
	Outputs       map[string]wireDelta `json:"output_changes"`
	CheckBlocks   []wireCheck          `json:"checks"`
	Variables     map[string]struct {
		Value json.RawMessage `json:"value"`
	} `json:"variables"`
	Configuration struct {
		Root struct {
			Variables map[string]struct {
				Sensitive bool `json:"sensitive"`
			} `json:"variables"`
		} `json:"root_module"`
	} `json:"configuration"`
}

type wireResource struct {
	Address  string          `json:"address"`
	Previous string          `json:"previous_address"`
	Module   string          `json:"module_address"`
	Mode     string          `json:"mode"`
	Type     string          `json:"type"`
	Name     string          `json:"name"`
	Key      json.RawMessage `json:"index"`
	Provider string          `json:"provider_name"`
	Deposed  string          `json:"deposed"`
	Reason   string          `json:"action_reason"`
	Delta    wireDelta       `json:"change"`
}

type wireDelta struct {
	Actions         []Action        `json:"actions"`
	Before          json.RawMessage `json:"before"`
	After           json.RawMessage `json:"after"`
	Unknown         json.RawMessage `json:"after_unknown"`
	BeforeSensitive json.RawMessage `json:"before_sensitive"`
	AfterSensitive  json.RawMessage `json:"after_sensitive"`
	ReplacePaths    [][]any         `json:"replace_paths"`
	Importing       *struct {
		ID       string          `json:"id"`
		Identity json.RawMessage `json:"identity"`
	} `json:"importing"`
	Generated string   `json:"generated_config"`
	Concealed []string `json:"sensitive_changes"` // of a masked document; see concealed
}

// ParseDocument reads the output of "show -json" for a saved plan. It keeps
// raw, which must not be changed afterwards.
func ParseDocument(raw []byte) (*Document, error) {
	d := &Document{raw: raw}
	if err := json.Unmarshal(raw, &d.wire); err != nil {
		return nil, fault.New(fault.Invalid, "PlanUnreadable", fmt.Errorf("parsing plan document: %w", err))
	}
	if d.wire.FormatVersion == "" {
		return nil, fault.New(fault.Invalid, "PlanUnreadable", errors.New("parsing plan document: it has no format_version"))
	}
	d.learn()
	return d, nil
}

// learn finds out what must not be seen. The marks alone do not tell: an
// engine forgets those of a computed attribute once it is in the state, so the
// same value stands there a second time without one.
func (d *Document) learn() {
	var found secrets
	for _, list := range [][]wireResource{d.wire.Changes, d.wire.Drift} {
		for _, r := range list {
			found.delta(r.Delta)
		}
	}
	for _, o := range d.wire.Outputs {
		found.delta(o)
	}
	d.vars = map[string]bool{}
	for name, v := range d.wire.Variables {
		declared, known := d.wire.Configuration.Root.Variables[name]
		d.vars[name] = known && !declared.Sensitive
		if known && declared.Sensitive {
			found.value(decode(v.Value), true)
		}
	}
	d.secret = found.list()
	d.hide = NewRedactor(d.secret)
}

// Hides reports whether the value of a variable of the root module must not be shown:
// the module declares it sensitive, or the document does not say. A document that is
// too large has no configuration.
func (d *Document) Hides(variable string) bool {
	declared, known := d.wire.Configuration.Root.Variables[variable]
	return !known || declared.Sensitive
}

// Errored reports whether planning ended in an error; such a plan cannot be
// applied.
func (d *Document) Errored() bool { return d.wire.Errored }

// Truncated lists the sections that were left out, or cut, because the document
// was too large to keep.
func (d *Document) Truncated() []string { return slices.Clone(d.wire.Truncated) }

// Changes counts what the plan would do, as the engine counts it: a
// replacement is one added and one destroyed, reads count for nothing.
func (d *Document) Changes() stack.Changes {
	var c stack.Changes
	for _, r := range d.wire.Changes {
		if r.Delta.Importing != nil {
			c.Import++
		}
		switch r.action() {
		case Move:
			c.Move++
		case Create:
			c.Add++
		case Update:
			c.Change++
		case Replace:
			c.Add++
			c.Destroy++
		case Delete:
			if r.Mode != "data" {
				c.Destroy++
			}
		case Forget:
			if r.Mode != "data" {
				c.Forget++
			}
		case ForgetCreate:
			c.Add++
			c.Forget++
		}
	}
	for _, o := range d.wire.Outputs {
		if action(o.Actions) != NoOp {
			c.Outputs++
		}
	}
	return c
}

// ChangesNothing reports whether the plan changes neither resources nor outputs, and starts
// no action either, which Changes does not count.
func (d *Document) ChangesNothing() bool {
	return d.Changes().None() && len(d.wire.Invocations) == 0 && !d.wire.Errored
}

// Besides reports whether the plan does something that no change says: it defers changes, or
// starts an action.
func (d *Document) Besides() bool { return len(d.wire.Deferred)+len(d.wire.Invocations) > 0 }

// action is what happens to r. A change of address or an import counts only
// when nothing else happens.
func (r wireResource) action() Action {
	a := action(r.Delta.Actions)
	switch {
	case a != NoOp:
		return a
	case r.Delta.Importing != nil:
		return Import
	case r.Previous != "" && r.Previous != r.Address:
		return Move
	default:
		return NoOp
	}
}

// action is the one word for a list of the document's actions.
func action(list []Action) Action {
	switch {
	case len(list) == 0:
		return NoOp
	case len(list) == 1:
		return list[0]
	case slices.Contains(list, Forget):
		return ForgetCreate
	default:
		return Replace
	}
}
