package remote_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/remote"
	"github.com/terrier-iac/terrier/internal/runner/remote/wire"
	"github.com/terrier-iac/terrier/internal/stack"
)

// bare is a job that names nothing.
func bare(stackID, id string) runner.Job {
	return runner.Job{Stack: stackID, ID: id, Name: "test/" + stackID, Kind: stack.PlanRun, Note: []byte(`{"cause":"test"}`)}
}

// files are the files below a directory, by path.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		all[path] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// asked sends a request as an agent would.
func asked(h http.Handler, method, path, token, proof string, body []byte) *httptest.ResponseRecorder {
	path = strings.ReplaceAll(path, "{name}", map[string]string{http.MethodPatch: runner.FileLog, http.MethodPut: runner.FileState}[method])
	req := httptest.NewRequest(method, path, bytes.NewReader(body))
	if token != "" {
		req.Header.Set("Authorization", token)
	}
	if proof != "" {
		req.Header.Set(wire.HeaderProof, proof)
	}
	req.Header.Set(wire.HeaderTurn, "1")
	req.Header.Set(wire.HeaderOffset, "0")
	req.Header.Set(wire.HeaderDigest, stack.Sum(body))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w
}

// T14: nothing but the token of the place of a run that goes on, with the proof that
// came with its order, gets an answer or changes anything.
func TestCredentials(t *testing.T) {
	s, dir := newSite(t), t.TempDir()
	s.launcher.Hold = true
	identify := s.launcher.Identify
	c := s.open(dir, func(c *remote.Config) {
		c.Identify = func(ctx context.Context, token string) (remote.Place, error) { return identify(ctx, token) }
		c.LeftOut = func(namespace string) bool { return namespace == "left-out" }
	})
	for _, id := range []string{"a", "b", "ended", "forgotten"} {
		if err := c.Start(t.Context(), bare(id, "run")); err != nil {
			t.Fatal(err)
		}
	}
	tokens, proofs, places := map[string]string{}, map[string]string{}, map[string]remote.Place{}
	for _, id := range []string{"a", "b", "ended", "forgotten"} {
		places[id], proofs[id] = c.PlaceOf(id, "run"), c.Proof(id, "run")
		tokens[id] = s.token(places[id])
	}
	for _, id := range []string{"ended", "forgotten"} {
		if err := c.Cancel(t.Context(), id, "run"); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Forget("forgotten", "run"); err != nil {
		t.Fatal(err)
	}
	awaitRemoved(t, dir)
	// The places of these two are removed, but a token may stay valid for a while.
	identify = func(ctx context.Context, token string) (remote.Place, error) {
		p := places["a"]
		switch "Bearer " + token {
		case tokens["ended"]:
			return places["ended"], nil
		case tokens["forgotten"]:
			return places["forgotten"], nil
		case "Bearer another-uid":
			p.UID = "another"
			return p, nil
		case "Bearer another-namespace":
			p.Namespace = "another"
			return p, nil
		case "Bearer left-out":
			p.Namespace = "left-out"
			return p, nil
		case "Bearer later":
			return p, errors.New("the cluster does not answer")
		}
		return s.launcher.Identify(ctx, token)
	}

	h := c.Handler()
	before := files(t, dir)
	for _, route := range remote.Routes() {
		method, path := route[0], route[1]
		for name, tt := range map[string]struct {
			token, proof string
			want         int
		}{
			"no token":                       {"", proofs["a"], http.StatusUnauthorized},
			"another scheme":                 {strings.Replace(tokens["a"], "Bearer", "Basic", 1), proofs["a"], http.StatusUnauthorized},
			"an unknown token":               {"Bearer x", proofs["a"], http.StatusUnauthorized},
			"a token that cannot be checked": {"Bearer later", proofs["a"], http.StatusServiceUnavailable},
			"a token of another UID":         {"Bearer another-uid", proofs["a"], http.StatusGone},
			"a token of another namespace":   {"Bearer another-namespace", proofs["a"], http.StatusGone},
			"one of a namespace left out":    {"Bearer left-out", proofs["a"], http.StatusServiceUnavailable},
			"the token of a forgotten run":   {tokens["forgotten"], proofs["forgotten"], http.StatusGone},
			"the token of a run that ended":  {tokens["ended"], proofs["ended"], http.StatusGone},
			"no proof":                       {tokens["a"], "", http.StatusForbidden},
			"the proof of another run":       {tokens["a"], proofs["b"], http.StatusForbidden},
			"the token of another run":       {tokens["b"], proofs["a"], http.StatusForbidden},
		} {
			if path == wire.Order && tt.want == http.StatusForbidden {
				continue // it gets the order of its own run, and its proof
			}
			got := asked(h, method, path, tt.token, tt.proof, []byte("{}"))
			if got.Code != tt.want || strings.Contains(got.Body.String(), "cause") {
				t.Errorf("%s %s with %s = %d %s, want %d", method, path, name, got.Code, got.Body, tt.want)
			}
		}
	}
	if diff := cmp.Diff(before, files(t, dir)); diff != "" {
		t.Errorf("requests that were refused changed files (-before +after):\n%s", diff)
	}
	if err := c.Cancel(t.Context(), "a", "run"); err != nil {
		t.Fatal(err)
	}
}

// The order is given as often as it is asked for, until the first report; whatever a
// report says, it is about the run of its place.
func TestOrderUntilTheFirstReport(t *testing.T) {
	c, token := newSite(t).held(t.TempDir())
	h, proof := c.Handler(), ""
	for range 2 {
		got := asked(h, http.MethodPost, wire.Order, token, "", nil)
		o, err := runner.ReadOrder(got.Body)
		if err != nil || o.Job.ID != "run" {
			t.Fatalf("the order is %+v, %v", o, err)
		}
		proof = got.Header().Get(wire.HeaderProof)
	}
	forged := []byte(`{"report":{"id":"other","stack":"other","phase":"Planning","later":1,"ID":"other","Id":"other",` +
		`"ſtack":"other","STACK":"other","Kind":"apply","Kind":"apply","NAME":"other/other","Beside":"other","NOTE":{"cause":"other"}},"files":{}}`)
	if got := asked(h, http.MethodPut, wire.Report, token, proof, forged); got.Code != http.StatusNoContent {
		t.Fatalf("a report = %d %s", got.Code, got.Body)
	}
	if got := asked(h, http.MethodPost, wire.Order, token, "", nil); got.Code != http.StatusGone {
		t.Errorf("asking for the order after the first report = %d, want 410", got.Code)
	}
	r, err := c.Current("a")
	if err != nil || r.ID != "run" || r.Stack != "a" || r.Beside != "" || r.Name != "test/a" || r.Kind != stack.PlanRun ||
		r.Phase != runner.Planning || string(r.Note) != `{"cause":"test"}` {
		t.Errorf("Current() = %+v, %v; want the run of the place", r, err)
	}
	kept, err := os.ReadFile(filepath.Join(c.Dir("a", "run"), "run.json"))
	if err != nil || !strings.Contains(string(kept), `"later":1`) || strings.Contains(string(kept), "other") {
		t.Errorf("kept is %s, %v; want what only a newer agent knows, and no other name", kept, err)
	}
	for what, body := range map[string]string{"no JSON": "x", "no phase": `{"report":{},"files":{}}`} {
		if got := asked(h, http.MethodPut, wire.Report, token, proof, []byte(body)); got.Code != http.StatusUnprocessableEntity {
			t.Errorf("a report with %s = %d, want 422", what, got.Code)
		}
	}
	missing := []byte(`{"report":{"phase":"Done"},"files":{"state.json":{"size":2,"digest":"sha256:x"}}}`)
	if got := asked(h, http.MethodPut, wire.Report, token, proof, missing); got.Code != http.StatusConflict {
		t.Errorf("a report of files that are not here = %d, want 409", got.Code)
	}
	if got := asked(h, http.MethodPut, wire.File+"run.json", token, proof, []byte("{}")); got.Code != http.StatusUnprocessableEntity {
		t.Errorf("a file that is none of a run's = %d, want 422", got.Code)
	}
}

// A place that this installation did not make keeps its stack from beginning, and is
// removed; what it says is not believed.
func TestPlaceOfAnotherKey(t *testing.T) {
	s := newSite(t)
	s.launcher.Hold = true
	first := s.open(t.TempDir(), func(c *remote.Config) { c.Key = bytes.Repeat([]byte{1}, 32) })
	if err := first.Start(t.Context(), bare("a", "run")); err != nil {
		t.Fatal(err)
	}
	s.close(first)
	stuck := errors.New("the node does not answer")
	s.launcher.Fail(stuck)
	dir := t.TempDir()
	second := s.open(dir)
	if got, err := second.List(); err != nil || len(got) > 0 {
		t.Errorf("List() = %+v, %v; want nothing", got, err)
	}
	if err := second.Start(t.Context(), bare("a", "next")); fault.Of(err) != fault.Later {
		t.Errorf("Start() while the place is there = %v, want Later", err)
	}
	s.launcher.Fail(nil)
	awaitRemoved(t, dir)
	if err := second.Start(t.Context(), bare("a", "next")); err != nil {
		t.Errorf("Start() = %v", err)
	}
	if err := second.Cancel(t.Context(), "a", "next"); err != nil {
		t.Error(err)
	}
}
