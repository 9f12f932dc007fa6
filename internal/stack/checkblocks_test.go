package stack

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func blocks(addresses ...string) []FailedCheckBlock {
	var out []FailedCheckBlock
	for _, a := range addresses {
		out = append(out, FailedCheckBlock{Address: a, Message: "no"})
	}
	return out
}

// evaluated is a run that found these check blocks failing.
func evaluated(kind RunKind, failed ...string) *Run {
	return &Run{ID: "run-1", Kind: kind, Done: true, Outcome: Succeeded, Blocks: &CheckBlocks{Failed: blocks(failed...)}}
}

func failingBlocks(addresses ...string) Status {
	return Status{Resources: Resources{FailingCheckBlocks: &FailingCheckBlocks{Failed: blocks(addresses...)}}}
}

func TestCheckBlocksAreRemembered(t *testing.T) {
	before, now := calm.Add(-time.Hour), calm
	was := &FailingCheckBlocks{Since: before, Failed: blocks("check.a")}
	for name, tt := range map[string]struct {
		was   *FailingCheckBlocks
		found *CheckBlocks
		want  *FailingCheckBlocks
	}{
		"not evaluated":              {was: was, want: was},
		"none fails":                 {found: &CheckBlocks{}},
		"none fails any more":        {was: was, found: &CheckBlocks{}},
		"unknown is not failing":     {found: &CheckBlocks{Unknown: []string{"check.a"}}},
		"unknown is not passed":      {was: was, found: &CheckBlocks{Unknown: []string{"check.a"}}, want: was},
		"the first one":              {found: &CheckBlocks{Failed: blocks("check.a"), More: 2}, want: &FailingCheckBlocks{Since: now, Failed: blocks("check.a"), More: 2}},
		"another one":                {was: was, found: &CheckBlocks{Failed: blocks("check.b")}, want: &FailingCheckBlocks{Since: before, Failed: blocks("check.b")}},
		"another one, first unknown": {was: was, found: &CheckBlocks{Failed: blocks("check.b"), Unknown: []string{"check.a"}}, want: &FailingCheckBlocks{Since: before, Failed: blocks("check.b", "check.a")}},
	} {
		got := tt.was.evaluated(tt.found, now)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if again := got.evaluated(tt.found, now.Add(time.Hour)); again != got {
			t.Errorf("%s: the same results again changed %v to %v", name, got, again)
		}
	}
}

// A drift check with the same results costs no write of the object.
func TestSameCheckBlocksLeaveTheStatusAsItIs(t *testing.T) {
	r := *evaluated(CheckRun, "check.a")
	r.At = calm
	m := Status{}.Record(r)
	r.ID, r.At = "run-2", calm.Add(time.Hour)
	if diff := cmp.Diff(m, m.Record(r)); diff != "" {
		t.Errorf("the second drift check (-want +got):\n%s", diff)
	}
	if text, err := json.Marshal(m.FailingCheckBlocks); err != nil || string(text) != `{"since":"`+calm.Format(time.RFC3339Nano)+`","failed":[{"address":"check.a","message":"no"}]}` {
		t.Errorf("stored is %s, %v", text, err)
	}
}

// A failed run did not evaluate all check blocks, and a plan says nothing about what
// a destroy removed.
func TestRunsThatEvaluateNoCheckBlocks(t *testing.T) {
	failed := *evaluated(PlanRun)
	failed.Outcome = Failed
	destroyed := Run{ID: "run-1", Kind: ApplyRun, Done: true, Outcome: Succeeded, Cause: Cause{Destroy: true, Whole: true, Plan: &Plan{Destroy: true}}, Blocks: &CheckBlocks{Unknown: []string{"check.a"}}}
	if failingBlocks("check.a").Record(failed).FailingCheckBlocks == nil {
		t.Error("a failed plan ended the failure of the check block")
	}
	if f := failingBlocks("check.a").Record(destroyed).FailingCheckBlocks; f != nil {
		t.Errorf("after the destroy %v", f)
	}
}

func TestFailingCheckBlocksInWords(t *testing.T) {
	for want, f := range map[string]FailingCheckBlocks{
		"1 check block fails: check.a: no":                {Failed: blocks("check.a")},
		"3 check blocks fail: check.a: no; and 2 more":    {Failed: blocks("check.a"), More: 2},
		"2 check blocks fail: check.a: no; module.m.b[0]": {Failed: append(blocks("check.a"), FailedCheckBlock{Address: "module.m.b[0]"})},
	} {
		if got := f.String(); got != want {
			t.Errorf("String() = %q, want %q", got, want)
		}
	}
}
