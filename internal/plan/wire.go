package plan

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/terrier-iac/terrier/internal/stack"
)

// wireEvent is an event as it stands in the stream. The payload of an outputs
// event is decoded apart: other types use the same key for other things.
type wireEvent struct {
	Level   string    `json:"@level"`
	Message string    `json:"@message"`
	At      time.Time `json:"@timestamp"`
	Type    string    `json:"type"`

	Tofu       string          `json:"tofu"`
	Terraform  string          `json:"terraform"`
	UI         string          `json:"ui"`
	State      json.RawMessage `json:"state"`
	Diagnostic wireDiagnostic  `json:"diagnostic"`
	Change     wireChange      `json:"change"`
	Changes    wireSummary     `json:"changes"`
	Hook       wireHook        `json:"hook"`
}

type wireDiagnostic struct {
	Severity string `json:"severity"`
	Summary  string `json:"summary"`
	Detail   string `json:"detail"`
	Address  string `json:"address"`
	Range    *struct {
		Filename string `json:"filename"`
		Start    struct {
			Line int `json:"line"`
		} `json:"start"`
	} `json:"range"`
	Snippet *struct {
		Context string `json:"context"` // the block of the module that it is in
		Code    string `json:"code"`
	} `json:"snippet"`
}

type wireChange struct {
	Resource Resource  `json:"resource"`
	Previous *Resource `json:"previous_resource"`
	Action   Action    `json:"action"`
	Reason   string    `json:"reason"`
	Import   *struct {
		ID       string          `json:"id"`
		Identity json.RawMessage `json:"identity"`
	} `json:"importing"`
}

type wireSummary struct {
	Add       int    `json:"add"`
	Change    int    `json:"change"`
	Import    int    `json:"import"`
	Remove    int    `json:"remove"`
	Forget    int    `json:"forget"`
	Operation string `json:"operation"`
}

type wireHook struct {
	Resource    Resource `json:"resource"`
	Action      Action   `json:"action"`
	IDKey       string   `json:"id_key"`
	IDValue     string   `json:"id_value"`
	Elapsed     float64  `json:"elapsed_seconds"`
	Provisioner string   `json:"provisioner"`
	Output      string   `json:"output"`
}

func (e wireEvent) version(h Head) Version {
	if e.Terraform != "" {
		return Version{Head: h, Engine: "terraform", Version: e.Terraform, UI: e.UI}
	}
	return Version{Head: h, Engine: "tofu", Version: e.Tofu, UI: e.UI}
}

func (e wireEvent) planned(h Head) Planned {
	p := Planned{Head: h, Resource: e.Change.Resource, Action: streamAction(e.Change.Action), Reason: e.Change.Reason}
	if e.Change.Previous != nil {
		p.Previous = e.Change.Previous.Address
	}
	if i := e.Change.Import; i != nil {
		p.Import = i.ID
		if p.Import == "" {
			p.Import = string(i.Identity)
		}
	}
	return p
}

func (e wireEvent) summary(h Head) Summary {
	c := e.Changes
	return Summary{Head: h, Operation: c.Operation, Changes: stack.Changes{
		Add: c.Add, Change: c.Change, Destroy: c.Remove, Import: c.Import, Forget: c.Forget,
	}}
}

func (e wireEvent) outputs(line []byte, h Head) (Event, error) {
	var payload struct {
		Outputs map[string]OutputValue `json:"outputs"`
	}
	if err := json.Unmarshal(line, &payload); err != nil {
		return nil, fmt.Errorf("parsing outputs event: %w", err)
	}
	for name, o := range payload.Outputs {
		o.Action = streamAction(o.Action)
		payload.Outputs[name] = o
	}
	return OutputValues{Head: h, Outputs: payload.Outputs}, nil
}

func (d wireDiagnostic) diagnostic() Diagnostic {
	out := Diagnostic{Severity: d.Severity, Summary: d.Summary, Detail: d.Detail, Address: d.Address}
	if d.Range != nil {
		out.File, out.Line = d.Range.Filename, d.Range.Start.Line
	}
	if d.Snippet != nil {
		out.Snippet = d.Snippet.Code
	}
	return out
}
