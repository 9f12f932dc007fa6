package managed

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/stack"
)

func stateOf(lineage string, serial int) []byte {
	return fmt.Appendf(nil, `{"version":4,"serial":%d,"lineage":%q,"outputs":{},"resources":[]}`, serial, lineage)
}

func newStore(t *testing.T, start []byte, writable bool) (*Store, string, *[]stack.StateID) {
	t.Helper()
	var accepted []stack.StateID
	dir := t.TempDir()
	s, err := NewStore(filepath.Join(dir, "state.json"), start, writable, func(id stack.StateID, _ *File) { accepted = append(accepted, id) })
	if err != nil {
		t.Fatal(err)
	}
	return s, dir, &accepted
}

func TestStateStoreAccepts(t *testing.T) {
	for name, tt := range map[string]struct {
		start, next []byte
		readOnly    bool
		ok          bool
	}{
		"the first state of a stack":         {next: stateOf("a", 1), ok: true},
		"a greater serial":                   {start: stateOf("a", 1), next: stateOf("a", 5), ok: true},
		"the same state once more":           {start: stateOf("a", 1), next: stateOf("a", 1), ok: true},
		"no other state of the same serial":  {start: stateOf("a", 1), next: append(stateOf("a", 1), ' ')},
		"no serial that goes back":           {start: stateOf("a", 3), next: stateOf("a", 2)},
		"no other lineage":                   {start: stateOf("a", 1), next: stateOf("b", 2)},
		"no state without a lineage":         {next: []byte(`{"serial":1}`)},
		"nothing that is no state":           {next: []byte("hello")},
		"nothing from a run that only reads": {next: stateOf("a", 1), readOnly: true},
	} {
		t.Run(name, func(t *testing.T) {
			s, dir, accepted := newStore(t, tt.start, !tt.readOnly)
			err := s.Accept(tt.next)
			if (err == nil) != tt.ok || err != nil && !errors.Is(err, ErrRefused) {
				t.Fatalf("Accept() = %v, want accepted: %v", err, tt.ok)
			}
			current, _ := s.Newest()
			want := tt.start
			if tt.ok {
				want = tt.next
			}
			if !bytes.Equal(current, want) {
				t.Errorf("the state is %s, want %s", current, want)
			}
			if disk, _ := os.ReadFile(filepath.Join(dir, "state.json")); len(*accepted) > 0 && !bytes.Equal(disk, tt.next) {
				t.Errorf("%s was acknowledged, and %s is on disk", tt.next, disk)
			}
		})
	}
}

func TestStateStoreKeepsAFewVersions(t *testing.T) {
	s, dir, accepted := newStore(t, nil, true)
	for serial := range 10 {
		if err := s.Accept(stateOf("a", serial+1)); err != nil {
			t.Fatal(err)
		}
	}
	older, err := filepath.Glob(filepath.Join(dir, "state-*.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(older) != KeptVersions || len(*accepted) != 10 {
		t.Errorf("%d older versions are kept of %d, want %d of 10", len(older), len(*accepted), KeptVersions)
	}
	newest := slices.Max(older)
	if data, _ := os.ReadFile(newest); !bytes.Equal(data, stateOf("a", 9)) {
		t.Errorf("the newest of the older versions is %s", data)
	}
}

func TestStateServer(t *testing.T) {
	store, _, _ := newStore(t, nil, true)
	s, err := NewServer(store)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Serve(l)()
	url := "http://" + l.Addr().String() + "/state"
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	call := func(method, query, body string, credentials bool) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, url+query, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if credentials {
			req.SetBasicAuth(s.user, s.password)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	for _, step := range []struct {
		does, method, query, body string
		anonymous                 bool
		want                      int
	}{
		{does: "nobody reads without credentials", method: "GET", anonymous: true, want: 401},
		{does: "there is no state at first", method: "GET", want: 404},
		{does: "a lock needs an ID", method: "LOCK", body: "{}", want: 400},
		{does: "the lock is free", method: "LOCK", body: `{"ID":"one"}`, want: 200},
		{does: "and can be taken again by its holder", method: "LOCK", body: `{"ID":"one"}`, want: 200},
		{does: "but by nobody else", method: "LOCK", body: `{"ID":"two"}`, want: 423},
		{does: "nobody else writes", method: "POST", query: "?ID=two", body: string(stateOf("a", 1)), want: 423},
		{does: "nor without the lock", method: "POST", body: string(stateOf("a", 1)), want: 423},
		{does: "the holder writes", method: "POST", query: "?ID=one", body: string(stateOf("a", 1)), want: 200},
		{does: "but nothing older", method: "POST", query: "?ID=one", body: string(stateOf("a", 0)), want: 409},
		{does: "the state is there", method: "GET", want: 200},
		{does: "nobody deletes it", method: "DELETE", want: 405},
		{does: "nobody else unlocks", method: "UNLOCK", body: `{"ID":"two"}`, want: 423},
		{does: "the holder unlocks", method: "UNLOCK", body: `{"ID":"one"}`, want: 200},
		{does: "then another may lock", method: "LOCK", body: `{"ID":"two"}`, want: 200},
	} {
		if got := call(step.method, step.query, step.body, !step.anonymous); got != step.want {
			t.Errorf("%s: %s%s = %d, want %d", step.does, step.method, step.query, got, step.want)
		}
	}
}

func TestStateSecrets(t *testing.T) {
	s, err := Parse([]byte(`{"version":4,"serial":1,"lineage":"a",
		"outputs":{"open":{"value":"seen","type":"string"},"hidden":{"value":{"k":["out-1",12345]},"type":"dynamic","sensitive":true}},
		"resources":[{"mode":"managed","instances":[{"attributes":{"name":"seen","password":"attr-1","list":[{"key":"attr-2"},{"key":"seen"}]},
			"sensitive_attributes":[[{"type":"get_attr","value":"password"}],
				[{"type":"get_attr","value":"list"},{"type":"index","value":{"value":0,"type":"number"}},{"type":"get_attr","value":"key"}]]}]},
			{"mode":"data","instances":[{},{}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	got := s.Secrets()
	slices.Sort(got)
	if d := cmp.Diff([]string{"12345", "attr-1", "attr-2", "out-1"}, got); d != "" {
		t.Errorf("Secrets() differs (-want +got):\n%s", d)
	}
	if s.Managed() != 1 {
		t.Errorf("Managed() = %d, want 1", s.Managed())
	}
}

func TestEncryptedStateHidesItsOutputs(t *testing.T) {
	s, err := Parse([]byte(`{"serial":4,"lineage":"a","meta":{},"encrypted_data":"x","encryption_version":"v0"}`))
	if err != nil {
		t.Fatal(err)
	}
	if data, err := s.OutputsDocument(); data != nil || err != nil {
		t.Errorf("OutputsDocument() = %s, %v; want none, so that the engine is asked", data, err)
	}
}

func TestEmptyStateIsAState(t *testing.T) {
	data, err := Empty()
	if err != nil {
		t.Fatal(err)
	}
	if s, err := Parse(data); err != nil || s.Serial != 0 || len(s.Lineage) != 36 {
		t.Errorf("Empty() = %s, %v", data, err)
	}
}
