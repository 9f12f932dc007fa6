package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
)

// entered is a stack with an open session, whose repair plan can be approved.
type entered struct{ command.StackAPI }

func (entered) BreakGlass(context.Context, query.Key) (stack.BreakGlass, error) {
	return stack.BreakGlass{}, nil
}

func (entered) Repair(context.Context, query.Key, query.PlanInfo) error { return nil }

// The command that is offered next is about the same stack: it names its kind, and the
// namespace if the user named one.
func TestTheNextStepIsAboutTheSameStack(t *testing.T) {
	for name, tt := range map[string]struct{ kind, namespace, want string }{
		"the first kind":                         {"", "", " net"},
		"another kind":                           {"terraform.alustan.io", "", " terraform.alustan.io/net"},
		"another kind, in a namespace of choice": {"terraform.alustan.io", "apps", " terraform.alustan.io/net -n apps"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			p := newProgram(Env{Stdout: &out, Stderr: &out})
			p.connection.Namespace = tt.namespace
			key := query.Key{Namespace: "apps", Name: "net", Kind: tt.kind}
			if err := (operateCommands{p}).runInSession(t.Context(), entered{}, key, nil); err != nil {
				t.Fatal(err)
			}
			if err := (decideCommands{p}).applyRepair(t.Context(), entered{}, key, query.PlanInfo{Name: "plan-1"}); err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"terrier break-glass" + tt.want + " -- state list\n", "terrier break-glass" + tt.want + " --end\n", "terrier explain" + tt.want + "\n"} {
				if !strings.Contains(out.String(), want) {
					t.Errorf("%s\ndoes not offer %q", out.String(), want)
				}
			}
		})
	}
}
