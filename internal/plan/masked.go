package plan

import (
	"encoding/json"
	"unicode/utf8"
)

// Bounds of a masked document. It is for pages and for policies; the engine
// gets the saved plan.
const (
	maxMasked = 16 << 20 // of the whole
	maxString = 64 << 10 // of one string
)

// masker makes the sections of a masked document.
type masker struct{ *Document }

// sections are the parts of a document in the order in which they are kept
// when not all of it fits. What comes late can be worked out from what comes
// early, or matters less.
var sections = []struct {
	name string
	mask func(masker, json.RawMessage) any
}{
	{"format_version", masker.sectionPlain},
	{"terraform_version", masker.sectionPlain},
	{"errored", masker.sectionPlain},
	{"complete", masker.sectionPlain},
	{"timestamp", masker.sectionPlain},
	{"output_changes", masker.sectionOutputs},
	{"resource_changes", masker.sectionResources},
	{"resource_drift", masker.sectionResources},
	{"deferred_changes", masker.sectionDeferred},
	{"action_invocations", masker.sectionInvocations},
	{"variables", masker.sectionVariables},
	{"checks", masker.sectionPlain},
	{"relevant_attributes", masker.sectionPlain},
	{"configuration", masker.sectionConfiguration},
	{"planned_values", masker.sectionState},
	{"prior_state", masker.sectionState},
}

// Masked returns the document as JSON without anything sensitive in it, and
// not larger than 16 MiB. What the engine marks as sensitive is replaced by
// Mask, and so is every other occurrence of the same text; constants in the
// configuration are, since a literal password in a provider block carries no
// mark. Sections that are not known here are left out. If something was left
// out for its size, "truncated" lists the sections.
func (d *Document) Masked() []byte { return d.maskedWithin(maxMasked) }

func (d *Document) maskedWithin(limit int) []byte {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(d.raw, &all); err != nil {
		return []byte("{}") // it was read before
	}
	out := map[string]json.RawMessage{}
	var truncated []string
	room := limit - 1024 // for what stands between and around the sections
	for _, s := range sections {
		raw, ok := all[s.name]
		if !ok {
			continue
		}
		// A section that is far too large is not worth decoding. Masking only
		// ever grows it by the length of the mask.
		fits := len(raw) <= 4*limit
		var masked json.RawMessage
		if fits {
			masked = encode(s.mask(masker{d}, raw))
			fits = len(masked) <= room
		}
		if !fits && s.name == "resource_changes" {
			masked = masker{d}.outline(room)
			fits = len(masked) <= room
			truncated = append(truncated, s.name)
		} else if !fits {
			truncated = append(truncated, s.name)
		}
		if fits {
			out[s.name] = masked
			room -= len(masked) + len(s.name) + 4
		}
	}
	if truncated != nil {
		out["truncated"] = encode(truncated)
	}
	return encode(out)
}

// outline is what is left of the changes when they do not fit: which instances
// change and how, as many as there is room for.
func (d masker) outline(room int) json.RawMessage {
	list := []json.RawMessage{}
	room -= 2
	for _, r := range d.wire.Changes {
		if r.action() == NoOp {
			continue
		}
		item := encode(map[string]any{
			"address": r.Address, "mode": r.Mode, "type": r.Type, "name": r.Name,
			"provider_name": r.Provider, "action_reason": r.Reason,
			"change": map[string]any{"actions": r.Delta.Actions},
		})
		if room -= len(item) + 1; room < 0 {
			break
		}
		list = append(list, item)
	}
	return encode(list)
}

func (d masker) sectionPlain(raw json.RawMessage) any {
	return shortened(d.masked(decode(raw)))
}

func (d masker) sectionVariables(raw json.RawMessage) any {
	vars, _ := decode(raw).(map[string]any)
	for name, v := range vars {
		if d.vars[name] {
			vars[name] = d.masked(v)
		} else {
			vars[name] = map[string]any{"value": Mask}
		}
	}
	return shortened(vars)
}

func (d masker) sectionOutputs(raw json.RawMessage) any {
	outputs, _ := decode(raw).(map[string]any)
	for name, change := range outputs {
		outputs[name] = d.maskedChange(change)
	}
	return shortened(outputs)
}

// sectionResources masks one change after the other, so that only one at a
// time exists as more than bytes.
func (d masker) sectionResources(raw json.RawMessage) any {
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil
	}
	for i, item := range list {
		list[i] = encode(shortened(d.maskedResource(decode(item))))
	}
	return list
}

func (d masker) sectionDeferred(raw json.RawMessage) any {
	list, _ := decode(raw).([]any)
	for _, item := range list {
		if m, ok := item.(map[string]any); ok {
			m["resource_change"] = d.maskedResource(m["resource_change"])
		}
	}
	return shortened(list)
}

func (d masker) sectionInvocations(raw json.RawMessage) any {
	list, _ := decode(raw).([]any)
	for _, item := range list {
		if m, ok := item.(map[string]any); ok {
			m["config_values"] = d.masked(m["config_values"], m["config_sensitive"])
		}
	}
	return shortened(list)
}

func (d masker) maskedResource(v any) any {
	if m, ok := v.(map[string]any); ok {
		m["change"] = d.maskedChange(m["change"])
	}
	return v
}

func (d masker) maskedChange(v any) any {
	m, ok := v.(map[string]any)
	if !ok {
		return v
	}
	// Either side's marks hide both: a value that is sensitive now was so before
	// it was marked.
	before, after := m["before_sensitive"], m["after_sensitive"]
	if paths := d.concealed(m); paths != nil {
		m["sensitive_changes"] = paths
	}
	for key, value := range m {
		switch key {
		case "before", "after":
			if value != nil {
				m[key] = d.masked(value, before, after)
			}
		case "generated_config", "importing", "before_identity", "after_identity":
			m[key] = d.masked(value)
		}
	}
	return m
}

// sectionState masks values as they stand in a state: outputs with a flag,
// resource instances with a tree of marks, modules in modules.
func (d masker) sectionState(raw json.RawMessage) any {
	return shortened(d.maskedState(decode(raw)))
}

func (d masker) maskedState(v any) any {
	object, _ := v.(map[string]any)
	if object["sensitive"] == true {
		object["value"] = Mask
	}
	marks, isInstance := object["sensitive_values"]
	return rewrite(v, func(key, item any) any {
		switch {
		case isInstance && key == "values":
			return d.masked(item, marks)
		case key == "value":
			return d.masked(item)
		default:
			return d.maskedState(item)
		}
	})
}

func (d masker) sectionConfiguration(raw json.RawMessage) any {
	return shortened(d.maskedConfiguration(decode(raw)))
}

func (d masker) maskedConfiguration(v any) any {
	if text, ok := v.(string); ok {
		return d.hide.String(text)
	}
	object, _ := v.(map[string]any)
	return rewrite(v, func(key, item any) any {
		if key == "constant_value" || key == "default" && object["sensitive"] == true {
			return Mask
		}
		return d.maskedConfiguration(item)
	})
}

// shortened cuts strings that are too long to read.
func shortened(v any) any {
	if text, ok := v.(string); ok {
		return shorten(text, maxString)
	}
	return rewrite(v, func(_, item any) any { return shortened(item) })
}

// shorten cuts s to about n bytes, at a rune, and says how much is missing.
func shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "… (" + size(len(s)-n) + " more)"
}
