package usedby_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan/usage"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/query/usedby"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// shelf keeps records in memory.
type shelf struct {
	mu    sync.Mutex
	kept  map[string]usage.Record
	fails bool
	reads int
}

func (s *shelf) Uses(_ context.Context, id query.StackID) (usage.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	if s.fails {
		return usage.Record{}, errors.New("the disk does not answer")
	}
	r, ok := s.kept[id.UID]
	if !ok {
		return r, fault.New(fault.Missing, query.ReasonNoUses, errors.New("not known"))
	}
	return r, nil
}

func (s *shelf) keep(uid string, u usage.Usage) (digest string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept[uid] = usage.Record{At: noon, Usage: u.Since(s.kept[uid].Usage, noon)}
	return u.Digest()
}

func registryModule(path, address, version string) usage.Module {
	return usage.Module{Path: path, Source: address, Location: usage.Location{Kind: usage.Registry, Address: address}, Version: version, Constraint: "~> 1.0"}
}

func gitModule(path, ref string) usage.Module {
	source := "git::https://git.example.com/team/mods.git?ref=" + ref
	o := usage.ParseSource(source, "")
	return usage.Module{Path: path, Source: source, Location: o.Location, Version: o.Version, Commit: "0123"}
}

const own, public = "registry.example.com/net/vpc/aws", "registry.opentofu.org/net/vpc/aws"

func aws(version string) usage.Provider {
	return usage.Provider{Source: "registry.opentofu.org/hashicorp/aws", Version: version}
}

// world is an index with three stacks in two namespaces.
type world struct {
	t     *testing.T
	shelf *shelf
	index *usedby.Index
}

func newWorld(t *testing.T) *world {
	s := &shelf{kept: map[string]usage.Record{}}
	w := &world{t, s, usedby.New(s, slog.New(slog.DiscardHandler))}
	w.note("net", "a", usage.Usage{Modules: []usage.Module{registryModule("module.one", own, "1.2.0"), registryModule("module.two", own, "1.2.0"), gitModule("module.g", "v1.0.0")}, Providers: []usage.Provider{aws("6.0.0")}})
	w.note("net", "b", usage.Usage{Modules: []usage.Module{registryModule("module.x.module.vpc", own, "1.10.0"), registryModule("module.old", own, "1.2.0")}, Providers: []usage.Provider{aws("5.9.1"), {Source: "terraform.io/builtin/terraform"}}})
	w.note("apps", "c", usage.Usage{Modules: []usage.Module{registryModule("module.p", public, "2.0.0"), {Path: "module.l", Source: "./l", Location: usage.Location{Kind: usage.Local, Directory: "./l"}}}})
	w.index.Synced()
	return w
}

func key(namespace, name string) query.Key { return query.Key{Namespace: namespace, Name: name} }

func (w *world) note(namespace, name string, u usage.Usage) {
	w.index.Note(key(namespace, name), namespace+name, w.shelf.keep(namespace+name, u.Tidy()))
}

// ask runs the index until nothing is unread, and asks.
func (w *world) ask(scope access.Scope, q usedby.Question) usedby.Answer {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Minute)
	var done sync.WaitGroup
	done.Go(func() {
		if err := w.index.Run(ctx); err != nil {
			w.t.Error(err)
		}
	})
	defer done.Wait()
	defer cancel()
	for {
		a, err := w.index.Ask(scope, q)
		if err != nil {
			w.t.Fatal(err)
		}
		if a.Unread == 0 || ctx.Err() != nil {
			return a
		}
	}
}

func uses(a usedby.Answer) []string {
	out := []string{}
	for _, u := range a.Items {
		out = append(out, fmt.Sprint(u.Key(), " ", u.Version, " ", u.Calls))
	}
	return out
}

var all = access.Scope{All: true}

func TestWhoUses(t *testing.T) {
	w := newWorld(t)
	for name, tt := range map[string]struct {
		scope access.Scope
		q     usedby.Question
		want  []string
	}{
		"a module of any registry": {all, usedby.Question{Module: "net/vpc/aws"},
			[]string{"apps/c 2.0.0 [module.p]", "net/a 1.2.0 [module.one module.two]", "net/b 1.10.0 [module.x.module.vpc]", "net/b 1.2.0 [module.old]"}},
		"a module of one registry":   {all, usedby.Question{Module: public}, []string{"apps/c 2.0.0 [module.p]"}},
		"in a range of versions":     {all, usedby.Question{Module: own, Versions: "~> 1.5"}, []string{"net/b 1.10.0 [module.x.module.vpc]"}},
		"in one version":             {all, usedby.Question{Module: own, Exact: "1.2.0"}, []string{"net/a 1.2.0 [module.one module.two]", "net/b 1.2.0 [module.old]"}},
		"a repository":               {all, usedby.Question{Module: "https://git.example.com/team/mods"}, []string{"net/a v1.0.0 [module.g]"}},
		"a repository by its ref":    {all, usedby.Question{Module: "git.example.com/team/mods", Versions: "v1.0.0"}, []string{"net/a v1.0.0 [module.g]"}},
		"a tag in a range":           {all, usedby.Question{Module: "git.example.com/team/mods", Versions: "< 2"}, []string{"net/a v1.0.0 [module.g]"}},
		"a ref that no stack has":    {all, usedby.Question{Module: "git.example.com/team/mods", Versions: "main"}, []string{}},
		"a provider":                 {all, usedby.Question{Provider: "hashicorp/aws"}, []string{"net/a 6.0.0 []", "net/b 5.9.1 []"}},
		"a provider with its host":   {all, usedby.Question{Provider: "registry.opentofu.org/hashicorp/aws", Versions: "< 6.0"}, []string{"net/b 5.9.1 []"}},
		"a provider of another host": {all, usedby.Question{Provider: "registry.terraform.io/hashicorp/aws"}, []string{}},
		"one that is built in":       {all, usedby.Question{Provider: "terraform.io/builtin/terraform"}, []string{}},
		"what nothing uses":          {all, usedby.Question{Module: "net/none/aws"}, []string{}},
		"of one namespace":           {all, usedby.Question{Module: "net/vpc/aws", Namespace: "apps"}, []string{"apps/c 2.0.0 [module.p]"}},
		"only what a user may list":  {access.Scope{In: map[string]bool{"apps": true}}, usedby.Question{Module: "net/vpc/aws"}, []string{"apps/c 2.0.0 [module.p]"}},
		"nothing that a user may":    {access.Scope{}, usedby.Question{Provider: "hashicorp/aws"}, []string{}},
		"the second page":            {all, usedby.Question{Module: own, Offset: 1, Limit: 1}, []string{"net/b 1.10.0 [module.x.module.vpc]"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := w.ask(tt.scope, tt.q)
			if diff := cmp.Diff(tt.want, uses(got)); diff != "" {
				t.Errorf("uses differ (-want +got):\n%s", diff)
			}
		})
	}
	got := w.ask(all, usedby.Question{Module: own, Versions: "1.10.0"})
	want := usedby.Answer{Total: 1, Stacks: 1, Versions: []usedby.VersionCount{{Version: "1.10.0", Stacks: 1}, {Version: "1.2.0", Stacks: 2}}}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(usedby.Answer{}, "Items")); diff != "" {
		t.Errorf("counts differ (-want +got):\n%s", diff)
	}
	if u := got.Items[0]; !u.Since.Equal(noon) || u.Constraint != "~> 1.0" || u.Address != own {
		t.Errorf("the use is %+v", u)
	}
}

// A question that means nothing is refused with a way out.
func TestQuestionsThatMeanNothing(t *testing.T) {
	w := newWorld(t)
	for name, q := range map[string]usedby.Question{
		"no address":         {},
		"a directory":        {Module: "./x"},
		"no provider":        {Provider: "aws"},
		"no range":           {Module: own, Versions: ">= y"},
		"a negative offset":  {Module: own, Offset: -1},
		"a negative limit":   {Module: own, Limit: -1},
		"a range and one":    {Module: own, Versions: "< 2", Exact: "1.0.0"},
		"a space in a range": {Module: own, Versions: "a b"},
	} {
		if _, err := w.index.Ask(all, q); fault.Of(err) != fault.Invalid {
			t.Errorf("%s: Ask() = %v, want Invalid", name, err)
		}
	}
}

// The index follows what stacks use, and forgets stacks that are gone.
func TestTheIndexFollows(t *testing.T) {
	w := newWorld(t)
	module := usedby.Question{Module: own}
	w.ask(all, module)
	w.note("net", "a", usage.Usage{Modules: []usage.Module{registryModule("module.one", own, "1.3.0")}})
	if got := uses(w.ask(all, module)); got[0] != "net/a 1.3.0 [module.one]" || len(got) != 3 {
		t.Errorf("after a new version: %q", got)
	}
	before := w.shelf.reads
	w.note("net", "a", w.shelf.kept["neta"].Usage)
	if w.ask(all, module); w.shelf.reads != before {
		t.Errorf("a record that did not change was read %d times", w.shelf.reads-before)
	}
	w.index.Note(key("net", "b"), "another", w.shelf.keep("another", usage.Usage{}))
	if got := uses(w.ask(all, module)); len(got) != 1 {
		t.Errorf("after a stack was made again: %q", got)
	}
	w.index.Drop(key("net", "a"))
	if got := w.ask(all, module); got.Total != 0 {
		t.Errorf("after a stack is gone: %q", uses(got))
	}
}

// An answer says what it does not know.
func TestAnswersSayWhatIsNotKnown(t *testing.T) {
	w := newWorld(t)
	if _, err := usedby.New(w.shelf, slog.New(slog.DiscardHandler)).Ask(all, usedby.Question{Module: own}); fault.Of(err) != fault.Later {
		t.Errorf("before all stacks were noted: %v, want Later", err)
	}
	got, err := w.index.Ask(all, usedby.Question{Module: own})
	if err != nil || got.Unread != 3 || got.Total != 0 {
		t.Errorf("before records were read: %+v, %v", got, err)
	}
	w.index.Note(key("net", "new"), "new", "")
	w.index.Note(key("net", "lost"), "lost", "sha256:lost")
	if got := w.ask(all, usedby.Question{Module: own}); got.Unread != 0 || got.Unknown != 2 {
		t.Errorf("of stacks without a record: %+v", got)
	}
	if got := w.ask(access.Scope{In: map[string]bool{"apps": true}}, usedby.Question{Module: own}); got.Unknown != 0 {
		t.Errorf("a user hears of %d stacks that the user may not list", got.Unknown)
	}
	w.shelf.fails = true
	w.index.Note(key("net", "a"), "neta", "sha256:other")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.index.Run(ctx); err != nil {
		t.Error(err)
	}
	if got, err := w.index.Ask(all, usedby.Question{Module: own, Namespace: "net"}); err != nil || got.Unread != 1 || uses(got)[0] != "net/a 1.2.0 [module.one module.two]" {
		t.Errorf("while a record cannot be read: %+v, %v, want what was known", got, err)
	}
}

// The pages of the registry show who uses what it publishes, under each of its names, and how
// many other stacks do.
func TestWhoUsesWhatARegistryPublishes(t *testing.T) {
	w := newWorld(t)
	w.note("net", "own", usage.Usage{Modules: []usage.Module{registryModule("module.a", "127.0.0.1:8443/net/vpc/aws", "1.0.0")}, Providers: []usage.Provider{{Source: "registry.example.com/net/dns", Version: "2.0.0"}}})
	w.ask(all, usedby.Question{Module: own})
	p := usedby.Published{Index: w.index, Hosts: func() []string { return []string{"registry.example.com", "127.0.0.1:8443"} }}
	vpc := address.Module{Namespace: "net", Name: "vpc", System: "aws"}
	got, err := p.OfModule(t.Context(), access.Scope{In: map[string]bool{"net": true}}, vpc)
	var said []string
	for _, u := range got.Items {
		said = append(said, fmt.Sprint(u.Stack, " ", u.Version, " ", u.Path))
	}
	want := []string{"net/a 1.2.0 module.one", "net/a 1.2.0 module.two", "net/b 1.10.0 module.x.module.vpc", "net/b 1.2.0 module.old", "net/own 1.0.0 module.a"}
	if diff := cmp.Diff(want, said); err != nil || diff != "" || got.Hidden != 0 {
		t.Errorf("uses differ, %d hidden (-want +got): %v\n%s", got.Hidden, err, diff)
	}
	if got, err := p.OfModule(t.Context(), access.Scope{In: map[string]bool{"apps": true}}, vpc); err != nil || len(got.Items) != 0 || got.Hidden != 3 {
		t.Errorf("of a user who may view other stacks: %+v, %v", got, err)
	}
	for provider, stack := range map[address.Provider]string{
		{Namespace: "net", Type: "dns"}: "net/own", {Host: "registry.opentofu.org", Namespace: "hashicorp", Type: "aws"}: "net/a",
	} {
		if got, err := p.OfProvider(t.Context(), all, provider); err != nil || len(got.Items) == 0 || got.Items[0].Stack.String() != stack {
			t.Errorf("of %s: %+v, %v", provider, got, err)
		}
	}
}

// Any question about five thousand stacks is answered from memory.
func BenchmarkAsk(b *testing.B) {
	s := &shelf{kept: map[string]usage.Record{}}
	index := usedby.New(s, slog.New(slog.DiscardHandler))
	for i := range 5000 {
		uid := fmt.Sprintf("u%d", i)
		u := usage.Usage{Modules: []usage.Module{registryModule("module.vpc", own, fmt.Sprintf("1.%d.0", i%40))}, Providers: []usage.Provider{aws("6.0.0")}}
		index.Note(key(fmt.Sprintf("ns%d", i%200), uid), uid, s.keep(uid, u))
	}
	index.Synced()
	ctx, cancel := context.WithCancel(b.Context())
	var done sync.WaitGroup
	done.Go(func() { _ = index.Run(ctx) })
	for {
		if a, err := index.Ask(all, usedby.Question{Module: own}); err != nil || a.Unread == 0 {
			break
		}
	}
	cancel()
	done.Wait()
	for b.Loop() {
		if a, err := index.Ask(all, usedby.Question{Module: own, Versions: "< 1.20"}); err != nil || a.Total != 2500 {
			b.Fatal(a.Total, err)
		}
	}
}
