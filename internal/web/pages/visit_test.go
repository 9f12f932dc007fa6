package pages

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/html/atom"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/query"
)

// A page that shows what is known so far says so, wherever it is, and looks
// again soon.
func TestPagesSayThatMoreMayCome(t *testing.T) {
	some := access.Scope{In: map[string]bool{"net": true}, Unasked: 190}
	for name, s := range commons {
		v := guest(t, shire(), s.address)
		person(v)
		v.Scopes = scoped(some)
		p, err := s.handle(v)
		if err != nil {
			t.Fatal(err)
		}
		asks, often := v.Unasked() > 0, p.Live != (Live{})
		d := parse(t, v, p)
		if got := strings.Contains(d.text(), "190 namespaces left"); got != asks {
			t.Errorf("%s: that more may come is said: %t, want %t", name, got, asks)
		}
		if got := attr(d.all(is(atom.Main))[0], "data-live-every") == "1000"; got != (asks && often) {
			t.Errorf("%s: it refreshes soon: %t, want %t", name, got, asks && often)
		}
	}
	d := show(t, town(), "/stacks?q=checkout", func(v *Visit) (Page, error) {
		v.Scopes = scoped(some)
		return Stacks(v)
	})
	wants(t, d.text(), "No matches so far", "190 namespaces left")
	if strings.Contains(d.text(), "No matching stacks") {
		t.Error("the page says that there is nothing, before that is known")
	}
}

// Whether one namespace may be listed is found out at once.
func TestOneNamespaceIsAskedAbout(t *testing.T) {
	var asked []string
	v := &Visit{Scopes: scoped(access.Scope{In: map[string]bool{"net": true}, Unasked: 1}), Can: func(a access.Request) bool {
		asked = append(asked, a.Verb+" "+string(a.Resource)+" "+a.Namespace)
		return a.Namespace == "apps"
	}}
	if !v.Lists("net", "") || !v.Lists("apps", "") || v.Lists("hidden", "") {
		t.Error("of net, apps and hidden the first two may be listed")
	}
	if want := []string{"list stacks apps", "list stacks hidden"}; !slices.Equal(asked, want) {
		t.Errorf("asked was %q, want %q", asked, want)
	}
	v = &Visit{Scopes: scoped(access.Scope{In: map[string]bool{"net": true}}), Can: func(access.Request) bool { return true }}
	if v.Lists("apps", "") {
		t.Error("what is known to be refused is asked about again")
	}
}

func (b board) Tally(scope access.Scope, label string, values []string) ([]query.BoardGroup, error) {
	page, err := b.Page(scope, query.BoardQuery{Group: "label:" + label})
	return slices.DeleteFunc(page.Groups, func(g query.BoardGroup) bool { return !slices.Contains(values, g.Name) }), err
}

// The rights of an administrator are not asked for each namespace, and no right is
// asked twice.
func TestRightsAreAskedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		may  string // in this namespace; empty for all
		want []string
	}{
		"everywhere": {"", []string{""}},
		"in one":     {"apps", []string{"", "apps", "net"}},
	} {
		var mu sync.Mutex
		asked := map[string]int{}
		v := visitor(t, town(), "/drift")
		v.Can = func(a access.Request) bool {
			mu.Lock()
			defer mu.Unlock()
			if a.Name == "" {
				asked[a.Namespace]++
			}
			return a.Namespace == c.may || c.may == ""
		}
		rights := newStackRights(v, town().rows[:6])
		if got := slices.Sorted(maps.Keys(asked)); !slices.Equal(got, c.want) {
			t.Errorf("%s: asked was about %q, want %q", name, got, c.want)
		}
		for ns, may := range map[string]bool{"apps": true, "net": c.may == ""} {
			if why := rights.whyNot(query.Key{Namespace: ns, Name: "x"}); (why == "") != may {
				t.Errorf("%s: why not in %s: %q", name, ns, why)
			}
		}
	}
}
