package remote

import (
	"bytes"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

func TestSeal(t *testing.T) {
	ours, err := newSigner(bytes.Repeat([]byte{1}, keySize))
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := newSigner(bytes.Repeat([]byte{2}, keySize))
	if err != nil {
		t.Fatal(err)
	}
	seal, err := ours.seal("a", sealed{First: runner.Report{ID: "run", Note: []byte(`{"x":1}`)}, Archive: "sha256:x"})
	if err != nil {
		t.Fatal(err)
	}
	what, err := ours.open(Place{Name: "a", Seal: seal})
	if err != nil || what.First.ID != "run" || what.Archive != "sha256:x" {
		t.Errorf("open() = %+v, %v", what, err)
	}
	for name, p := range map[string]Place{
		"another place": {Name: "b", Seal: seal}, "no seal": {Name: "a"}, "a changed one": {Name: "a", Seal: "x" + seal}, "no MAC": {Name: "a", Seal: strings.Split(seal, ".")[0]},
	} {
		if _, err := ours.open(p); err == nil {
			t.Errorf("the seal of %s is believed", name)
		}
	}
	elsewhere, err := ours.seal("a", sealed{First: runner.Report{ID: "run", Name: "n/stack"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ours.open(Place{Namespace: "n", Name: "a", Seal: elsewhere}); err != nil {
		t.Errorf("open() in the namespace of the run = %v", err)
	}
	if _, err := ours.open(Place{Namespace: "m", Name: "a", Seal: elsewhere}); err == nil {
		t.Error("the seal of another namespace is believed")
	}
	if _, err := theirs.open(Place{Name: "a", Seal: seal}); err == nil {
		t.Error("the seal of another key is believed")
	}
	if _, err := newSigner([]byte("short")); err == nil {
		t.Error("a short key is accepted")
	}
}

func TestProof(t *testing.T) {
	s := signer{bytes.Repeat([]byte{1}, keySize)}
	p := Place{Namespace: "n", Name: "a", UID: "u"}
	proof := s.proof(p, "key", "id")
	if !s.proves(proof, p, "key", "id") {
		t.Error("the proof is not accepted")
	}
	for name, ok := range map[string]bool{
		"another place": s.proves(proof, Place{Namespace: "n", Name: "a", UID: "v"}, "key", "id"),
		"another run":   s.proves(proof, p, "key", "other"),
		"shifted parts": s.proves(proof, p, "keyi", "d"),
		"nothing":       s.proves("", p, "key", "id"),
	} {
		if ok {
			t.Errorf("the proof of %s is accepted", name)
		}
	}
}

func TestNamesOfPlaces(t *testing.T) {
	seen := map[string]bool{}
	for _, job := range []runner.Job{
		{Stack: "s", ID: "1", Name: "ns/network", Kind: stack.PlanRun},
		{Stack: "s", ID: "2", Name: "ns/network", Kind: stack.PlanRun},
		{Stack: "t", ID: "1", Name: "ns/network", Kind: stack.BreakGlassRun},
		{Stack: "t", ID: "3", Name: "ns/" + strings.Repeat("x.y-", 60), Kind: stack.ApplyRun},
		{Stack: "t", ID: "4", Name: "", Kind: ""},
		{Stack: "t", ID: "5", Name: "ns/9.", Kind: stack.DestroyRun},
	} {
		name := placeName(&job)
		if len(name) > maxName || label(name) != name || strings.HasSuffix(name, "-") || seen[name] {
			t.Errorf("placeName(%+v) = %q, want another DNS label", job, name)
		}
		seen[name] = true
	}
}
