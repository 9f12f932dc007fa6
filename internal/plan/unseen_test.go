package plan

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/stack"
)

// What the plan creates and no event tells of may exist, unless the state has it. What
// stands in the state of a replacement may be the old one.
func TestUnseen(t *testing.T) {
	change := func(addr, mode, actions string) string {
		return `{"address":"` + addr + `","mode":"` + mode + `","type":"x","name":"n","change":{"actions":[` + actions + `]}}`
	}
	doc, err := ParseDocument([]byte(`{"format_version":"1.2","resource_changes":[` + strings.Join([]string{
		change("x.a", "managed", `"create"`), change("x.begun", "managed", `"create"`), change("x.new", "managed", `"create"`),
		change("x.replaced", "managed", `"delete","create"`), change("x.first", "managed", `"create","delete"`),
		change("x.changed", "managed", `"update"`), change("x.gone", "managed", `"delete"`), change("x.same", "managed", `"no-op"`),
		change("data.x.read", "data", `"read"`),
	}, ",") + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	got, err := doc.Unseen(strings.NewReader(did("start", "create", "x.begun", "")), []byte(held(instance("1"))))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]stack.UntrackedResource{{Address: "x.new"}, {Address: "x.replaced"}, {Address: "x.first"}}, got); diff != "" {
		t.Errorf("Unseen() (-want +got):\n%s", diff)
	}
	all, err := doc.Unseen(strings.NewReader(""), nil)
	if err != nil || len(all) != 5 {
		t.Errorf("Unseen() of a run that told nothing = %+v, %v; want all five", all, err)
	}
}
