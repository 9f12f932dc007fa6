package kinds

import (
	"strings"
	"testing"
	"time"

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
		chosen, leftOut, err := Defaults{}.Of(strings.Split(asked, ","))
		if groups(chosen) != want.chosen || groups(leftOut) != want.leftOut || (err == nil) != (want.err == "") || err != nil && !strings.Contains(err.Error(), want.err) {
			t.Errorf("Of(%s) = %s, %s, %v, want %+v", asked, groups(chosen), groups(leftOut), err, want)
		}
	}
}

// The interval of the operator is that of each stack of scripts without one of its own.
func TestIntervalOfScripts(t *testing.T) {
	for set, want := range map[time.Duration]time.Duration{time.Minute: time.Minute, 0: dialect.Never} {
		d := Defaults{ScriptInterval: set}.All().Named("terraform.alustan.io")
		if st, _ := d.Decode(d.New()); st.Spec.Interval != want {
			t.Errorf("with %s the interval is %s, want %s", set, st.Spec.Interval, want)
		}
	}
	d := All().Named("terraform.alustan.io")
	if st, _ := d.Decode(d.New()); st.Spec.Interval != 6*time.Hour {
		t.Errorf("the interval is %s, want six hours", st.Spec.Interval)
	}
}
