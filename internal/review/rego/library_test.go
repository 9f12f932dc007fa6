package rego

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func filesOf(files map[string]string) fstest.MapFS {
	out := fstest.MapFS{}
	for name, text := range files {
		out[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return out
}

// Which directories are policies of their own.
func TestLibraries(t *testing.T) {
	const of, other = "package terrier\n", "package lib\n"
	for name, tt := range map[string]struct {
		files  map[string]string
		format Format
		want   []string
	}{
		"one policy":                          {map[string]string{"a.rego": of}, Terrier, nil},
		"one policy with directories":         {map[string]string{"a.rego": of, "b/b.rego": of, "c/c.rego": of}, Terrier, nil},
		"a policy in one directory":           {map[string]string{"rules/a.rego": of, "lib/b.rego": other}, Terrier, nil},
		"several policies":                    {map[string]string{"a/a.rego": of, "b/b.rego": of, "README.md": "", "testdata/c.json": "{}"}, Terrier, []string{"a", "b"}},
		"policies below directories":          {map[string]string{"aws/a/a.rego": of, "aws/b/b.rego": of, "gcp/c/c.rego": of}, Terrier, []string{"aws/a", "aws/b", "gcp"}},
		"policies in one directory":           {map[string]string{"aws/a/a.rego": of, "aws/b/b.rego": of}, Terrier, []string{"aws/a", "aws/b"}},
		"a test alone is no policy":           {map[string]string{"a/a.rego": of, "b/b_test.rego": of}, Terrier, nil},
		"hidden directories":                  {map[string]string{"a/a.rego": of, ".git/b.rego": of}, Terrier, nil},
		"a directory of conftest":             {map[string]string{"policy/a.rego": "package main\n", "other/b.rego": "package main\n"}, Conftest, nil},
		"directories of conftest":             {map[string]string{"a/conftest.toml": "", "a/policy/a.rego": "package main\n", "b/conftest.toml": ""}, Conftest, []string{"a", "b"}},
		"a directory of conftest with a file": {map[string]string{"conftest.toml": "", "a/conftest.toml": ""}, Conftest, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Library(filesOf(tt.files), tt.format)
			if d := cmp.Diff(got, tt.want); d != "" || err != nil {
				t.Error(d, err)
			}
			if _, err := Read(filesOf(tt.files), Options{Format: tt.format}); (err != nil) != (len(tt.want) > 0) {
				t.Errorf("Read() = %v: several policies are not read as one", err)
			}
		})
	}
}

// A policy takes the parameters that it declares, and no others.
func TestDeclaredParameters(t *testing.T) {
	const declares = "# METADATA\n# custom:\n#   parameters:\n#     regions: {type: array, items: {type: string}}\n#     effect: {enum: [deny, warn], description: What follows}\n#     most: {type: integer}\n#     any:\npackage terrier\n\ndeny contains \"no\"\n"
	for name, tt := range map[string]struct {
		text, given, want string
	}{
		"what is declared":        {declares, `{"regions": ["a"], "effect": "warn", "most": 3, "any": {"x": null}}`, ""},
		"none":                    {declares, `null`, ""},
		"no object":               {declares, `["a"]`, "parameters: is a list, and must be an object"},
		"another name":            {declares, `{"region": ["a"]}`, "parameters.region: the policy has no such parameter; it has any, effect, most and regions"},
		"another type":            {declares, `{"regions": "a"}`, "parameters.regions: is a text, and must be a list"},
		"another type in a list":  {declares, `{"regions": ["a", 1]}`, "parameters.regions[1]: is a number, and must be a text"},
		"another value":           {declares, `{"effect": "hold"}`, `parameters.effect: is "hold", and must be one of deny and warn`},
		"no whole number":         {declares, `{"most": 1.5}`, "parameters.most: is a number, and must be a whole number"},
		"null":                    {declares, `{"most": null}`, "parameters.most: is null, and must be a whole number"},
		"a policy that says none": {"package terrier\ndeny contains \"no\"\n", `{"region": ["a"]}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			set := compiled(t, Source{Modules: map[string]string{"policy.rego": tt.text}})
			dec := json.NewDecoder(strings.NewReader(tt.given))
			dec.UseNumber()
			var given any
			if err := dec.Decode(&given); err != nil {
				t.Fatal(err)
			}
			got := ""
			if err := CheckParameters(set, given); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("CheckParameters() = %q, want %q", got, tt.want)
			}
		})
	}
	for text, want := range map[string]string{
		"parameters: [a]":              "policy.rego:1: custom.parameters of the METADATA is no object",
		"parameters: {a: {type: set}}": "custom.parameters.a of the METADATA: the type is set, which is none of array, boolean",
		"parameters: {a: {enum: []}}":  "the enum is no list of values",
		"parameters: {a: {kind: x}}":   "has the field kind, which is none of",
		"parameters: {a: b}":           "is no object, as {type: array}",
	} {
		_, err := Compile(t.Context(), Source{Modules: map[string]string{"policy.rego": "# METADATA\n# custom:\n#   " + text + "\npackage terrier\n\ndeny contains \"no\"\n"}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Compile() with %s = %v, want %q", text, err, want)
		}
	}
}

// Each rule says how often it fired, with which values, and which condition did not hold.
func TestWhichRulesFired(t *testing.T) {
	set := compiled(t, terrier(`
deny contains c.address if {
	some c in input.changes
	c.kind == "delete"
	not exempt(c)
}

exempt(c) if c.type in {"a", "b"}

hold contains "later" if input.run.cause == "destroy"

warn contains "unasked" if count(helper) > 0

helper := input.absent
`))
	e := &Explanation{Why: true}
	in := inputOf(t, `{"changes": [{"address": "a.x", "type": "a", "kind": "delete"}, {"address": "t.y", "type": "t", "kind": "delete"}, {"address": "t.z", "type": "t", "kind": "create"}], "run": {}}`)
	if found := set.Evaluate(t.Context(), Question{Policy: "p", Input: in, Explain: e}); len(found) != 1 {
		t.Fatalf("Evaluate() = %+v", found)
	}
	want := []RuleTrace{
		{Rule: "terrier.deny", At: "policy.rego:3", Fired: 1, With: []string{`c = "t.y"`}, Stops: []Stop{{"policy.rego:6", "not exempt(c)", 1}, {"policy.rego:5", `c.kind == "delete"`, 1}}},
		{Rule: "terrier.exempt", At: "policy.rego:9", Fired: 1, With: []string{`c = "a.x"`}, Stops: []Stop{{"policy.rego:9", `exempt(c) if c.type in {"a", "b"}`, 1}}},
		{Rule: "terrier.hold", At: "policy.rego:11", Stops: []Stop{{"policy.rego:11", `hold contains "later" if input.run.cause == "destroy"`, 1}}},
		{Rule: "terrier.warn", At: "policy.rego:13", Stops: []Stop{{"policy.rego:13", `warn contains "unasked" if count(helper) > 0`, 1}}},
		{Rule: "terrier.helper", At: "policy.rego:15", Stops: []Stop{{"policy.rego:15", "helper := input.absent", 1}}},
	}
	if d := cmp.Diff(e.Rules, want); d != "" || e.Trace != nil {
		t.Errorf("the rules differ: %s; trace %v", d, e.Trace)
	}
}

// An error of the compiler is one problem for each place.
func TestProblemsHavePlaces(t *testing.T) {
	_, err := Compile(t.Context(), terrier("deny contains nothing(1)\nwarn contains nought(1)\n"))
	want := []Problem{{"policy.rego", 2, "undefined function nothing"}, {"policy.rego", 3, "undefined function nought"}}
	if d := cmp.Diff(Problems(err), want); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(Problems(errors.New("other")), []Problem{{Message: "other"}}); d != "" {
		t.Error(d)
	}
	if (Problem{File: "a", Line: 1}).At() != "a:1" || (Problem{}).At() != "" {
		t.Error("At() is no place")
	}
}
