package kube

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// An epoch is as old as the policy that it was seen in before, if nothing but the epoch was
// changed since.
func TestAnEpochThatFollows(t *testing.T) {
	before := stampsRecord{Epoch: "one", Policy: "u/3", Binding: "b/1", Early: true}
	for name, tt := range map[string]struct {
		is      stampsRecord
		before  stampsRecord
		follows bool
	}{
		"another epoch":                {stampsRecord{Epoch: "two", Policy: "u/4", Binding: "b/1"}, before, true},
		"the same epoch":               {stampsRecord{Epoch: "one", Policy: "u/4", Binding: "b/1"}, before, false},
		"after two changes":            {stampsRecord{Epoch: "two", Policy: "u/5", Binding: "b/1"}, before, false},
		"of an earlier version":        {stampsRecord{Epoch: "two", Policy: "u/2", Binding: "b/1"}, before, false},
		"of a policy installed again":  {stampsRecord{Epoch: "two", Policy: "v/4", Binding: "b/1"}, before, false},
		"of a binding installed again": {stampsRecord{Epoch: "two", Policy: "u/4", Binding: "c/1"}, before, false},
		"the first that was ever seen": {stampsRecord{Epoch: "two", Policy: "u/4", Binding: "b/1"}, stampsRecord{}, false},
		"of versions without a form":   {stampsRecord{Epoch: "two", Binding: "b/1"}, stampsRecord{Epoch: "one", Binding: "b/1"}, false},
	} {
		if got := tt.is.follows(tt.before); got != tt.follows {
			t.Errorf("%s: follows() = %t, want %t", name, got, tt.follows)
		}
	}
}

// What an API server adds to a policy by itself leaves nothing out.
func TestWhatNarrowsAPolicy(t *testing.T) {
	match := func(field string, v any) map[string]any {
		return map[string]any{"namespaceSelector": map[string]any{}, "objectSelector": map[string]any{}, "matchPolicy": "Equivalent", field: v}
	}
	labels := map[string]any{"matchLabels": map[string]any{"a": "b"}}
	rule := func(field string, v any) []any { return []any{map[string]any{"scope": "*", field: v}} }
	for name, tt := range map[string]struct {
		spec map[string]any
		want string
	}{
		"as it is installed":            {map[string]any{"matchConstraints": match("resourceRules", rule("scope", "*"))}, ""},
		"of namespaced objects":         {map[string]any{"matchConstraints": match("resourceRules", rule("scope", "Namespaced"))}, ""},
		"of objects of the cluster":     {map[string]any{"matchConstraints": match("resourceRules", rule("scope", "Cluster"))}, "spec.matchConstraints.resourceRules.scope"},
		"of some names":                 {map[string]any{"matchConstraints": match("resourceRules", rule("resourceNames", []any{"net"}))}, "spec.matchConstraints.resourceRules.resourceNames"},
		"with a condition":              {map[string]any{"matchConditions": []any{map[string]any{"name": "x"}}}, "spec.matchConditions"},
		"without conditions":            {map[string]any{"matchConditions": []any{}}, ""},
		"of objects with a label":       {map[string]any{"matchConstraints": match("objectSelector", labels)}, "spec.matchConstraints.objectSelector"},
		"without some resources":        {map[string]any{"matchConstraints": match("excludeResourceRules", rule("resources", []any{"terraforms"}))}, "spec.matchConstraints.excludeResourceRules"},
		"a binding":                     {map[string]any{"policyName": stampsPolicy}, ""},
		"a binding for some namespaces": {map[string]any{"matchResources": match("namespaceSelector", labels)}, "spec.matchResources.namespaceSelector"},
		"a binding for some resources":  {map[string]any{"matchResources": match("resourceRules", rule("resources", []any{"terraforms"}))}, "spec.matchResources.resourceRules"},
		"a binding with a parameter":    {map[string]any{"paramRef": map[string]any{"name": "x"}}, "spec.paramRef"},
	} {
		if got := narrowedBy(&unstructured.Unstructured{Object: map[string]any{"spec": tt.spec}}); got != tt.want {
			t.Errorf("%s: narrowedBy() = %q, want %q", name, got, tt.want)
		}
	}
}
