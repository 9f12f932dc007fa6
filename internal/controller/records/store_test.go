package records

import (
	"slices"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/blob/blobtest"
	"github.com/terrier-iac/terrier/internal/record"
)

func TestDropOthers(t *testing.T) {
	files := blobtest.Files(t, 1<<20)
	s := Store{Blobs: files}
	for _, key := range []string{"stacks/u/plans/aa/plan.bin", "stacks/u/plans/aab/plan.bin", "stacks/u/plans/bb/plan.bin", "stacks/u/runs/r/log.txt"} {
		if err := files.Put(t.Context(), key, strings.NewReader("x")); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.DropOthers(t.Context(), record.Plans("u"), record.Plan("u", "aa", ""), ""); err != nil {
		t.Fatal(err)
	}
	got, err := files.List(t.Context(), "")
	if want := []string{"stacks/u/plans/aa/plan.bin", "stacks/u/runs/r/log.txt"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("left %v, %v, want %v", got, err, want)
	}
}
