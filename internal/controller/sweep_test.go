package controller

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/terrier-iac/terrier/internal/blob/blobtest"
	"github.com/terrier-iac/terrier/internal/controller/records"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/stack"
)

func TestSweepKeepsWhatADestroyNeeds(t *testing.T) {
	files := blobtest.Files(t, 1<<20)
	c := takeApart(&Stacks{Blobs: files, Archives: records.Archives{Dir: t.TempDir()}})
	kept, err := json.Marshal(snapshot{PlanInputs: stack.PlanInputs{Source: "sha256:aa"}})
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string][]byte{
		"trees/aa": []byte("needed"), "trees/bb": []byte("not"), record.Snapshot("uid", "1"): kept,
	} {
		if err := c.records.Put(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.records.Sweep(t.Context(), c.sourceOf); err != nil {
		t.Fatal(err)
	}
	got, err := files.List(t.Context(), "trees/")
	if err != nil || !slices.Equal(got, []string{"trees/aa"}) {
		t.Errorf("after the sweep there is %v, %v, want trees/aa", got, err)
	}

	// A record that cannot be read might need anything.
	if err := c.records.Put(t.Context(), record.Snapshot("uid", "2"), []byte("{")); err != nil {
		t.Fatal(err)
	}
	if err := c.records.Put(t.Context(), "trees/cc", []byte("unknown")); err != nil {
		t.Fatal(err)
	}
	if err := c.records.Sweep(t.Context(), c.sourceOf); err == nil {
		t.Error("a record that cannot be read is passed over")
	}
	if got, err := files.List(t.Context(), "trees/"); err != nil || len(got) != 2 {
		t.Errorf("after a failed sweep there is %v, %v, want nothing removed", got, err)
	}
}
