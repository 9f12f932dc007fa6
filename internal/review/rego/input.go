package rego

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/terrier-iac/terrier/internal/fault"
)

// inputBytes bounds what one policy is shown of one plan.
const inputBytes = 48 << 20

// Input is what policies are shown of one plan. It is made once for all of them. One
// goroutine at a time uses it.
type Input struct {
	Now       time.Time // what time.now_ns gives
	truncated []string  // sections of the plan that were too large to keep

	document map[string]any
	object   map[string]any // the object of the stack, with status.tfplan; nil if there is none
	plan     ast.Value
}

// NewInput takes the document of policies, from package document, and the object of the
// stack, nil if there is none.
func NewInput(document map[string]any, object map[string]any, now time.Time) (*Input, error) {
	if n := weight(document); n > inputBytes {
		return nil, fault.New(fault.Invalid, "PolicyInputTooLarge", fmt.Errorf("the plan is %d MiB as the input of policies, more than %d MiB: split the stack", n>>20, inputBytes>>20))
	}
	in := &Input{Now: now, document: maps.Clone(document), object: object}
	plan, _ := document["plan"].(map[string]any)
	in.plan = ast.LazyObject(plan)
	in.document["plan"] = in.plan
	for _, s := range list(plan["truncated"]) {
		if section, ok := s.(string); ok {
			in.truncated = append(in.truncated, section)
		}
	}
	return in, nil
}

// weight is about how many bytes JSON values are as a text.
func weight(v any) int {
	const each = 4 // what stands around a value
	switch v := v.(type) {
	case string:
		return each + len(v)
	case []any:
		n := each
		for _, item := range v {
			n += weight(item)
		}
		return n
	case map[string]any:
		n := each
		for name, item := range v {
			n += each + len(name) + weight(item)
		}
		return n
	default:
		return each
	}
}

func list(v any) []any {
	l, _ := v.([]any)
	return l
}

// missing lists the sections that the plan was too large to keep, and that a policy may
// read.
func (in *Input) missing(s *Set) []string {
	var out []string
	for _, section := range in.truncated {
		// The changes of a plan are in the input under a second name.
		if s.Reads(section) || section == "resource_changes" && s.source.Format != Weave && s.Reads("changes") {
			out = append(out, section)
		}
	}
	slices.Sort(out)
	return out
}

// shown is the input of one policy.
func (in *Input) shown(f Format, parameters any) ast.Value {
	switch f {
	case Conftest:
		return in.plan
	case Weave:
		if parameters == nil {
			parameters = map[string]any{}
		}
		object := maps.Clone(in.object)
		if object == nil {
			object = map[string]any{}
		}
		object["status"] = map[string]any{"tfplan": in.plan}
		return ast.LazyObject(map[string]any{"review": reviewed(object), "parameters": parameters})
	default:
		if parameters == nil {
			parameters = map[string]any{}
		}
		doc := maps.Clone(in.document)
		doc["parameters"] = parameters
		return ast.LazyObject(doc)
	}
}

// reviewed is the object as the request of an admission review has it.
func reviewed(object map[string]any) map[string]any {
	meta, _ := object["metadata"].(map[string]any)
	version, _ := object["apiVersion"].(string)
	group, version, grouped := strings.Cut(version, "/")
	if !grouped {
		group, version = "", group
	}
	return map[string]any{
		"uid": "", "name": meta["name"], "namespace": meta["namespace"], "operation": "", "userInfo": map[string]any{},
		"kind":   map[string]any{"group": group, "version": version, "kind": object["kind"]},
		"object": object,
	}
}
