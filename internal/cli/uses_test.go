package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	used "github.com/terrier-iac/terrier/internal/plan/usage"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/query/usedby"
)

// The list says who uses what since when, and what it does not know.
func TestTheListOfUses(t *testing.T) {
	var out, notes bytes.Buffer
	now := time.Unix(1e9, 0)
	p := newProgram(Env{Stdout: &out, Stderr: &notes, Now: func() time.Time { return now }})
	p.usedBy(usedby.Answer{
		Items: []usedby.Use{{Namespace: "net", Name: "vpc", Address: "reg.example/net/vpc/aws", Directory: "a", Version: "1.2.0", Commit: "0123456789abcdef0123",
			Constraint: "~> 1.0", Calls: []string{"module.one", "module.two"}, Since: now.Add(-3 * time.Hour)}},
		Total: 7, Stacks: 5, Unread: 1, Unknown: 2, UnknownStacks: []query.Key{{Namespace: "apps", Name: "shop"}, {Namespace: "net", Name: "old"}}, Versions: []usedby.VersionCount{{Version: "1.2.0", Stacks: 4}, {Version: "", Stacks: 1}},
	}, usedby.Question{})
	for _, want := range []string{"net/vpc", "1.2.0 (0123456789ab)", "~> 1.0", "reg.example/net/vpc/aws//a", "module.one module.two", "3h", "5 stacks. Of all versions: 1.2.0: 4, without a version: 1"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the list does not say %q:\n%s", want, out.String())
		}
	}
	for _, want := range []string{"still reading the records of 1 stack", "Of 2 stacks it is not known yet", "To start one: terrier replan shop -n apps\n", "--offset 1"} {
		if !strings.Contains(notes.String(), want) {
			t.Errorf("the notes do not say %q:\n%s", want, notes.String())
		}
	}
	out.Reset()
	if p.usedBy(usedby.Answer{}, usedby.Question{}); !strings.Contains(out.String(), "No stack that you may list uses it.") {
		t.Errorf("of nothing it says %q", out.String())
	}
}

// A description has the modules and providers, or why it has none.
func TestADescriptionSaysWhatAStackUses(t *testing.T) {
	describe := func(d described) string {
		var out bytes.Buffer
		p := stackCommands{newProgram(Env{Stdout: &out, Now: func() time.Time { return time.Unix(1e9, 0) }})}
		d.Detail = query.Detail{Stack: query.Stack{Name: "site", Namespace: "net"}}
		p.write(p.detail(d))
		return out.String()
	}
	text := describe(described{Uses: &used.Record{Usage: used.Usage{
		Modules: []used.Module{
			{Path: "module.a", Location: used.Location{Kind: used.Registry, Address: "reg.example/net/vpc/aws"}, Version: "1.2.0"},
			{Path: "module.a.module.b", Location: used.Location{Kind: used.Local, Directory: "./b"}, Declared: "./b"},
		},
		Providers: []used.Provider{{Source: "reg.example/hashicorp/aws", Version: "6.0.0"}},
		Problems:  []string{"What main.tf declares is not known."},
	}}})
	for _, want := range []string{"Modules and providers", "module.a: reg.example/net/vpc/aws 1.2.0", "module.a.module.b: in ./b", "provider reg.example/hashicorp/aws 6.0.0", "What main.tf declares"} {
		if !strings.Contains(text, want) {
			t.Errorf("describe does not say %q:\n%s", want, text)
		}
	}
	if text := describe(described{unseen: "the server did not answer in time"}); !strings.Contains(text, "not shown: the server did not answer in time") {
		t.Errorf("describe does not say why:\n%s", text)
	}
	if text := describe(described{}); strings.Contains(text, "Modules") {
		t.Errorf("describe has a section for nothing:\n%s", text)
	}
}

// A user reads which stacks use a version before it is retracted and afterwards, and how many
// are not known. Unless no stack does, the user is asked.
func TestWhoUsesWhatIsRetracted(t *testing.T) {
	known := usedby.Answer{Items: []usedby.Use{{Namespace: "apps", Name: "shop", Calls: []string{"module.net"}, Since: time.Unix(1e9, 0).Add(-3 * time.Hour)}}, Total: 3, Stacks: 2, Unknown: 4, UnknownStacks: []query.Key{{Namespace: "apps", Name: "old"}}}
	for name, tt := range map[string]struct {
		users users
		asks  bool
		notes []string
		says  string
	}{
		"two stacks":       {users{Answer: known}, true, []string{"apps/shop uses it in module.net, first installed 3h ago", "and 2 more uses", "Of 4 stacks it is not known yet", "terrier replan old -n apps"}, "2 stacks use it: their next init chooses another version, or fails if they name this one. Of 4 stacks it is not known"},
		"one stack":        {users{Answer: usedby.Answer{Total: 1, Stacks: 1}}, true, nil, "1 stack uses it"},
		"none":             {users{}, false, nil, "No stack that you may list is known to use it"},
		"a registry alone": {users{unseen: "a registry alone has no stacks"}, false, []string{"not known: a registry alone"}, "Which stacks use it is not known"},
		"no answer":        {users{unseen: "the server is away", doubt: true}, true, []string{"not known: the server is away"}, "Which stacks use it is not known"},
	} {
		var notes bytes.Buffer
		p := newProgram(Env{Stderr: &notes, Now: func() time.Time { return time.Unix(1e9, 0) }})
		p.announceUsers(tt.users)
		for _, want := range tt.notes {
			if !strings.Contains(notes.String(), want) {
				t.Errorf("%s: the notes do not say %q: %s", name, want, notes.String())
			}
		}
		if got := tt.users.text(); tt.users.matter() != tt.asks || !strings.HasPrefix(got, tt.says) {
			t.Errorf("%s: it asks: %t, and says %q, want %t and %q", name, tt.users.matter(), got, tt.asks, tt.says)
		}
	}
}
