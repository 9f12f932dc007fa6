package pages

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
)

// screens are the pages about stacks, with an address of each.
var screens = map[string]struct {
	address string
	handle  Handler
}{
	"home":                     {"/", Home},
	"home of a month":          {"/?period=month", Home},
	"all stacks":               {"/stacks", Stacks},
	"stacks by namespace":      {"/stacks?group=namespace&sort=-since", Stacks},
	"stacks that are filtered": {"/stacks?q=net&namespace=net&status=failed&status=locked&labels=a%3Db&tenant=net", Stacks},
	"no stacks":                {"/stacks?q=nothing-is-called-so", Stacks},
	"a filter that is wrong":   {"/stacks?labels=%21%21", Stacks},
	"approvals":                {"/approvals", Approvals},
	"drift":                    {"/drift", Drift},
	"a stack with a plan":      {"/stacks/apps/checkout", Stack},
	"a hostile stack":          {"/stacks/apps/hostile", Stack},
	"a locked stack":           {"/stacks/net/dns", Stack},
	"a running stack":          {"/stacks/net/edge", Stack},
	"a suspended stack":        {"/stacks/net/old", Stack},
	"runs":                     {"/stacks/apps/checkout/runs", StackRuns},
	"resources":                {"/stacks/apps/hostile/resources", StackResources},
	"resources found":          {"/stacks/apps/hostile/resources?q=module", StackResources},
	"no resources found":       {"/stacks/apps/hostile/resources?q=nothing-at-all", StackResources},
	"outputs":                  {"/stacks/apps/cart/outputs", StackOutputs},
	"inputs":                   {"/stacks/apps/cart/inputs", StackInputs},
	"states":                   {"/stacks/apps/cart/states", StackStates},
	"a rollback":               {"/stacks/apps/cart/states?to=7", StackStates},
	"the drift of a stack":     {"/stacks/net/vpc/drift", StackDrift},
	"events":                   {"/stacks/apps/hostile/events", StackEvents},
	"the manifest":             {"/stacks/apps/hostile/manifest", StackManifest},
	"no break-glass session":   {"/stacks/apps/cart/break-glass", StackBreakGlass},
	"a break-glass session":    {"/stacks/apps/byhand/break-glass", StackBreakGlass},
	"a break-glass command":    {"/stacks/apps/commanded/break-glass", StackBreakGlass},
	"a push that is forgotten": {"/stacks/apps/cart/states?push=GONE", StackStates},
	"a repair":                 {"/stacks/apps/hostile/repair", StackRepair},
	"no repair":                {"/stacks/apps/cart/repair", StackRepair},
}

// Every page is well-formed, says what its parts are, leads only to addresses of
// ours, and runs nothing of what others wrote; a user who may only read gets the
// same page.
func TestPagesKeepTheRules(t *testing.T) {
	for name, s := range screens {
		t.Run(name, func(t *testing.T) {
			v := visitor(t, town(), s.address)
			p, err := s.handle(v)
			if err != nil {
				t.Fatal(err)
			}
			parse(t, v, p)
			v.Can = func(access.Request) bool { return false }
			if p, err = s.handle(v); err != nil {
				t.Fatal(err)
			}
			d := parse(t, v, p)
			for _, f := range d.all(is(atom.Form)) {
				if a := attr(f, "action"); attr(f, "method") == "post" && a != "/stacks" && a != "/sign-out" && !strings.HasSuffix(s.address, "/repair") {
					t.Errorf("who may not change anything is offered %q", a)
				}
			}
		})
	}
}

// Pages of an estate about which nothing is known yet.
func TestPagesOfAnEmptyEstate(t *testing.T) {
	for name, s := range screens {
		t.Run(name, func(t *testing.T) {
			e := &estate{rows: []query.Row{row("apps", "checkout", query.StatusWaiting, nil), row("apps", "hostile", "", nil), row("apps", "cart", "unheard of", nil), row("net", "vpc", "", nil), row("net", "dns", "", nil), row("net", "edge", "", nil), row("net", "old", "", nil), row("apps", "byhand", "", nil), row("apps", "commanded", "", nil)}}
			v := visitor(t, e, s.address)
			p, err := s.handle(v)
			if err != nil {
				t.Fatal(err)
			}
			parse(t, v, p)
		})
	}
}

// What one part of a page may not show does not take the rest along.
func TestPartsThatCannotBeRead(t *testing.T) {
	for name, s := range screens {
		if !strings.HasPrefix(s.address, "/stacks/") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			e := town()
			e.err = fault.New(fault.Later, "NotReady", errors.New("the store is not ready "+hostile))
			v := visitor(t, e, s.address)
			p, err := s.handle(v)
			if err != nil {
				t.Fatal(err)
			}
			d := parse(t, v, p)
			if len(d.all(func(n *html.Node) bool {
				return n.DataAtom == atom.A && attr(n, "aria-current") == "page" && strings.HasPrefix(attr(n, "href"), "/stacks/")
			})) != 1 {
				t.Error("the tabs are gone")
			}
		})
	}
}

// A page shows secret values only when the visitor asks for them, and after the audit
// log has it.
func TestSecretsAreShownAfterTheyAreAudited(t *testing.T) {
	for address, want := range map[string]bool{"/stacks/apps/hostile/resources": false, "/stacks/apps/hostile/resources?secrets=show": true} {
		e, audited := town(), 0
		v := visitor(t, e, address)
		v.Revealed = func(string) error { audited++; return nil }
		p, err := StackResources(v)
		if err != nil {
			t.Fatal(err)
		}
		if live := p.Live != (Live{}); live == want {
			t.Errorf("%s: the page refreshes by itself: %v, want %v: each view with secrets is audited", address, live, !want)
		}
		if e.revealed != want || (audited == 1) != want {
			t.Errorf("%s: revealed %v, audited %d times, want %v", address, e.revealed, audited, want)
		}
	}
	e := town()
	v := visitor(t, e, "/stacks/apps/hostile/resources?secrets=show")
	v.Revealed = func(string) error { return errors.New("the audit log cannot be written") }
	if _, err := StackResources(v); err == nil || e.revealed {
		t.Errorf("without an audit log: %v, revealed %v, want neither", err, e.revealed)
	}
}

func TestWhatIsNotThereIsSaid(t *testing.T) {
	for name, tt := range map[string]struct {
		address string
		handle  Handler
		err     error
		want    string
		command string // the next step
	}{
		"a state that is kept elsewhere": {"/stacks/apps/cart/resources", StackResources, fault.New(fault.Invalid, query.ReasonStateForeign, errors.New("x")), "its own backend", "tofu state list"},
		"no state yet":                   {"/stacks/apps/cart/resources", StackResources, fault.New(fault.Missing, query.ReasonNoState, errors.New("x")), "Nothing was created", "terrier explain cart -n apps"},
		"versions kept elsewhere":        {"/stacks/apps/cart/states", StackStates, fault.New(fault.Invalid, query.ReasonStateForeign, errors.New("x")), "its own backend", "tofu state pull"},
		"no outputs":                     {"/stacks/apps/cart/outputs", StackOutputs, fault.New(fault.Missing, query.ReasonNoOutputs, errors.New("x")), "declares no outputs", "terrier explain cart -n apps"},
		"no drift":                       {"/stacks/apps/cart/drift", StackDrift, fault.New(fault.Missing, "NoDrift", errors.New("x")), "No drift", "terrier replan cart -n apps"},
	} {
		t.Run(name, func(t *testing.T) {
			e := town()
			e.err = tt.err
			v := visitor(t, e, tt.address)
			p, err := tt.handle(v)
			if err != nil {
				t.Fatal(err)
			}
			d := parse(t, v, p)
			if got := d.text(); !strings.Contains(got, tt.want) {
				t.Errorf("the page does not say %q: %s", tt.want, got)
			}
			if copies := d.all(func(n *html.Node) bool { return attr(n, "data-copy") == tt.command }); len(copies) != 1 {
				t.Errorf("the page offers the command %q %d times, want once", tt.command, len(copies))
			}
		})
	}
}

// A stack that does not exist is no page with holes.
func TestStacksThatDoNotExist(t *testing.T) {
	for name, s := range screens {
		if !strings.HasPrefix(s.address, "/stacks/") {
			continue
		}
		if _, err := s.handle(visitor(t, &estate{}, s.address)); fault.Of(err) != fault.Missing {
			t.Errorf("%s: %v, want Missing", name, err)
		}
	}
}

// Sensitive values do not reach a page, whatever else does.
func TestSensitiveValuesAreNotShown(t *testing.T) {
	for _, address := range []string{"/stacks/apps/cart/outputs", "/stacks/apps/cart/resources", "/stacks/net/vpc/drift"} {
		e := town()
		v := visitor(t, e, address)
		var p Page
		var err error
		switch {
		case strings.HasSuffix(address, "outputs"):
			p, err = StackOutputs(v)
		case strings.HasSuffix(address, "resources"):
			p, err = StackResources(v)
		default:
			p, err = StackDrift(v)
		}
		if err != nil {
			t.Fatal(err)
		}
		got := parse(t, v, p).text()
		if !strings.Contains(got, "sensitive") && !strings.Contains(got, plan.Mask) {
			t.Errorf("%s does not say that something is left out", address)
		}
	}
}

// Everything that can be said with a pill has one.
func TestEveryStatusAndOutcomeHasAPill(t *testing.T) {
	for _, s := range query.Statuses() {
		if p, ok := statusPills[s]; !ok || p.Word == "" || p.Icon == "" {
			t.Errorf("the status %s has no pill", s)
		}
	}
	for _, o := range []stack.Outcome{stack.Succeeded, stack.Failed, stack.Stale, stack.Locked, stack.TimedOut, stack.Interrupted} {
		if _, ok := outcomePills[o]; !ok {
			t.Errorf("the outcome %s has no pill", o)
		}
	}
	if got := outcomePill("Unheard").Word; got != "Unheard" {
		t.Errorf("an outcome that is not known is shown as %q", got)
	}
}
