package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/terrier-iac/terrier/internal/stack"
)

// Event is one line of an engine's event stream. The types that implement it
// are all in this file, but for Before; what is not known to them is an Other.
//
//sumtype:decl
type Event interface{ head() Head }

// Head is what every event has.
type Head struct {
	Level   string // info, warn, error
	Message string // a line for people
	At      time.Time
}

func (h Head) head() Head { return h }

// HeadOf returns what every event has of e.
func HeadOf(e Event) Head { return e.head() }

// Version is the first event of a stream.
type Version struct {
	Head
	Engine  string // tofu or terraform
	Version string
	UI      string // of the stream's format
}

// Log is a line for people without further structure.
type Log struct {
	Head
	State json.RawMessage // the emergency dump of a state that could not be saved; else empty
}

// Diagnosed is an error or a warning.
type Diagnosed struct {
	Head
	Diagnostic Diagnostic
	CheckBlock bool // a warning that a check block may have caused
}

// Planned is one change that the engine plans, and Drifted one that was made
// outside of it since the last run.
type Planned struct {
	Head
	Resource Resource
	Previous string // the address it is moved from
	Action   Action
	Reason   string // as the engine names it: tainted, cannot_update, delete_because_…
	Import   string // the id it is imported by
}

// Drifted is a change that was found, not planned.
type Drifted struct {
	Head
	Resource Resource
	Action   Action
}

// Summary counts a plan or a finished apply.
type Summary struct {
	Head
	Operation string // plan, apply or destroy
	Changes   stack.Changes
}

// Stage is how far an operation on one resource instance is.
type Stage string

const (
	Started    Stage = "started"
	Progressed Stage = "progressed"
	Completed  Stage = "completed"
	Errored    Stage = "errored"
)

// Applied is a stage of one change being made. A Completed one is the proof that a
// resource exists, or no longer does.
type Applied struct {
	Head
	Stage    Stage
	Resource Resource
	Action   Action
	IDKey    string // the attribute that identifies the object, mostly "id"
	IDValue  string
	Elapsed  time.Duration
}

// Refreshed is a stage of one instance being read.
type Refreshed struct {
	Head
	Stage    Stage
	Resource Resource
	IDKey    string
	IDValue  string
}

// Provisioned is a stage of a running provisioner.
type Provisioned struct {
	Head
	Stage       Stage
	Resource    Resource
	Provisioner string
	Output      string
}

// OutputValues are the outputs: before an apply what happens to them, after it
// what they are.
type OutputValues struct {
	Head
	Outputs map[string]OutputValue
}

// Other is an event of a type that has no type here.
type Other struct {
	Head
	Type string
	Raw  json.RawMessage
}

// Resource names a resource instance.
type Resource struct {
	Address  string          `json:"addr"`
	Module   string          `json:"module,omitempty"`
	Type     string          `json:"resource_type,omitempty"`
	Name     string          `json:"resource_name,omitempty"`
	Key      json.RawMessage `json:"resource_key,omitempty"` // number, string or null
	Provider string          `json:"implied_provider,omitempty"`
}

// OutputValue is one output as the engine gives it.
type OutputValue struct {
	Sensitive bool            `json:"sensitive"`
	Type      json.RawMessage `json:"type,omitempty"`  // cty type as JSON
	Value     json.RawMessage `json:"value,omitempty"` // absent in an event when sensitive
	Action    Action          `json:"action,omitempty"`
}

var errNotEvent = errors.New("not an event")

// ParseEvent reads one line of the stream of an engine's -json option. An
// error means that the line is no event but text for people: engines, their
// plugins and their wrappers print such lines between events.
func ParseEvent(line []byte) (Event, error) {
	var e wireEvent
	if err := json.Unmarshal(line, &e); err != nil {
		return nil, fmt.Errorf("parsing event: %w", err)
	}
	if e.Message == "" && e.Type == "" {
		return nil, errNotEvent
	}
	h := Head{Level: e.Level, Message: e.Message, At: e.At}
	switch e.Type {
	case "version":
		return e.version(h), nil
	case "", "log", "output":
		return Log{Head: h, State: e.State}, nil
	case "diagnostic":
		return Diagnosed{Head: h, Diagnostic: e.Diagnostic.diagnostic(), CheckBlock: e.Diagnostic.ofCheckBlock()}, nil
	case "planned_change":
		return e.planned(h), nil
	case "resource_drift":
		return Drifted{Head: h, Resource: e.Change.Resource, Action: streamAction(e.Change.Action)}, nil
	case "change_summary":
		return e.summary(h), nil
	case "outputs":
		return e.outputs(line, h)
	case beforeType:
		return e.before(line, h)
	}
	if stage, ok := applyStages[e.Type]; ok {
		return Applied{Head: h, Stage: stage, Resource: e.Hook.Resource, Action: streamAction(e.Hook.Action),
			IDKey: e.Hook.IDKey, IDValue: e.Hook.IDValue, Elapsed: seconds(e.Hook.Elapsed)}, nil
	}
	if stage, ok := refreshStages[e.Type]; ok {
		return Refreshed{Head: h, Stage: stage, Resource: e.Hook.Resource, IDKey: e.Hook.IDKey, IDValue: e.Hook.IDValue}, nil
	}
	if stage, ok := provisionStages[e.Type]; ok {
		return Provisioned{Head: h, Stage: stage, Resource: e.Hook.Resource,
			Provisioner: e.Hook.Provisioner, Output: e.Hook.Output}, nil
	}
	return Other{Head: h, Type: e.Type, Raw: append(json.RawMessage(nil), line...)}, nil
}

var applyStages = map[string]Stage{
	"apply_start":    Started,
	"apply_progress": Progressed,
	"apply_complete": Completed,
	"apply_errored":  Errored,
}

var refreshStages = map[string]Stage{
	"refresh_start":    Started,
	"refresh_complete": Completed,
}

var provisionStages = map[string]Stage{
	"provision_start":    Started,
	"provision_progress": Progressed,
	"provision_complete": Completed,
	"provision_errored":  Errored,
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// streamAction translates the stream's words, which differ from the document's
// in two places.
func streamAction(a Action) Action {
	switch a {
	case "noop":
		return NoOp
	case "remove":
		return Forget
	default:
		return a
	}
}
