package kinds

import (
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/dialect"
)

func TestOf(t *testing.T) {
	const first, second = "infra.contrib.fluxcd.io", "alustan.io"
	groups := func(r dialect.Registry) string {
		var all []string
		for _, d := range r.All() {
			all = append(all, d.Kind().Group)
		}
		return strings.Join(all, ",")
	}
	for asked, want := range map[string]struct{ chosen, leftOut, err string }{
		first:                  {first, second, ""},
		second + "," + first:   {first + "," + second, "", ""},
		second:                 {"", "", first + " is missing"},
		"":                     {"", "", "has no kind of stack"},
		first + ",example.com": {"", "", `"example.com" has no kind of stack`},
		first + "," + first:    {first, second, ""},
	} {
		chosen, leftOut, err := Of(strings.Split(asked, ","))
		if groups(chosen) != want.chosen || groups(leftOut) != want.leftOut || (err == nil) != (want.err == "") || err != nil && !strings.Contains(err.Error(), want.err) {
			t.Errorf("Of(%s) = %s, %s, %v, want %+v", asked, groups(chosen), groups(leftOut), err, want)
		}
	}
}
