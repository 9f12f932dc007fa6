package web

import (
	"bytes"
	"context"
	"io"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
)

// An uploaded state is stored only if it is byte for byte the previewed one and
// still makes the previewed changes.
func TestAPushIsWhatWasShown(t *testing.T) {
	o := options(newRoles())
	o.People = func(u access.User) (command.Person, error) { return command.Person{User: u, Stacks: hands{}}, nil }
	u, c := serve(t, o)
	state := `{ "version": 4, "note": "<&>" }`
	digest := stack.Digest(state)
	for params, want := range map[string]int{
		"preview=true":                            200,
		"over=sha256:now&to=" + digest:            200,
		"over=sha256:before&to=" + digest:         409,
		"over=sha256:now&to=sha256:other":         409,
		"over=sha256:now":                         422,
		"force=perhaps&over=x&to=y":               422,
		"over=sha256:now&to=" + digest + "&foo=1": 422,
	} {
		resp, said := ask(t, c, http.MethodPost, u.String()+"/api/v1/namespaces/apps/stacks/net/state/push?"+params, func(q *http.Request) {
			bearer(q)
			q.Header.Set("Content-Type", "application/json")
			q.Body = io.NopCloser(strings.NewReader(state))
		})
		if resp.StatusCode != want {
			t.Errorf("%s is %s %s, want %d", params, resp.Status, said, want)
		}
	}
}

// pusher notes what was brought.
type pusher struct {
	command.StackCommands
	got   []string
	force bool
}

func (p *pusher) PlanPush(_ context.Context, key query.Key, state []byte, force bool) (command.StateChange, error) {
	p.got, p.force = append(p.got, string(state)), force
	return command.StateChange{Key: key}, nil
}

// A file comes with a form, without scripts, and leads to what it would change.
func TestAFileIsBroughtByAForm(t *testing.T) {
	p := &pusher{}
	o := options(newRoles())
	o.Limits.File = 8 << 10
	o.People = func(u access.User) (command.Person, error) { return command.Person{User: u, Stacks: p}, nil }
	u, c := serve(t, o)
	form := func(fields int, state string) (string, []byte) {
		var b bytes.Buffer
		w := multipart.NewWriter(&b)
		for range fields {
			if err := w.WriteField("force", "yes"); err != nil {
				t.Fatal(err)
			}
		}
		f, err := w.CreateFormFile("state", "net.tfstate")
		if err == nil {
			_, err = io.WriteString(f, state)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return w.FormDataContentType(), b.Bytes()
	}
	send := func(kind string, body []byte) *http.Response {
		resp, _ := ask(t, c, http.MethodPost, u.String()+"/stacks/apps/net/states/push", func(r *http.Request) {
			bearer(r)
			r.Header.Set("Content-Type", kind)
			r.Header.Set("Sec-Fetch-Site", "same-origin")
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		})
		return resp
	}
	kind, body := form(1, "\x00STATE\xff")
	resp := send(kind, body)
	if to := resp.Header.Get("Location"); resp.StatusCode != http.StatusSeeOther || !strings.HasPrefix(to, "/stacks/apps/net/states?push=") {
		t.Fatalf("%s to %q, want to be led to what it would change", resp.Status, to)
	}
	if len(p.got) != 1 || p.got[0] != "\x00STATE\xff" || !p.force {
		t.Errorf("brought is %q, forced %v; want it to the byte", p.got, p.force)
	}
	many, parts := form(uploadParts, "STATE")
	for name, wrong := range map[string]struct {
		kind string
		body []byte
	}{"cut short": {kind, body[:len(body)-20]}, "without a boundary": {"multipart/form-data", body}, "of too many parts": {many, parts}} {
		if resp := send(wrong.kind, wrong.body); resp.StatusCode != http.StatusUnprocessableEntity {
			t.Errorf("a form %s: %s, want 422", name, resp.Status)
		}
	}
	large, parts := form(1, strings.Repeat("x", 8<<10))
	if resp := send(large, parts); resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("a form that is too large: %s, want 413", resp.Status)
	}
	if len(p.got) != 1 {
		t.Errorf("%d states were taken, want one", len(p.got))
	}
}
