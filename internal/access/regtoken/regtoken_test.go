package regtoken_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/access/regtoken"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/secret"
)

// clock is moved by a test.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// world is the records of an installation, and two controllers with them.
type world struct {
	store blob.Store
	clock *clock
	here  *regtoken.Book
	there *regtoken.Book
	logs  bytes.Buffer

	namespaces *namespaces
}

// namespaces are those of a cluster, by name.
type namespaces struct {
	mu    sync.Mutex
	all   map[string]access.Namespace
	fails error
}

func (n *namespaces) find(_ context.Context, name string) (access.Namespace, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fails != nil {
		return access.Namespace{}, n.fails
	}
	if found, ok := n.all[name]; ok {
		return found, nil
	}
	return access.Namespace{}, fault.New(fault.Missing, access.ReasonNotFound, errors.New("the namespace does not exist"))
}

func (n *namespaces) set(name string, to access.Namespace) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if to.UID == "" {
		delete(n.all, name)
		return
	}
	n.all[name] = to
}

func (n *namespaces) fail(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fails = err
}

func newWorld(t *testing.T) *world {
	t.Helper()
	files, err := blob.OpenFiles(t.TempDir(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := files.Close(); err != nil {
			t.Error(err)
		}
	})
	w := &world{store: files, clock: &clock{now: time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)}}
	w.namespaces = &namespaces{all: map[string]access.Namespace{"net": {UID: "net-1", Created: w.clock.now.Add(-time.Hour)}}}
	log := slog.New(slog.NewTextHandler(&w.logs, nil))
	w.here, w.there = regtoken.NewBook(files, w.namespaces.find, w.clock.Now, log), regtoken.NewBook(files, w.namespaces.find, w.clock.Now, log)
	return w
}

var ann = access.User{Name: "ann", UID: "1", Groups: []string{"dev", "system:authenticated"}, Extra: map[string][]string{"scopes": {"a"}}}

func (w *world) create(t *testing.T, wanted regtoken.Wanted) (regtoken.Token, secret.Text) {
	t.Helper()
	if wanted.Life == 0 {
		wanted.Life = time.Hour
	}
	if wanted.Name == "" {
		wanted.Name = "ci"
	}
	made, text, err := w.here.Create(t.Context(), wanted)
	if err != nil {
		t.Fatal(err)
	}
	return made, text
}

// RG-19, RG-20: a token stands for its user with all its groups, on each controller, until
// it is revoked or expires. Its record does not have it.
func TestATokenOfAUser(t *testing.T) {
	w := newWorld(t)
	made, text := w.create(t, regtoken.Wanted{User: ann, Name: "tofu login, host, today"})
	got, err := w.there.Authenticate(t.Context(), text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(ann, got); diff != "" {
		t.Errorf("the token stands for another user (-want +got):\n%s", diff)
	}
	r, err := w.store.Get(t.Context(), record.RegistryToken(made.ID))
	if err != nil {
		t.Fatal(err)
	}
	kept, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(text.Reveal(), ".")
	if strings.Contains(string(kept), parts[2]) || fmt.Sprint(text) == text.Reveal() {
		t.Errorf("the record has the token: %s", kept)
	}
	all, err := w.there.List(t.Context())
	if err != nil || len(all) != 1 || !cmp.Equal(all[0], made) {
		t.Errorf("List() = %+v, %v; want %+v", all, err, made)
	}

	if _, err := w.there.Revoke(t.Context(), made.ID, "ops"); err != nil {
		t.Fatal(err)
	}
	_, err = w.here.Authenticate(t.Context(), text)
	refused(t, err, regtoken.ReasonRevoked, text)
	if err != nil && !strings.Contains(err.Error(), "was revoked by ops on 2026-11-29 12:00:00") {
		t.Errorf("the refusal is %q", err)
	}
	w.clock.pass(time.Minute)
	if again, err := w.here.Revoke(t.Context(), made.ID, "eve"); err != nil || again.RevokedBy != "ops" || !again.Revoked.Equal(made.Created) {
		t.Errorf("a second Revoke() = %+v, %v; want what the first did", again, err)
	}
}

func refused(t *testing.T, err error, reason string, text secret.Text) {
	t.Helper()
	if fault.Of(err) != fault.Denied || fault.Reason(err, "") != reason {
		t.Errorf("the token is answered with %v, want Denied with %s", err, reason)
	}
	if err != nil && strings.Contains(err.Error(), text.Reveal()) {
		t.Errorf("the refusal has the token: %v", err)
	}
}

func TestTokensThatAreNone(t *testing.T) {
	w := newWorld(t)
	_, text := w.create(t, regtoken.Wanted{User: ann})
	parts := strings.Split(text.Reveal(), ".")
	for name, other := range map[string]string{
		"another secret":          strings.Join([]string{parts[0], parts[1], strings.Repeat("A", len(parts[2]))}, "."),
		"no secret":               parts[0] + "." + parts[1],
		"an empty secret":         parts[0] + "." + parts[1] + ".",
		"a secret that goes on":   text.Reveal() + "A",
		"another ID":              parts[0] + ".0123456789abcdef." + parts[2],
		"an ID in capitals":       parts[0] + "." + strings.ToUpper("abcdef0123456789") + "." + parts[2],
		"a path as an ID":         parts[0] + ".../../audit/1." + parts[2],
		"a record of another one": parts[0] + ".x/../" + parts[1] + "." + parts[2],
		"another form":            "eyJhbGciOiJub25lIn0.e30.",
		"no token":                "",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.here.Authenticate(t.Context(), secret.New(other))
			refused(t, err, regtoken.ReasonUnknown, text)
		})
	}
}

// A token ends at its end, is listed for a week, and then its record goes.
func TestExpiry(t *testing.T) {
	w := newWorld(t)
	_, text := w.create(t, regtoken.Wanted{User: ann})
	w.clock.pass(time.Hour - time.Second)
	if _, err := w.here.Authenticate(t.Context(), text); err != nil {
		t.Errorf("a second before its end: %v", err)
	}
	w.clock.pass(time.Second)
	_, err := w.here.Authenticate(t.Context(), text)
	refused(t, err, regtoken.ReasonExpired, text)
	if all, err := w.here.List(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("List() = %v, %v; want one that has expired", all, err)
	}
	w.clock.pass(7 * 24 * time.Hour)
	if all, err := w.here.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("List() = %v, %v; want none", all, err)
	}
	if keys, err := w.store.List(t.Context(), record.RegistryTokens()); err != nil || len(keys) != 0 {
		t.Errorf("the records are %v, %v; want none", keys, err)
	}
}

// The record of a revoked token goes a week after that, however long the token was for.
func TestRevokedTokensGo(t *testing.T) {
	w := newWorld(t)
	made, text := w.create(t, regtoken.Wanted{User: ann, Life: 300 * 24 * time.Hour})
	w.clock.pass(time.Hour)
	if _, err := w.here.Revoke(t.Context(), made.ID, "ann"); err != nil {
		t.Fatal(err)
	}
	w.clock.pass(7*24*time.Hour - time.Second)
	if all, err := w.here.List(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("within the week List() = %v, %v; want the revoked one", all, err)
	}
	w.clock.pass(time.Second)
	if all, err := w.here.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("after a week List() = %v, %v; want none", all, err)
	}
	_, err := w.here.Authenticate(t.Context(), text)
	refused(t, err, regtoken.ReasonUnknown, text)
}

func TestTokensThatCannotBe(t *testing.T) {
	w := newWorld(t)
	for name, wanted := range map[string]regtoken.Wanted{
		"no name":           {User: ann, Life: time.Hour},
		"lines":             {User: ann, Name: "a\nb", Life: time.Hour},
		"control":           {User: ann, Name: "a\x1b[0m", Life: time.Hour},
		"long":              {User: ann, Name: strings.Repeat("ä", 101), Life: time.Hour},
		"no life":           {User: ann, Name: "a"},
		"a negative life":   {User: ann, Name: "a", Life: -time.Hour},
		"more than a year":  {User: ann, Name: "a", Life: 367 * 24 * time.Hour},
		"of no one":         {Name: "a", Life: time.Hour},
		"of two":            {Name: "a", User: ann, Namespace: "net", Life: time.Hour},
		"of a part of ours": {Name: "a", User: access.User{Name: access.OwnUsers + "pull:net"}, Life: time.Hour},
	} {
		if _, _, err := w.here.Create(t.Context(), wanted); fault.Of(err) != fault.Invalid {
			t.Errorf("%s: Create() = %v, want Invalid", name, err)
		}
	}
}

// One user cannot fill the records.
func TestTokensOfOneOwnerAreBounded(t *testing.T) {
	w := newWorld(t)
	var last regtoken.Token
	for range 100 {
		last, _ = w.create(t, regtoken.Wanted{User: ann})
	}
	_, _, err := w.here.Create(t.Context(), regtoken.Wanted{User: ann, Name: "one more", Life: time.Hour})
	if fault.Of(err) != fault.Invalid || fault.Reason(err, "") != regtoken.ReasonMany {
		t.Errorf("one more is %v, want Conflict", err)
	}
	w.create(t, regtoken.Wanted{Namespace: "net", By: "ann"})
	if _, err := w.here.Revoke(t.Context(), last.ID, "ann"); err != nil {
		t.Fatal(err)
	}
	w.create(t, regtoken.Wanted{User: ann})
}

// Nor with tokens that are revoked at once: the oldest of them go.
func TestEndedTokensOfOneOwnerAreBounded(t *testing.T) {
	w := newWorld(t)
	other, _ := w.create(t, regtoken.Wanted{Namespace: "net", By: "ann"})
	if _, err := w.here.Revoke(t.Context(), other.ID, "ann"); err != nil {
		t.Fatal(err)
	}
	var first, last regtoken.Token
	for i := range 103 {
		w.clock.pass(time.Second)
		last, _ = w.create(t, regtoken.Wanted{User: ann})
		if i == 0 {
			first = last
		}
		if _, err := w.here.Revoke(t.Context(), last.ID, "ann"); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := w.here.List(t.Context()); err != nil || len(all) != 102 {
		t.Errorf("there are %d tokens, %v; want 101 of ann, and one of the namespace", len(all), err)
	}
	if _, err := w.here.Get(t.Context(), first.ID); fault.Of(err) != fault.Missing {
		t.Errorf("the first one is there: %v", err)
	}
	for _, kept := range []string{last.ID, other.ID} {
		if _, err := w.here.Get(t.Context(), kept); err != nil {
			t.Errorf("%s is gone: %v", kept, err)
		}
	}
}

// cluster is an authority that says yes to one right, and knows one token.
type cluster struct {
	may   access.Request
	asked *[]string
}

func (c cluster) Authenticate(_ context.Context, t secret.Text) (access.User, error) {
	*c.asked = append(*c.asked, t.Reveal())
	return access.User{Name: t.Reveal()}, nil
}

func (c cluster) Authorize(_ context.Context, u access.User, x access.Request) error {
	*c.asked = append(*c.asked, u.Name)
	if x == c.may {
		return nil
	}
	return fault.New(fault.Denied, access.ReasonAccessDenied, errors.New("no"))
}

// RG-19: tokens of a namespace read there, or read and write, and nothing else. The cluster
// is never asked about them.
func TestATokenOfANamespace(t *testing.T) {
	w := newWorld(t)
	var asked []string
	g := regtoken.Guard{Authority: cluster{asked: &asked}}
	right := func(verb, namespace string) access.Request {
		return access.Request{Verb: verb, Resource: access.ResourceRegistry, Namespace: namespace}
	}
	for _, write := range []bool{false, true} {
		_, text := w.create(t, regtoken.Wanted{Namespace: "net", Write: write, By: "ann"})
		u, err := w.there.Authenticate(t.Context(), text)
		if err != nil {
			t.Fatal(err)
		}
		if in, ok := regtoken.NamespaceOf(u); in != "net" || !ok || !strings.HasPrefix(u.Name, access.OwnUsers) {
			t.Errorf("NamespaceOf(%+v) = %q, %v", u, in, ok)
		}
		for x, want := range map[access.Request]bool{
			right("get", "net"): true, right("update", "net"): write, right("get", ""): false, right("get", "net2"): false, right("update", ""): false, right("delete", "net"): false,
			{Verb: "get", Resource: access.ResourceStacks, Namespace: "net"}: false, {Verb: "get", Resource: access.ResourceState, Namespace: "net"}: false,
		} {
			if err := g.Authorize(t.Context(), u, x); (err == nil) != want || err != nil && fault.Of(err) != fault.Denied {
				t.Errorf("write %v: %+v is %v, want %v", write, x, err, want)
			}
		}
		if _, err := g.Authenticate(t.Context(), text); fault.Of(err) != fault.Denied || fault.Reason(err, "") != regtoken.ReasonOnly {
			t.Errorf("elsewhere the token is %v, want Denied", err)
		}
	}
	if asked != nil {
		t.Errorf("the cluster was asked about %v", asked)
	}
	if _, err := g.Authenticate(t.Context(), secret.New(access.OwnUsers+"registry:net:ci")); fault.Of(err) != fault.Denied {
		t.Errorf("a user of the cluster with a name of ours is %v, want Denied", err)
	}
	forged := access.User{Name: access.OwnUsers + "registry:net:ci"}
	if err := g.Authorize(t.Context(), forged, right("get", "net")); fault.Of(err) != fault.Denied {
		t.Errorf("a name alone may %v, want Denied", err)
	}
	if err := g.Authorize(t.Context(), access.User{Name: "ann"}, right("get", "net")); fault.Of(err) != fault.Denied || len(asked) != 2 {
		t.Errorf("a user of the cluster is %v, after %v; want what the cluster says", err, asked)
	}
}

// Users see and revoke their own tokens, and those of namespaces where they may publish.
func TestWhoSeesTokens(t *testing.T) {
	all := []regtoken.Token{{ID: "1", User: "ann"}, {ID: "2", User: "bob"}, {ID: "3", Namespace: "net"}, {ID: "4", Namespace: "dns"}}
	may := func(namespaces ...string) regtoken.Can {
		return func(x access.Request) error {
			for _, n := range namespaces {
				if x.Verb == "update" && x.Resource == access.ResourceRegistry && (x.Namespace == n || n == "") {
					return nil
				}
			}
			return fault.New(fault.Denied, access.ReasonAccessDenied, errors.New("no"))
		}
	}
	for name, tt := range map[string]struct {
		who  string
		can  regtoken.Can
		want string
	}{
		"an owner":            {"ann", may(), "1"},
		"a publisher":         {"ann", may("net"), "13"},
		"an operator":         {"ops", may(""), "1234"},
		"no one":              {"", may(), ""},
		"a user without any":  {"eve", may(), ""},
		"a ServiceAccount ci": {"system:serviceaccount:net:ci", may("net", "dns"), "34"},
	} {
		seen, err := regtoken.Visible(all, access.User{Name: tt.who}, tt.can)
		got := ""
		for _, x := range seen {
			got += x.ID
		}
		if got != tt.want || err != nil {
			t.Errorf("%s sees %q, %v; want %q", name, got, err, tt.want)
		}
	}
	down := errors.New("down")
	if _, err := regtoken.Visible(all, access.User{Name: "ann"}, func(access.Request) error { return down }); !errors.Is(err, down) {
		t.Errorf("without the cluster it is %v", err)
	}
}

// A record that cannot be read lets no token in, and stops no other one.
func TestRecordsThatCannotBeRead(t *testing.T) {
	w := newWorld(t)
	made, text := w.create(t, regtoken.Wanted{User: ann})
	if err := w.store.Put(t.Context(), record.RegistryToken(made.ID), strings.NewReader("{")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.here.Authenticate(t.Context(), text); fault.Of(err) != fault.Broken {
		t.Errorf("Authenticate() = %v, want Broken", err)
	}
	other, _ := w.create(t, regtoken.Wanted{User: ann})
	if all, err := w.there.List(t.Context()); err != nil || len(all) != 1 || all[0].ID != other.ID {
		t.Errorf("List() = %v, %v; want the other token", all, err)
	}
	if logs := w.logs.String(); !strings.Contains(logs, record.RegistryToken(made.ID)) {
		t.Errorf("the log does not name the record:\n%s", logs)
	}
	if _, err := w.store.Get(t.Context(), record.RegistryToken(made.ID)); err != nil {
		t.Errorf("the record is gone: %v", err)
	}
}
