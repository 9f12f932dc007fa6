package sources

import (
	"errors"
	"testing"

	"github.com/fluxcd/pkg/apis/meta"
)

func TestDecide(t *testing.T) {
	good := func() observation {
		return observation{artifact: &meta.Artifact{Revision: "main@sha1:1"}, stored: true, shaped: true, revision: "main@sha1:1"}
	}
	for name, tt := range map[string]struct {
		change func(*observation)
		want   step
	}{
		"what is right is held":                        {func(*observation) {}, hold},
		"a new revision is built":                      {func(o *observation) { o.revision = "main@sha1:2" }, build},
		"what there is nothing of is built":            {func(o *observation) { o.artifact = nil }, build},
		"what the store lost is built":                 {func(o *observation) { o.stored = false }, build},
		"what other rules made is built":               {func(o *observation) { o.shaped = false }, build},
		"what lacks a signature is built":              {func(o *observation) { o.unsigned = true }, build},
		"what is not certain is built if a user asks":  {func(o *observation) { o.unproven = true }, build},
		"what stalls a stack by pointers is repaired":  {func(o *observation) { o.pointers = true }, repair},
		"a new revision needs no repair":               {func(o *observation) { o.pointers, o.revision = true, "main@sha1:2" }, build},
		"without a revision nothing is repaired":       {func(o *observation) { o.pointers, o.failure = true, errors.New("down") }, fail},
		"without a revision nothing is replaced":       {func(o *observation) { o.failure = errors.New("down"); o.revision = "" }, fail},
		"without a revision nothing lost is built":     {func(o *observation) { o.failure = errors.New("down"); o.stored = false }, fail},
		"what is suspended is left, even if it is old": {func(o *observation) { o.suspended = true; o.revision = "main@sha1:2" }, leave},
		"what is suspended is left, even if it fails":  {func(o *observation) { o.suspended = true; o.failure = errors.New("down") }, leave},
		"what goes away is let go, even if suspended":  {func(o *observation) { o.suspended = true; o.deleting = true }, release},
	} {
		t.Run(name, func(t *testing.T) {
			o := good()
			tt.change(&o)
			if got := decide(o); got != tt.want {
				t.Errorf("decide() = %q, want %q", got, tt.want)
			}
		})
	}
}
