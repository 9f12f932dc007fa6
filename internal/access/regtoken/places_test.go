package regtoken_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/access/regtoken"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/record"
)

// age is longer than any answer about a namespace is used.
const age = 11 * time.Minute

// older makes the record of a token one of a release that did not bind tokens.
func (w *world) older(t *testing.T, id string) {
	t.Helper()
	r, err := w.store.Get(t.Context(), record.RegistryToken(id))
	if err != nil {
		t.Fatal(err)
	}
	var kept map[string]any
	text, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close(), json.Unmarshal(text, &kept)); err != nil {
		t.Fatal(err)
	}
	delete(kept, "bound")
	delete(kept, "place")
	if text, err = json.Marshal(kept); err != nil {
		t.Fatal(err)
	}
	if err := w.store.Put(t.Context(), record.RegistryToken(id), bytes.NewReader(text)); err != nil {
		t.Fatal(err)
	}
}

// A token of a namespace, and of a ServiceAccount in it, ends with the namespace, and opens
// no other one that is made under its name. So do tokens of older releases.
func TestTokensEndWithTheirNamespace(t *testing.T) {
	account := access.User{Name: "system:serviceaccount:net:ci", UID: "7"}
	for name, wanted := range map[string]regtoken.Wanted{
		"of the namespace":    {Namespace: "net", By: "ann", Life: 24 * time.Hour},
		"of a ServiceAccount": {User: account, Life: 24 * time.Hour},
	} {
		for _, older := range []bool{false, true} {
			w := newWorld(t)
			made, text := w.create(t, wanted)
			if older {
				w.older(t, made.ID)
			}
			valid := func(step string, want bool) {
				t.Helper()
				w.clock.pass(age)
				_, err := w.there.Authenticate(t.Context(), text)
				if want && err != nil {
					t.Errorf("%s, older record %v, %s: %v", name, older, step, err)
				}
				if !want {
					refused(t, err, regtoken.ReasonFormer, text)
				}
				all, err := w.here.List(t.Context())
				if err != nil || len(all) != 1 || all[0].Former == want || all[0].Active(w.clock.Now()) != want {
					t.Errorf("%s, older record %v, %s: List() = %+v, %v", name, older, step, all, err)
				}
			}
			valid("as it was", true)
			w.namespaces.set("net", access.Namespace{})
			valid("without the namespace", older) // no other tenant has the name
			w.namespaces.set("net", access.Namespace{UID: "net-2", Created: w.clock.Now()})
			valid("with another one of the name", false)
			if older {
				continue
			}
			w.namespaces.set("net", access.Namespace{UID: "net-1", Created: made.Created.Add(-time.Hour)})
			valid("with its own again", true)
		}
	}
}

// A name that is no namespace of the cluster can have tokens. They end once it becomes one.
func TestTokensOfANameWithoutANamespace(t *testing.T) {
	w := newWorld(t)
	_, text := w.create(t, regtoken.Wanted{Namespace: "acme", By: "ann", Life: 24 * time.Hour})
	w.clock.pass(age)
	if _, err := w.there.Authenticate(t.Context(), text); err != nil {
		t.Errorf("without a namespace: %v", err)
	}
	w.namespaces.set("acme", access.Namespace{UID: "acme-1", Created: w.clock.Now()})
	w.clock.pass(age)
	_, err := w.there.Authenticate(t.Context(), text)
	refused(t, err, regtoken.ReasonFormer, text)
}

// While the API server does not answer, its last answer counts for a while. Without an
// answer no token is created, and none is accepted.
func TestNamespacesThatCannotBeRead(t *testing.T) {
	w := newWorld(t)
	_, text := w.create(t, regtoken.Wanted{Namespace: "net", By: "ann", Life: 24 * time.Hour})
	away := fault.New(fault.Later, access.ReasonUnreachable, errors.New("the API server does not answer"))
	w.namespaces.fail(away)
	w.clock.pass(time.Minute)
	if _, err := w.here.Authenticate(t.Context(), text); err != nil {
		t.Errorf("a minute after the last answer: %v", err)
	}
	if _, err := w.there.Authenticate(t.Context(), text); fault.Of(err) != fault.Later {
		t.Errorf("a controller without an answer says %v, want Later", err)
	}
	w.clock.pass(age)
	if _, err := w.here.Authenticate(t.Context(), text); fault.Of(err) != fault.Later {
		t.Errorf("long after the last answer: %v, want Later", err)
	}
	w.namespaces.fail(fault.New(fault.Denied, access.ReasonAccessDenied, errors.New("namespaces is forbidden")))
	_, err := w.here.Authenticate(t.Context(), text)
	if fault.Of(err) != fault.Later || fault.Reason(err, "") != regtoken.ReasonPlace || !strings.Contains(err.Error(), "docs/rbac.md") {
		t.Errorf("without the right: %v, want Later with the way out", err)
	}
	if _, _, err := w.here.Create(t.Context(), regtoken.Wanted{Namespace: "net", Name: "ci", By: "ann", Life: time.Hour}); fault.Reason(err, "") != regtoken.ReasonPlace {
		t.Errorf("Create() without the right = %v", err)
	}
	if all, err := w.here.List(t.Context()); err != nil || len(all) != 1 || all[0].Former {
		t.Errorf("List() = %+v, %v; want the token", all, err)
	}
}

// The tokens of a former namespace take no place of those of the new one.
func TestFormerTokensTakeNoPlace(t *testing.T) {
	w := newWorld(t)
	for range 100 {
		w.create(t, regtoken.Wanted{Namespace: "net", By: "ann", Life: 24 * time.Hour})
	}
	w.namespaces.set("net", access.Namespace{UID: "net-2", Created: w.clock.Now()})
	w.clock.pass(age)
	w.create(t, regtoken.Wanted{Namespace: "net", By: "eve"})
}
