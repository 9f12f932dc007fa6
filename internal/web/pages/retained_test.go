package pages

import (
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
)

// may grants exactly these rights, each as "verb resource namespace/name".
func may(rights ...string) func(*Visit) {
	return func(v *Visit) {
		v.Can = func(a access.Request) bool {
			return slices.Contains(rights, a.Verb+" "+string(a.Resource)+" "+a.Namespace+"/"+a.Name)
		}
	}
}

func TestWhatStacksLeftSaysWhatToDo(t *testing.T) {
	d := screen(t, shire(), "/retained", Retained, may("list stacks apps/", "list stacks gone/"))
	wants(t, d.text(), "terrier.dev/deletion is retain", "Secret tfstate-default-mail", "2 resources", "207 resources", "and 7 more", "2 untracked resources",
		"create the stack again", "its object was removed by force", "not stored here", "A stack with this name exists", "stacks 1–3 of 3")
	for _, n := range d.all(is(atom.A)) {
		if strings.Contains(attr(n, "href"), "/state?") {
			t.Errorf("who may read no state is offered %q", attr(n, "href"))
		}
	}
}

// Each row offers what the visitor may do with it, whether they may so on
// everything, in a namespace, or on that one.
func TestWhatStacksLeftIsOfferedByRight(t *testing.T) {
	for name, tt := range map[string]struct {
		rights        []string
		files, forget []string
	}{
		"nothing":      {nil, nil, nil},
		"everything":   {[]string{"get stacks/state /", "delete stacks /"}, []string{"/retained/apps/mail/state?uid=u1", "/retained/apps/cart/state?uid=u2"}, []string{"/retained/apps/mail/forget", "/retained/apps/cart/forget", "/retained/gone/last/forget"}},
		"in one":       {[]string{"get stacks/state gone/", "delete stacks gone/"}, nil, []string{"/retained/gone/last/forget"}},
		"on one stack": {[]string{"get stacks/state apps/cart", "delete stacks apps/mail"}, []string{"/retained/apps/cart/state?uid=u2"}, []string{"/retained/apps/mail/forget"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := screen(t, shire(), "/retained", Retained, may(append(tt.rights, "list stacks apps/", "list stacks gone/")...))
			var files, forget []string
			for _, n := range d.all(is(atom.A)) {
				if strings.Contains(attr(n, "href"), "/state?") {
					files = append(files, attr(n, "href"))
				}
			}
			for _, n := range d.all(is(atom.Form)) {
				if strings.HasPrefix(attr(n, "action"), "/retained/") {
					forget = append(forget, attr(n, "action"))
				}
			}
			if !slices.Equal(files, tt.files) || !slices.Equal(forget, tt.forget) {
				t.Errorf("states %q and forms %q, want %q and %q", files, forget, tt.files, tt.forget)
			}
		})
	}
}

// What a stack left whose namespace was deleted is shown, and offered, for permissions in all
// namespaces. Those in a namespace of that name count for nothing.
func TestWhatFormerNamespacesLeft(t *testing.T) {
	here := []string{"list stacks apps/", "get stacks/state apps/", "delete stacks apps/"}
	for name, tt := range map[string]struct {
		rights             []string
		row, state, forget bool
	}{
		"in the namespace": {here, false, false, false},
		"lists all":        {append(here, "list stacks /"), true, false, false},
		"reads all":        {append(here, "list stacks /", "get stacks/state /"), true, true, false},
		"deletes all":      {append(here, "list stacks /", "delete stacks /"), true, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := shire()
			c.left = []command.Retained{{Namespace: "apps", Name: "ledger", UID: "u9", Former: true, Kept: true, Why: "w"}}
			d := screen(t, c, "/retained", Retained, may(tt.rights...))
			if got := strings.Contains(d.text(), "its namespace was deleted"); got != tt.row || strings.Contains(d.text(), "ledger") != tt.row {
				t.Errorf("it is shown: %v, want %v", got, tt.row)
			}
			state := slices.ContainsFunc(d.all(is(atom.A)), func(n *html.Node) bool { return strings.HasPrefix(attr(n, "href"), "/retained/apps/ledger/state") })
			forget := slices.ContainsFunc(d.all(is(atom.Form)), func(n *html.Node) bool { return attr(n, "action") == "/retained/apps/ledger/forget" })
			if state != tt.state || forget != tt.forget {
				t.Errorf("its state is offered: %v, and to forget it: %v; want %v and %v", state, forget, tt.state, tt.forget)
			}
		})
	}
}

// One is forgotten if its name was typed; a second click does nothing and says
// the same.
func TestForgettingWhatAStackLeft(t *testing.T) {
	lost := errors.New("the disk is full")
	for name, tt := range map[string]struct {
		form      url.Values
		err       error // of the first click
		kind      fault.Kind
		forgotten int // after two clicks
	}{
		"twice":            {url.Values{"uid": {"u1"}, "name": {"mail"}}, nil, "", 1},
		"nothing typed":    {url.Values{"uid": {"u1"}}, nil, fault.Invalid, 0},
		"another name":     {url.Values{"uid": {"u1"}, "name": {"cart"}}, nil, fault.Invalid, 0},
		"which is not set": {url.Values{"name": {"mail"}}, nil, fault.Invalid, 0},
		"one of another":   {url.Values{"uid": {"u2"}, "name": {"mail"}}, nil, "", 0},
		"it fails":         {url.Values{"uid": {"u1"}, "name": {"mail"}}, lost, fault.Broken, 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := shire()
			forgotten, fails := 0, tt.err
			click := func() (Done, error) {
				v := guest(t, c, "/retained")
				v.Names, v.Form = map[string]string{"namespace": "apps", "name": "mail"}, tt.form
				v.Forget = func(_ query.Key, uid string) error {
					if fails != nil {
						return fails
					}
					forgotten++
					c.left = slices.DeleteFunc(c.left, func(r command.Retained) bool { return r.UID == uid })
					return nil
				}
				return ForgetRetained(v)
			}
			_, err := click()
			if err == nil && tt.kind != "" || err != nil && fault.Of(err) != tt.kind {
				t.Errorf("the first click is %v, want %q", err, tt.kind)
			}
			fails = nil
			done, err := click()
			if tt.kind != fault.Invalid && (err != nil || done != Done{To: "/retained", Said: "retained-forgotten"}) {
				t.Errorf("the second click is %+v, %v", done, err)
			}
			if forgotten != tt.forgotten {
				t.Errorf("it is forgotten %d times, want %d", forgotten, tt.forgotten)
			}
		})
	}
}

// A page that is not there leads to what its stack left, for who may see that.
func TestADeletedStackLeadsToWhatItLeft(t *testing.T) {
	gone := command.Refusal{Error: "gone", Kind: fault.Missing, Reason: access.ReasonNotFound}
	for name, tt := range map[string]struct {
		kept, may, want bool
	}{
		"with permission":    {true, true, true},
		"without permission": {true, false, false},
		"no records":         {false, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := guest(t, shire(), "/stacks/apps/mail/runs")
			if !tt.kept {
				v.Backend.Retained = nil
			}
			v.Can = func(a access.Request) bool {
				return tt.may && a == access.Request{Verb: "list", Resource: access.ResourceStacks, Namespace: "apps"}
			}
			leads := slices.Contains(Failed(v, gone, "req-1").Data.(failure).Links, link{"Retained resources of the stack", "/retained?name=mail&namespace=apps"})
			if leads != tt.want {
				t.Errorf("it leads there: %v, want %v", leads, tt.want)
			}
		})
	}
}
