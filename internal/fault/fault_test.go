package fault

import (
	"errors"
	"fmt"
	"testing"
)

func TestOf(t *testing.T) {
	base := errors.New("boom")
	for name, tt := range map[string]struct {
		err  error
		want Kind
	}{
		"nil is no failure":              {nil, None},
		"an unmarked error is broken":    {base, Broken},
		"a mark is found under wrapping": {fmt.Errorf("reading: %w", New(Missing, "X", base)), Missing},
		"the outermost mark decides":     {New(Later, "Y", New(Missing, "X", base)), Later},
		"a mark on nil is nil":           {New(Invalid, "X", nil), None},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Of(tt.err); got != tt.want {
				t.Errorf("Of() = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestMeaning(t *testing.T) {
	for kind, want := range map[Kind]Meaning{
		Invalid:  {Stalled: true, Warning: true, HTTP: 422, Exit: 2},
		Denied:   {Stalled: true, Warning: true, HTTP: 403, Exit: 3},
		Missing:  {HTTP: 404, Exit: 4},
		Conflict: {HTTP: 409, Exit: 5},
		Later:    {HTTP: 503, Exit: 6},
		Broken:   {Warning: true, HTTP: 500, Exit: 1},
		None:     {HTTP: 200},
	} {
		if got := kind.Meaning(); got != want {
			t.Errorf("%q.Meaning() = %+v, want %+v", kind, got, want)
		}
	}
}

func TestReason(t *testing.T) {
	err := fmt.Errorf("x: %w", New(Denied, "AccessDenied", errors.New("no")))
	if got := Reason(err, "Other"); got != "AccessDenied" {
		t.Errorf("Reason() = %q, want AccessDenied", got)
	}
	if got := Reason(errors.New("x"), "Other"); got != "Other" {
		t.Errorf("Reason() = %q, want the fallback", got)
	}
}
