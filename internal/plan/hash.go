package plan

import (
	"bytes"
	"encoding/json"
	"slices"
)

// hashed is what the hash of a plan covers of one resource instance.
type hashed struct {
	Address, Previous, Deposed, Mode, Type, Provider string

	Actions                                                 []Action
	Before, After, Unknown, BeforeSensitive, AfterSensitive any
	ReplacePaths                                            []string
	Import                                                  any
	Generated                                               string
}

// Hash returns a digest of what the plan would do. Two plans of the same thing
// have one hash, whenever they were made and in whatever order the engine
// wrote them down: what does not change is left out, and so are the time, the
// variables, the versions of the format and why the engine says it does it.
func (d *Document) Hash() string {
	// One digest for each change, so that a plan of thousands is never decoded
	// as a whole; each covers its address, so sorting them loses nothing.
	var resources []string
	for _, r := range d.wire.Changes {
		if r.action() != NoOp {
			resources = append(resources, sum(encode(r.hashed())))
		}
	}
	slices.Sort(resources)
	outputs := map[string]string{}
	for name, o := range d.wire.Outputs {
		if action(o.Actions) != NoOp {
			outputs[name] = sum(encode(o.hashed()))
		}
	}
	return sum(encode(map[string]any{
		"resources":   resources,
		"outputs":     outputs,
		"deferred":    sorted(d.wire.Deferred),
		"invocations": sorted(d.wire.Invocations),
		"errored":     d.wire.Errored,
	}))
}

func (r wireResource) hashed() hashed {
	h := r.Delta.hashed()
	h.Address, h.Previous, h.Deposed, h.Mode, h.Type, h.Provider = r.Address, r.Previous, r.Deposed, r.Mode, r.Type, r.Provider
	return h
}

func (c wireDelta) hashed() hashed {
	h := hashed{
		Actions: c.Actions,
		Before:  decode(c.Before), After: decode(c.After), Unknown: decode(c.Unknown),
		BeforeSensitive: decode(c.BeforeSensitive), AfterSensitive: decode(c.AfterSensitive),
		Generated: c.Generated,
	}
	for _, p := range c.ReplacePaths { // a set to the engine, so its order means nothing
		h.ReplacePaths = append(h.ReplacePaths, string(encode(p)))
	}
	slices.Sort(h.ReplacePaths)
	if c.Importing != nil {
		h.Import = []any{c.Importing.ID, decode(c.Importing.Identity)}
	}
	return h
}

func sorted(list []json.RawMessage) []string {
	var out []string
	for _, raw := range list {
		out = append(out, string(encode(decode(raw))))
	}
	slices.Sort(out)
	return out
}

// decode reads one value, numbers exactly. Nothing, and what cannot be read
// after it was part of a document that could, is nil.
func decode(raw json.RawMessage) any {
	switch string(raw) { // most of what stands in a plan; a decoder costs more than it reads
	case "", "null":
		return nil
	case "false":
		return false
	case "true":
		return true
	case "{}":
		return map[string]any{}
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil
	}
	return v
}
