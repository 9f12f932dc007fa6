package input

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
)

// large is a Reader of one object of a MiB, under every name.
type large struct{ read int }

func (l *large) Read(context.Context, stack.Ref) (map[string][]byte, []string, error) {
	l.read++
	return map[string][]byte{"k": bytes.Repeat([]byte("x"), 1<<20)}, nil, nil
}

// A stack that names large sources often is refused before the memory of the controller is
// full, whatever field it does it with; and a source that is named often is read once.
func TestInputsAreBounded(t *testing.T) {
	const often = 1000
	name := func(i int) string { return fmt.Sprintf("s%d", i) }
	for what, tt := range map[string]struct {
		add  func(c *stack.Configuration, i int)
		read int // at most
	}{
		"variables of one key": {func(c *stack.Configuration, i int) {
			c.Vars = append(c.Vars, stack.Var{Name: name(i), Secret: &stack.KeyRef{Name: "one", Key: "k"}})
		}, 1},
		"variables of many Secrets": {func(c *stack.Configuration, i int) {
			c.Vars = append(c.Vars, stack.Var{Name: name(i), Secret: &stack.KeyRef{Name: name(i), Key: "k"}})
		}, maxBytes >> 20},
		"variables of a field": {func(c *stack.Configuration, i int) {
			c.Vars = append(c.Vars, stack.Var{Name: name(i), Field: "metadata.annotations['long']"})
		}, 0},
		"all of a Secret": {func(c *stack.Configuration, _ int) {
			c.VarsFrom = append(c.VarsFrom, stack.VarsFrom{Kind: Secret, Name: "one"})
		}, 1},
		"the environment": {func(c *stack.Configuration, i int) {
			c.Env = append(c.Env, stack.EnvVar{Name: "E" + name(i), Secret: &stack.KeyRef{Name: "one", Key: "k"}})
		}, 1},
		"the environment of a whole Secret": {func(c *stack.Configuration, _ int) {
			c.EnvFrom = append(c.EnvFrom, stack.EnvFrom{Kind: Secret, Name: "one"})
		}, 1},
		"files": {func(c *stack.Configuration, i int) {
			c.Files = append(c.Files, stack.File{Path: name(i), Secret: stack.KeyRef{Name: "one", Key: "k"}})
		}, 1},
		"settings of the backend": {func(c *stack.Configuration, _ int) {
			c.Completes = append(c.Completes, stack.ConfigFrom{Kind: Secret, Name: "one"})
		}, 1},
	} {
		t.Run(what, func(t *testing.T) {
			of := &large{}
			r := Resolver{Reader: of, Object: Object{Namespace: "n", Name: "s", Annotations: map[string]string{"long": strings.Repeat("x", 200<<10)}}}
			for i := range often {
				tt.add(&r.Configuration, i)
			}
			_, err := r.Resolve(t.Context(), Module{})
			if fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), "more than") {
				t.Errorf("the error is %.300v, want Invalid, and how much there may be", err)
			}
			if of.read > tt.read {
				t.Errorf("sources were read %d times, want at most %d", of.read, tt.read)
			}
		})
	}
}
