package drift

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/stack"
)

var now = time.Date(2027, 1, 1, 12, 0, 0, 0, time.UTC)

type object = map[string]any

// change is one entry of resource_changes or resource_drift.
func change(address string, before, after object, actions ...any) object {
	kind, name, _ := strings.Cut(address, ".")
	if len(actions) == 0 {
		actions = []any{"update"}
	}
	return object{"address": address, "mode": "managed", "type": kind, "name": name, "provider_name": "registry.opentofu.org/test/world",
		"change": object{"actions": actions, "before": before, "after": after, "after_unknown": object{}, "before_sensitive": false, "after_sensitive": false}}
}

// with sets something of a change.
func with(c object, key string, value any) object {
	c["change"].(object)[key] = value
	return c
}

func document(t interface{ Fatal(...any) }, doc object) *plan.Document {
	doc["format_version"], doc["terraform_version"] = "1.2", "1.12.6"
	raw, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	d, err := plan.ParseDocument(raw)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func rule(attributes ...string) policy.Tolerance {
	return policy.Tolerance{Policy: "ClusterPolicy/noise", Attributes: attributes, Reason: "autoscaling"}
}

func TestJudge(t *testing.T) {
	is, was := object{"name": "a", "size": 5, "tags": object{"a": "1"}}, object{"name": "a", "size": 3, "tags": object{"a": "1"}}
	resized := func() object { return change("world_thing.a", is, was) } // from what is there to what is configured
	outside := change("world_thing.a", was, is)
	ends := func(r policy.Tolerance, at time.Time) policy.Tolerance { r.Until = at; return r }
	for name, tt := range map[string]struct {
		doc        object
		rules      []policy.Tolerance
		configured bool
		attributes int // that may drift
		all        bool
		ended      int
	}{
		"an attribute that a rule names":                     {object{"resource_changes": []any{resized()}}, []policy.Tolerance{rule("size")}, false, 1, true, 0},
		"an attribute that no rule names":                    {object{"resource_changes": []any{resized()}}, []policy.Tolerance{rule("value")}, false, 0, false, 0},
		"a rule of another type":                             {object{"resource_changes": []any{resized()}}, []policy.Tolerance{{Types: []string{"aws_*"}, Attributes: []string{"*"}, Reason: "r"}}, false, 0, false, 0},
		"a rule of another address":                          {object{"resource_changes": []any{resized()}}, []policy.Tolerance{{Addresses: []string{"module.*"}, Attributes: []string{"*"}, Reason: "r"}}, false, 0, false, 0},
		"a rule that has ended":                              {object{"resource_changes": []any{resized()}}, []policy.Tolerance{ends(rule("size"), now)}, false, 0, false, 1},
		"a rule that ends later":                             {object{"resource_changes": []any{resized()}}, []policy.Tolerance{ends(rule("size"), now.Add(time.Second))}, false, 1, true, 0},
		"a rule that counts beside one that has ended":       {object{"resource_changes": []any{resized()}}, []policy.Tolerance{ends(rule("size"), now), rule("size")}, false, 1, true, 0},
		"another attribute besides":                          {object{"resource_changes": []any{change("world_thing.a", is, object{"name": "a", "size": 3, "tags": object{"a": "2"}})}}, []policy.Tolerance{rule("size")}, false, 1, false, 0},
		"another resource besides":                           {object{"resource_changes": []any{resized(), change("world_thing.b", is, object{"name": "b", "size": 5, "tags": object{"a": "1"}})}}, []policy.Tolerance{rule("size")}, false, 1, false, 0},
		"a resource that is missing":                         {object{"resource_changes": []any{resized(), change("world_thing.b", nil, was, "create")}}, []policy.Tolerance{rule("*")}, false, 1, false, 0},
		"a resource that is destroyed":                       {object{"resource_changes": []any{resized(), change("world_thing.b", was, nil, "delete")}}, []policy.Tolerance{rule("*")}, false, 1, false, 0},
		"a replacement":                                      {object{"resource_changes": []any{change("world_thing.a", is, was, "delete", "create")}}, []policy.Tolerance{rule("*")}, false, 1, false, 0},
		"a resource that is forgotten":                       {object{"resource_changes": []any{resized(), change("world_thing.b", was, was, "forget")}}, []policy.Tolerance{rule("*")}, false, 1, false, 0},
		"an output":                                          {object{"resource_changes": []any{resized()}, "output_changes": object{"size": object{"actions": []any{"update"}, "before": 5, "after": 3}}}, []policy.Tolerance{rule("*")}, false, 1, false, 0},
		"a plan that defers changes":                         {object{"resource_changes": []any{resized()}, "deferred_changes": []any{object{"reason": "unknown"}}}, []policy.Tolerance{rule("*")}, false, 1, false, 0},
		"a plan that starts an action":                       {object{"resource_changes": []any{resized()}, "action_invocations": []any{object{}}}, []policy.Tolerance{rule("*")}, false, 1, false, 0},
		"a plan that ended in an error":                      {object{"resource_changes": []any{resized()}, "errored": true}, []policy.Tolerance{rule("*")}, false, 1, false, 0},
		"a document that was cut":                            {object{"resource_changes": []any{resized()}, "truncated": []any{"resource_changes"}}, []policy.Tolerance{rule("*")}, false, 1, false, 0},
		"nothing that changes":                               {object{"resource_changes": []any{change("world_thing.a", was, was, "no-op")}}, []policy.Tolerance{rule("*")}, false, 0, false, 0},
		"a data source that is read":                         {object{"resource_changes": []any{resized(), with(object{"address": "data.world_thing.x", "mode": "data", "type": "world_thing", "change": object{}}, "actions", []any{"read"})}}, []policy.Tolerance{rule("size")}, false, 1, true, 0},
		"a value that the apply makes":                       {object{"resource_changes": []any{with(change("world_thing.a", object{"size": 5, "etag": "x"}, object{"size": 3}), "after_unknown", object{"etag": true})}}, []policy.Tolerance{rule("size")}, false, 1, true, 0},
		"a value that the apply makes, and that drifted":     {object{"resource_changes": []any{with(change("world_thing.a", object{"size": 5, "etag": "x"}, object{"size": 3}), "after_unknown", object{"etag": true})}, "resource_drift": []any{change("world_thing.a", object{"size": 3, "etag": "w"}, object{"size": 5, "etag": "x"})}}, []policy.Tolerance{rule("size")}, false, 1, false, 0},
		"nothing but a value that the apply makes":           {object{"resource_changes": []any{with(change("world_thing.a", object{"etag": "x"}, object{}), "after_unknown", object{"etag": true})}}, []policy.Tolerance{rule("size")}, false, 0, false, 0},
		"a sensitive attribute":                              {object{"resource_changes": []any{with(with(resized(), "before_sensitive", object{"size": true}), "after_sensitive", object{"size": true})}}, []policy.Tolerance{rule("size")}, false, 1, true, 0},
		"changed inputs, and the value of before the drift":  {object{"resource_changes": []any{resized()}, "resource_drift": []any{outside}}, []policy.Tolerance{rule("size")}, true, 1, true, 0},
		"changed inputs, and another value than before":      {object{"resource_changes": []any{change("world_thing.a", is, object{"name": "a", "size": 7, "tags": object{"a": "1"}})}, "resource_drift": []any{outside}}, []policy.Tolerance{rule("size")}, true, 0, false, 0},
		"changed inputs, and nothing that drifted":           {object{"resource_changes": []any{resized()}}, []policy.Tolerance{rule("size")}, true, 0, false, 0},
		"changed inputs, and a sensitive attribute":          {object{"resource_changes": []any{with(with(resized(), "before_sensitive", object{"size": true}), "after_sensitive", object{"size": true})}, "resource_drift": []any{outside}}, []policy.Tolerance{rule("size")}, true, 0, false, 0},
		"a resource that is moved as well":                   {object{"resource_changes": []any{func() object { c := resized(); c["previous_address"] = "world_thing.z"; return c }()}}, []policy.Tolerance{rule("size")}, false, 1, false, 0},
		"a deposed object":                                   {object{"resource_changes": []any{func() object { c := resized(); c["deposed"] = "ab"; return c }()}}, []policy.Tolerance{rule("size")}, false, 1, false, 0},
		"a resource that is imported as well":                {object{"resource_changes": []any{with(resized(), "importing", object{"id": "1"})}}, []policy.Tolerance{rule("size")}, false, 1, false, 0},
		"no rules":                                           {object{"resource_changes": []any{resized()}}, nil, false, 0, false, 0},
		"a tag that a rule names by the map":                 {object{"resource_changes": []any{change("world_thing.a", object{"tags": object{"a": "1", "b c": "2"}}, object{"tags": object{"a": "2", "b c": "3"}})}}, []policy.Tolerance{rule("tags")}, false, 2, true, 0},
		"a tag beside the one that a rule names":             {object{"resource_changes": []any{change("world_thing.a", object{"tags": object{"a": "1", "b c": "2"}}, object{"tags": object{"a": "2", "b c": "3"}})}}, []policy.Tolerance{rule("tags.a")}, false, 1, false, 0},
		"a document of policies in a string, and a part":     {object{"resource_changes": []any{change("world_thing.a", object{"policy": `{"a":1,"b":2}`}, object{"policy": `{"a":1,"b":3}`})}}, []policy.Tolerance{rule("policy")}, false, 1, true, 0},
		"two resources, each with an attribute that may":     {object{"resource_changes": []any{resized(), change("world_thing.b", is, was)}}, []policy.Tolerance{rule("size")}, false, 2, true, 0},
		"an attribute of another rule that has ended":        {object{"resource_changes": []any{change("world_thing.a", is, object{"name": "a", "size": 3, "tags": object{"a": "2"}})}}, []policy.Tolerance{rule("size"), ends(rule("tags"), now.Add(-time.Hour))}, false, 1, false, 1},
		"an update of nothing that shows":                    {object{"resource_changes": []any{change("world_thing.a", was, was)}}, []policy.Tolerance{rule("*")}, false, 0, false, 0},
		"a whole list, of which a rule names one part":       {object{"resource_changes": []any{change("world_thing.a", object{"rule": nil}, object{"rule": []any{}})}}, []policy.Tolerance{rule("rule.port")}, false, 0, false, 0},
		"a part of a list, by its number or without":         {object{"resource_changes": []any{change("world_thing.a", object{"rule": []any{object{"port": 1}}}, object{"rule": []any{object{"port": 2}}})}}, []policy.Tolerance{rule("rule.port")}, false, 1, true, 0},
		"a part of a list, by the name of an attribute only": {object{"resource_changes": []any{change("world_thing.a", object{"rule": []any{object{"port": 1}}}, object{"rule": []any{object{"port": 2}}})}}, []policy.Tolerance{rule("port")}, false, 0, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got := Judge(document(t, tt.doc), tt.rules, tt.configured, now)
			ended := 0
			if got.Tolerated != nil {
				ended = len(got.Tolerated.Ended)
			}
			if got.Tolerated.Total() != tt.attributes || got.All != tt.all || ended != tt.ended {
				t.Errorf("Judge() tolerates %d, all %v, ended %d (%+v); want %d, %v, %d", got.Tolerated.Total(), got.All, ended, got.Tolerated, tt.attributes, tt.all, tt.ended)
			}
		})
	}
}

// What a rule says reaches the status: the attribute, the rule, its reason and its end.
func TestJudgeNamesTheRule(t *testing.T) {
	r := rule("size")
	r.Until = now.Add(time.Hour)
	got := Judge(document(t, object{"resource_changes": []any{change("world_thing.a", object{"size": 5}, object{"size": 3})}}), []policy.Tolerance{r}, false, now)
	want := &stack.ToleratedDrift{Resources: 1, Attributes: 1, Of: []stack.ToleratedAttribute{
		{Address: "world_thing.a", Attribute: "size", Policy: "ClusterPolicy/noise", Reason: "autoscaling", Until: r.Until},
	}}
	if d := cmp.Diff(got.Tolerated, want); d != "" {
		t.Error(d)
	}
}

// Whatever the rules are, a plan is only taken for no drift if each of its changes is an update
// in place whose attributes a rule names that counts.
func TestToleranceHidesNothingElse(t *testing.T) {
	names := []string{"a", "b", "c"}
	rapid.Check(t, func(t *rapid.T) {
		var rules []policy.Tolerance
		for range rapid.IntRange(0, 3).Draw(t, "rules") {
			r := rule(rapid.SampledFrom([]string{"a", "b", "c", "*", "a.x", "d"}).Draw(t, "pattern"))
			if rapid.Bool().Draw(t, "ends") {
				r.Until = now.Add(time.Duration(rapid.IntRange(-1, 1).Draw(t, "until")) * time.Hour)
			}
			if rapid.Bool().Draw(t, "narrow") {
				r.Addresses = []string{rapid.SampledFrom([]string{"t.r0", "t.*", "u.*"}).Draw(t, "addresses")}
			}
			rules = append(rules, r)
		}
		allowed := func(address, attribute string) bool {
			for _, r := range rules {
				matches := len(r.Addresses) == 0 || r.Addresses[0] == address || r.Addresses[0] == "t.*" && strings.HasPrefix(address, "t.")
				if matches && (r.Attributes[0] == attribute || r.Attributes[0] == "*") && (r.Until.IsZero() || r.Until.After(now)) {
					return true
				}
			}
			return false
		}
		var changes []any
		hides := true
		for i := range rapid.IntRange(1, 3).Draw(t, "changes") {
			address := []string{"t.r0", "t.r1", "u.r2"}[i]
			actions := rapid.SampledFrom([][]any{{"update"}, {"update"}, {"update"}, {"create"}, {"delete"}, {"delete", "create"}, {"create", "delete"}, {"forget"}}).Draw(t, "actions")
			before, after, differs := object{}, object{}, 0
			for _, name := range names {
				before[name], after[name] = "x", "x"
				if rapid.Bool().Draw(t, name) {
					after[name] = "y"
					differs++
					hides = hides && allowed(address, name)
				}
			}
			if len(actions) != 1 || actions[0] != "update" || differs == 0 {
				hides = false
			}
			changes = append(changes, change(address, before, after, actions...))
		}
		doc := object{"resource_changes": changes}
		if rapid.IntRange(0, 9).Draw(t, "output") == 0 {
			doc["output_changes"], hides = object{"o": object{"actions": []any{"update"}, "before": 1, "after": 2}}, false
		}
		if got := Judge(document(t, doc), rules, false, now); got.All != hides {
			t.Fatalf("Judge().All = %v, want %v: %v with %+v", got.All, hides, doc, rules)
		}
	})
}
