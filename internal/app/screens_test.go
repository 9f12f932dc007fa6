package app

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/engine"
)

// listed is a reader that remembers what it was asked for.
type listed struct {
	client.WithWatch
	asked []client.ListOptions
	err   error
}

func (l *listed) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	l.asked = append(l.asked, o)
	list.SetContinue("continue-not-supported") // as the cache of controllers does
	return l.err
}

// Lists of tenants come from the cache, whole; everything else, and what is asked
// before there is a cache, from the API server.
func TestListsOfTenantsComeFromTheCache(t *testing.T) {
	chosen, err := labels.Parse("tier=gold")
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		list    client.ObjectList
		err     error
		cached  int
		servers int
	}{
		"tenants":                 {&tenantsv1.TenantList{}, nil, 1, 0},
		"registries":              {&tenantsv1.TenantRegistryList{}, nil, 1, 0},
		"templates":               {&tenantsv1.TenantTemplateList{}, nil, 1, 0},
		"anything else":           {&corev1.EventList{}, nil, 0, 1},
		"before there is a cache": {&tenantsv1.TenantList{}, &cache.ErrCacheNotStarted{}, 1, 1},
		"the cache fails":         {&tenantsv1.TenantList{}, errors.New("it fails"), 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			kept, server := &listed{err: tt.err}, &listed{}
			l := &tenantLists{WithWatch: server, cache: kept}
			err := l.List(t.Context(), tt.list, client.InNamespace("apps"), client.MatchingLabelsSelector{Selector: chosen}, client.Limit(250), client.Continue("next"))
			if (err != nil) != (tt.err != nil && tt.servers == 0) {
				t.Errorf("List() = %v", err)
			}
			if more := tt.list.GetContinue() != ""; more != (tt.servers > 0) {
				t.Errorf("there is a next page: %v; want one only of what has pages", more)
			}
			if len(kept.asked) != tt.cached || len(server.asked) != tt.servers {
				t.Fatalf("%d questions to the cache and %d to the server, want %d and %d", len(kept.asked), len(server.asked), tt.cached, tt.servers)
			}
			for _, o := range kept.asked {
				if o.Namespace != "apps" || o.LabelSelector.String() != "tier=gold" || o.Limit != 0 || o.Continue != "" {
					t.Errorf("the cache was asked for %+v, want all of a page's list at once", o)
				}
			}
			for _, o := range server.asked {
				if o.Namespace != "apps" || o.Limit != 250 || o.Continue != "next" {
					t.Errorf("the server was asked for %+v, want what was asked", o)
				}
			}
		})
	}
}

// Engines are asked once in a while, and not for a caller that has gone away.
func TestEnginesAreAskedNowAndThen(t *testing.T) {
	at, asked := time.Unix(1e9, 0), 0
	p := &programs{names: []string{"old", "gone"}, now: func() time.Time { return at }, find: func(_ context.Context, name string) (engine.Engine, error) {
		asked++
		if name == "gone" {
			return engine.Engine{}, errors.New("there is no such file")
		}
		return engine.Engine{Name: "tofu", Version: "1.12.6"}, nil
	}}
	left, leave := context.WithCancel(t.Context())
	leave()
	p.list(left)
	got := p.list(t.Context())
	p.list(t.Context())
	if asked != 6 {
		t.Errorf("%d questions, want three for who left and three for all others", asked)
	}
	if len(got) != 3 || got[0].Version != "tofu 1.12.6" || got[1].Name != "old" || got[2].Trouble != "there is no such file" {
		t.Errorf("engines %+v", got)
	}
	if at = at.Add(programsKept); len(p.list(t.Context())) != 3 || asked != 9 {
		t.Errorf("%d questions, want them asked again later", asked)
	}
}

func TestNamesOfEngines(t *testing.T) {
	if got := engineNames([]string{"old=/usr/bin/terraform", "new=/opt/a=b"}); len(got) != 2 || got[0] != "old" || got[1] != "new" {
		t.Errorf("engineNames() = %v", got)
	}
}
