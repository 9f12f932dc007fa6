package pages

import (
	"errors"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan/usage"
	"github.com/terrier-iac/terrier/internal/query"
)

// The page of a stack shows what the stack uses, and nothing while that is not known.
func TestThePageShowsWhatAStackUses(t *testing.T) {
	show := func(e *estate) parsed {
		v := visitor(t, e, "/stacks/apps/checkout")
		p, err := Stack(v)
		if err != nil {
			t.Fatal(err)
		}
		return parse(t, v, p)
	}
	text := show(town()).text()
	for _, want := range []string{"module.vpc", "reg.example/net/vpc/aws//modules/a", "1.2.0", "~> 1.0", "012345678901", "reg.example/net/dns", "3.0.1", "built in", "What main.tf declares is not known"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not show %q", want)
		}
	}
	e := town()
	e.uses = usage.Record{}
	if text := show(e).text(); strings.Contains(text, "Uses") {
		t.Error("the page has a section for nothing")
	}
	if got := usesOf(usage.Record{}, fault.New(fault.Missing, query.ReasonNoUses, errors.New("not known"))); got != nil {
		t.Errorf("of a stack that has not run: %+v", got)
	}
	if got := usesOf(usage.Record{}, errors.New("the store is away")); got == nil || got.Trouble == nil {
		t.Errorf("of a record that cannot be read: %+v", got)
	}
	many := usage.Record{Usage: usage.Usage{Modules: make([]usage.Module, usesShown+5)}}
	if got := usesOf(many, nil); len(got.Modules) != usesShown || got.More != 5 {
		t.Errorf("of many calls: %d and %d more", len(got.Modules), got.More)
	}
}
