package pages

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
)

// The text of the form reaches the engine as it is, one argument a line, in the
// session and under the id that the page was made with.
func TestBreakGlassCommandsFromForms(t *testing.T) {
	e := town()
	begin := show(t, e, "/stacks/apps/cart/break-glass", StackBreakGlass).forms("/break-glass")
	if len(begin) != 1 {
		t.Fatalf("%d forms begin a session, want one", len(begin))
	}
	d, h, err := post(t, e, begin[0].To, begin[0].Fields, BreakGlass)
	if err != nil || d.To != "/stacks/apps/cart/break-glass" || cmp.Diff(h.done, []string{"break glass apps/cart"}) != "" {
		t.Errorf("%+v, %v, done %q; want the glass broken", d, err, h.done)
	}
	open := show(t, e, "/stacks/apps/byhand/break-glass", StackBreakGlass)
	run, end := open.forms("/break-glass/run"), open.forms("/break-glass/end")
	if len(run) != 1 || len(end) != 1 || len(open.forms("/byhand/break-glass")) != 0 {
		t.Fatalf("%d and %d forms, want one to run a command and one to end the session", len(run), len(end))
	}
	order := run[0].Fields.Get("order")
	run[0].Fields["command"], run[0].Fields["args"] = []string{"state mv"}, []string{"  a.b[\"x y\"]\r\n\r\nmodule.c.a.b\r\n"}
	d, h, err = post(t, e, run[0].To, run[0].Fields, RunCommand)
	want := []string{`run by hand apps/byhand ` + order + ` s ["state" "mv" "a.b[\"x y\"]" "module.c.a.b"]`}
	if err != nil || order == "" || Sentence(d.Said) == "" || cmp.Diff(h.done, want) != "" {
		t.Errorf("%+v, %v; commanded (-got +want):\n%s", d, err, cmp.Diff(h.done, want))
	}
	if _, h, err = post(t, e, run[0].To, url.Values{"args": {"x"}}, RunCommand); fault.Of(err) != fault.Invalid || len(h.done) != 0 {
		t.Errorf("without a command: %v, done %q", err, h.done)
	}
	if _, h, err = post(t, e, end[0].To, end[0].Fields, EndBreakGlass); err != nil || cmp.Diff(h.done, []string{"end glass apps/byhand"}) != "" {
		t.Errorf("%v, done %q; want the session ended", err, h.done)
	}
	if n := len(show(t, e, "/stacks/apps/commanded/break-glass", StackBreakGlass).forms("/break-glass/run")); n != 0 {
		t.Error("a second command can be asked for while the first is on its way")
	}
}

// Where a user may not start a break-glass session, or not now, the page says so.
func TestBreakGlassIsNotOfferedInVain(t *testing.T) {
	for name, tt := range map[string]struct {
		edit func(*Visit, *query.Stack)
		want string
	}{
		"not on this platform": {func(v *Visit, _ *query.Stack) { v.Backend.Platform.Glass = 0 }, "--allow-break-the-glass"},
		"suspended":            {func(_ *Visit, s *query.Stack) { s.Suspended = true }, "Resume it first."},
		"deleted":              {func(_ *Visit, s *query.Stack) { s.Deleting = true }, "is being deleted"},
		"possible":             {func(*Visit, *query.Stack) {}, ""},
		"over":                 {func(v *Visit, s *query.Stack) { s.BreakGlass = &stack.BreakGlass{Until: v.Now} }, ""},
		"open, and suspended": {func(v *Visit, s *query.Stack) {
			s.BreakGlass, s.Suspended = &stack.BreakGlass{Until: v.Now.Add(1)}, true
		}, ""},
	} {
		v := visitor(t, town(), "/stacks/apps/cart")
		s := row("apps", "cart", query.StatusReady, nil).Stack
		tt.edit(v, &s)
		if b := breakGlassButton(v, s, ""); (b.Why == "") != (tt.want == "") || !strings.Contains(b.Why, tt.want) {
			t.Errorf("%s: %q, want %q", name, b.Why, tt.want)
		}
	}
}

func (s slow) BreakGlass(ctx context.Context, _ query.Key) (stack.BreakGlass, error) {
	<-ctx.Done()
	return stack.BreakGlass{}, ctx.Err()
}

func TestBreakGlassThatStartsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := visitor(t, town(), "/stacks/apps/cart/break-glass")
		v.Person.Stacks = slow{&hands{}}
		if d, err := BreakGlass(v); err != nil || d.Said != "session-requested" {
			t.Errorf("%+v, %v; want to be told that it takes its time", d, err)
		}
	})
}

// bring uploads a file and returns where the browser is sent.
func bring(t *testing.T, v *Visit, content string) string {
	t.Helper()
	v.File = []byte(content)
	d, err := PushState(v)
	if err != nil {
		t.Fatal(err)
	}
	return d.To
}

// An uploaded state is previewed first, and stored once, however often the user
// clicks, and only by this user.
func TestStatesThatAreBrought(t *testing.T) {
	e, h := town(), &hands{}
	v := visitor(t, e, "/stacks/apps/cart/states/push")
	v.Person.Stacks = h
	if _, err := PushState(v); fault.Of(err) != fault.Invalid || len(h.done) != 0 {
		t.Errorf("without a file: %v, done %q", err, h.done)
	}
	v.Form.Set("force", "yes")
	to, _, _ := strings.Cut(bring(t, v, "STATE"), "#")
	look := visitor(t, e, to)
	look.Backend = v.Backend
	p, err := StackStates(look)
	if err != nil {
		t.Fatal(err)
	}
	f := parse(t, look, p).forms("/states/store")
	if len(f) != 1 {
		t.Fatalf("%d forms, want the question whether to store it", len(f))
	}
	store := func(who, key, name string) error {
		v := visitor(t, e, "/stacks/"+key+"/states/store")
		v.Backend.pushes.by, v.Person.Stacks, v.User.Name = look.Backend.pushes.by, h, who
		v.Form = url.Values{"push": f[0].Fields["push"], "name": {name}}
		_, err := StoreState(v)
		return err
	}
	if err := store("ann", "apps/cart", "other"); fault.Of(err) != fault.Invalid {
		t.Errorf("another name typed: %v", err)
	}
	for _, wrong := range [][3]string{{"bob", "apps/cart", "cart"}, {"ann", "net/dns", "dns"}} {
		if err := store(wrong[0], wrong[1], wrong[2]); fault.Of(err) != fault.Missing {
			t.Errorf("%v: %v, want what ann brought to apps/cart to be only that", wrong, err)
		}
	}
	for range 2 {
		if err := store("ann", "apps/cart", "cart"); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(h.done, []string{"plan push apps/cart STATE true", "write state apps/cart"}); diff != "" {
		t.Errorf("commanded (-got +want):\n%s", diff)
	}
}

// What was brought is forgotten after a while, and when there is too much of it.
func TestStatesThatWereBroughtAreForgotten(t *testing.T) {
	var k keptPushes
	v := visitor(t, town(), "/stacks/apps/cart/states")
	keep := func(at time.Time, size int) string {
		return k.keep(&keptPush{who: v.User, key: v.Key(), until: at.Add(pushKept), size: size}, at)
	}
	first := keep(now, 1)
	if _, err := k.find(v, first); err != nil {
		t.Errorf("what was brought just now: %v", err)
	}
	large := keep(now.Add(time.Second), pushBytes)
	if _, err := k.find(v, first); fault.Of(err) != fault.Missing || len(k.by) != 1 {
		t.Errorf("%d are kept beside one that is as large as all may be", len(k.by)-1)
	}
	v.Now = now.Add(pushKept + time.Second)
	if _, err := k.find(v, large); fault.Of(err) != fault.Missing {
		t.Errorf("after its time: %v", err)
	}
	for i := range 2 * pushesMax {
		keep(v.Now.Add(time.Duration(i)), 1)
	}
	if len(k.by) != pushesMax {
		t.Errorf("%d are kept, want %d", len(k.by), pushesMax)
	}
}

// A second click on a rollback that was carried out says the same as the first,
// and something else that is stored by now is not replaced.
func TestRollbackIsDoneOnce(t *testing.T) {
	e, digest := town(), "sha256:then"
	for name, tt := range map[string]struct {
		stored string
		over   string
		want   fault.Kind
		writes int
	}{
		"as it was shown":  {"sha256:now", "sha256:now", fault.None, 1},
		"done already":     {digest, "sha256:now", fault.None, 0},
		"something else":   {"sha256:else", "sha256:now", fault.Conflict, 0},
		"nothing was seen": {"sha256:now", "", fault.Conflict, 0},
	} {
		h := &changing{stored: tt.stored, to: digest}
		v := visitor(t, e, "/stacks/apps/cart/states/rollback")
		v.Person.Stacks = h
		v.Form = url.Values{"version": {"7"}, "name": {"cart"}, "over": {tt.over}, "to": {digest}}
		if _, err := Rollback(v); fault.Of(err) != tt.want || h.writes != tt.writes {
			t.Errorf("%s: %v and %d writes, want %s and %d", name, err, h.writes, tt.want, tt.writes)
		}
	}
}

// changing knows what is stored.
type changing struct {
	command.StackCommands
	stored, to string
	writes     int
}

func (c *changing) PlanRollback(_ context.Context, k query.Key, _ string, _ bool) (command.StateChange, error) {
	return command.StateChange{Key: k, Over: c.stored, From: stack.StateID{Digest: c.stored}, To: stack.StateID{Digest: c.to}}, nil
}

func (c *changing) WriteState(context.Context, command.StateChange) error {
	c.writes++
	return nil
}

// A stack with a break-glass session is not shown like a suspended one.
func TestABreakGlassSessionIsShown(t *testing.T) {
	for address, h := range map[string]Handler{"/stacks?q=byhand": Stacks, "/stacks/apps/byhand": Stack, "/stacks/apps/byhand/states": StackStates} {
		if text := show(t, town(), address, h).text(); !strings.Contains(text, "A break-glass session is open") {
			t.Errorf("%s does not say it: %.800s", address, text)
		}
	}
}
