package rego

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/policy"
)

// fuzzedBytes bounds a manifest: how large one may be is another question than what is in it.
const fuzzedBytes = 16 << 10

// FuzzWeave: whatever stands in the manifest of a Policy of the Weave policy agent, it is
// refused in bounded words, or is for plans and has an answer of bounded size about each.
func FuzzWeave(f *testing.F) {
	first, _, _ := strings.Cut(weavePolicy, "\n---")
	for _, seed := range []string{
		weavePolicy, first,
		strings.Replace(first, "value: public-read", "value: null", 1),
		strings.Replace(first, "value: public-read", "value: {a: [1, {b: 1e400}]}", 1),
		strings.Replace(first, "provider: terraform", "provider: [terraform]", 1),
		strings.Replace(first, "provider: terraform", "provider: terraform\n  enabled: \"yes\"", 1),
		strings.Replace(first, "provider: terraform", "provider: terraform\n  enforce: false", 1),
		strings.Replace(first, "kinds: [Terraform]", "kinds: Terraform", 1),
		strings.Replace(first, "- team: payments", "- {team: 1}", 1),
		strings.Replace(first, "severity: high", "severity: &a [*a]", 1),
		strings.Replace(first, "violation[result]", "violation = 1e999999999", 1),
		strings.Replace(first, "violation[result] {", "violation[result] {\n      result := numbers.range(1, 1e9)[_]", 1),
		"apiVersion: pac.weave.works/v2beta3\nkind: Policy\nspec: {provider: terraform}\n",
		"{", "---\n---\n", "a: &a [*a]",
	} {
		f.Add(seed)
	}
	in := inputOf(f, aPlan)
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > fuzzedBytes {
			return
		}
		parts, err := ReadWeaveFile("p.yaml", []byte(text))
		if err != nil {
			if fault.Of(err) != fault.Invalid || len(err.Error()) > 2*messageBytes {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		for _, p := range parts {
			if p.Weave == nil || !p.Weave.Judges() {
				t.Fatalf("%q: the part %+v is for no plans", text, p)
			}
			p.Weave.Selects("Terraform", "payments", "net", map[string]string{"team": "payments"})
			s, err := Compile(t.Context(), p.Source)
			if err != nil {
				if fault.Of(err) != fault.Invalid || len(err.Error()) > 2*messageBytes {
					t.Errorf("%q: %v", text, err)
				}
				continue // a policy that cannot be compiled holds
			}
			hasBounds(t, text, s.Evaluate(t.Context(), Question{Policy: "p", Input: in, Parameters: p.Parameters}))
		}
	})
}

// FuzzParameters: a parameter that a policy does not declare is refused, whatever it declares,
// and whatever it is given. With those that it takes it has an answer of bounded size.
func FuzzParameters(f *testing.F) {
	for _, seed := range [][2]string{
		{`{"regions": {"type": "array", "items": {"type": "string"}}, "effect": {"enum": ["deny", "hold"]}}`, `{"regions": ["eu"], "effect": "hold"}`},
		{`{"n": {"type": "integer"}}`, `{"n": 1.5}`}, {`{"n": {"type": "number"}}`, `{"n": 1e400}`},
		{`{"n": {"type": "object"}}`, `{"m": {}}`}, {`{"n": {"type": "other"}}`, `{}`}, {`{"n": {"enum": []}}`, `{"n": null}`},
		{`{"n": {"items": {"items": {"items": null}}}}`, `{"n": [[[[[1]]]]]}`}, {`[]`, `[]`}, {`{}`, `"text"`}, {`{"n": null}`, `{"n": null}`},
	} {
		f.Add(seed[0], seed[1])
	}
	in := inputOf(f, aPlan)
	f.Fuzz(func(t *testing.T, declares, text string) {
		if len(declares)+len(text) > fuzzedBytes {
			return
		}
		var given any
		dec := json.NewDecoder(strings.NewReader(text))
		dec.UseNumber()
		if dec.Decode(&given) != nil {
			return
		}
		oneLine := strings.NewReplacer("\n", " ", "\r", " ").Replace(declares)
		s, err := Compile(t.Context(), Source{Modules: map[string]string{"p.rego": "# METADATA\n# custom:\n#   parameters: " + oneLine +
			"\npackage terrier\n\nhold contains sprintf(\"%v\", [v]) if some v in input.parameters\n"}})
		if err != nil {
			if len(err.Error()) > 2*messageBytes {
				t.Errorf("%q: %v", declares, err)
			}
			return
		}
		wrong := CheckParameters(s, given)
		all, isObject := given.(map[string]any)
		if known := Parameters(s); s.parameters != nil && given != nil && wrong == nil {
			if !isObject || len(all) > len(known) {
				t.Errorf("a policy that declares %q takes %s", known, text)
			}
		}
		if wrong == nil {
			hasBounds(t, text, s.Evaluate(t.Context(), Question{Policy: "p", Input: in, Parameters: given}))
		}
	})
}

// hasBounds checks that findings have a bounded size, and that no error passes a plan.
func hasBounds(t *testing.T, text string, all []policy.Finding) {
	t.Helper()
	for _, found := range all {
		if found.Message == "" || len(found.Message) > messageBytes+8 || len(found.Addresses) > policy.AddressesKept || found.Error && found.Counts().Compare(policy.Hold) < 0 {
			t.Errorf("%q: %+v", text, found)
		}
	}
}
