package plan_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/plan"
)

func TestTexts(t *testing.T) {
	for name, test := range map[string]struct {
		value string
		want  []string
	}{
		"a text is itself":              {`"s3cret"`, []string{"s3cret"}},
		"a number keeps its digits":     {`12345678901234567890`, []string{"12345678901234567890"}},
		"all that is nested is found":   {`{"a": ["x", {"b": 7}], "c": "y"}`, []string{"7", "x", "y"}},
		"names are no values":           {`{"password": true}`, nil},
		"neither a truth nor null is":   {`[true, false, null]`, nil},
		"what is no JSON holds nothing": {`{"a": `, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := plan.Texts([]byte(test.value))
			slices.Sort(got) // an object has no order
			if diff := cmp.Diff(got, test.want); diff != "" {
				t.Errorf("Texts(%s) (-got +want):\n%s", test.value, diff)
			}
		})
	}
}
