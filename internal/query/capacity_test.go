package query

import (
	"context"
	"encoding/json"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

func TestCapacity(t *testing.T) {
	many := func(n int, every, took time.Duration) []Checked {
		return slices.Repeat([]Checked{{Every: every, Took: took}}, n)
	}
	for name, c := range map[string]struct {
		stacks []Checked
		slots  int
		needed float64
		met    bool
		says   []string // in the warning; none if empty
	}{
		"nothing to do":                                {nil, 4, 0, true, nil},
		"nothing is known yet":                         {many(100, time.Minute, 0), 4, 0, true, nil},
		"plenty of room":                               {many(60, 10*time.Minute, 10*time.Second), 4, 1, true, nil},
		"exactly as much as there is":                  {many(240, 10*time.Minute, 10*time.Second), 4, 4, true, []string{"--max-runs to 5"}},
		"too much":                                     {many(1800, 10*time.Minute, 10*time.Second), 8, 30, false, []string{"1800 stacks", "every 10m", "30.0 runs", "--max-runs is 8", "--max-runs to 38", "to 47m"}},
		"who is not measured counts as the average":    {append(many(30, 10*time.Minute, 10*time.Second), many(30, 10*time.Minute, 0)...), 4, 1, true, nil},
		"who is only looked at when something changes": {append(many(60, 10*time.Minute, 10*time.Second), many(60, 100*365*24*time.Hour, 10*time.Second)...), 4, 1, true, nil},
		"who is never looked at":                       {append(many(60, 10*time.Minute, 10*time.Second), many(60, 0, time.Hour)...), 4, 1, true, nil},
		"of two intervals the shorter costs more":      {append(many(60, time.Minute, 10*time.Second), many(60, time.Hour, 10*time.Second)...), 20, 10 + 1.0/6, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := Capacity(c.stacks, Slots{Runs: c.slots})
			if math.Abs(got.SlotsNeeded-c.needed) > 1e-9 || got.CycleMet != c.met || (got.Warning != "") != (c.says != nil) {
				t.Errorf("Capacity() = %+v, want %v slots, met %t", got, c.needed, c.met)
			}
			for _, word := range c.says {
				if !strings.Contains(got.Warning, word) {
					t.Errorf("%q does not say %q", got.Warning, word)
				}
			}
		})
	}
}

// The limits of a tenant and of the class of drift checks bound the cycle, too.
func TestCapacityWithinLimits(t *testing.T) {
	var stacks []Checked
	for i := range 100 {
		tenant := "large"
		if i < 20 {
			tenant = "small"
		}
		stacks = append(stacks, Checked{Tenant: tenant, Every: 100 * time.Second, Took: 5 * time.Second})
	}
	for name, c := range map[string]struct {
		slots Slots
		met   bool
		says  string
	}{
		"enough of all":                      {Slots{Runs: 10, Checks: 8, PerTenant: 5}, true, ""},
		"too few for a tenant":               {Slots{Runs: 10, PerTenant: 3}, false, "Drift checks of 1 tenant need more than --max-runs-per-tenant allows, which is 3, and start later than their interval. The largest needs 4.0 runs at once. Set --max-runs-per-tenant to 5, or longer intervals."},
		"too few for the class":              {Slots{Runs: 10, Checks: 4}, false, "Drift checks of 100 stacks every 2m need 5.0 runs at once, and --max-runs-per-class drift is 4: checks start later than their interval. Set --max-runs-per-class drift to 7, or the intervals of the stacks to 3m."},
		"just enough, beside slots of their": {Slots{Runs: 10, Checks: 5}, true, ""},
		"no slot is bounded but a tenant's":  {Slots{PerTenant: 3}, false, "--max-runs-per-tenant"},
	} {
		t.Run(name, func(t *testing.T) {
			got := Capacity(stacks, c.slots)
			if got.CycleMet != c.met || !strings.Contains(got.Warning, c.says) || c.says == "" && got.Warning != "" {
				t.Errorf("Capacity() = %+v, want met %t and %q", got, c.met, c.says)
			}
			if math.Abs(got.Tenants["large"]-4) > 1e-9 || math.Abs(got.Tenants["small"]-1) > 1e-9 {
				t.Errorf("tenants need %v, want 4 and 1 slots", got.Tenants)
			}
		})
	}
}

// One slow look does not count for all, and what is no look does not count.
func TestBoardLearnsHowLongChecksTake(t *testing.T) {
	o := placed("a", "net", stack.Applied)
	o.Spec.Interval = &metav1.Duration{Duration: 10 * time.Second}
	b := syncedBoard(o, placed("a", "off", stack.AwaitingApproval))
	uid := string(o.UID)
	b.Ran(uid, stack.ApplyRun, time.Hour)
	b.Ran("of-nobody", stack.CheckRun, time.Hour)
	b.Ran(uid, stack.CheckRun, 4*time.Second)
	b.Ran(uid, stack.CheckRun, 8*time.Second)
	got, err := b.Capacity(Slots{Runs: 2})
	if err != nil || got.Stacks != 1 || got.Measured != 1 || got.RunSeconds != 5 || got.SlotsNeeded != 0.5 {
		t.Errorf("Capacity() = %+v, %v, want one stack that takes half a slot", got, err)
	}
}

// lastLooks are the records of the last drift checks, by stack.
type lastLooks map[string]runner.Report

func (l lastLooks) Get(_ context.Context, key string) ([]byte, error) {
	for uid, r := range l {
		if key == record.Run(uid, record.QuietRun, record.ReportFile) {
			return json.Marshal(r)
		}
	}
	return nil, fault.New(fault.Missing, "", io.EOF)
}

func (lastLooks) List(context.Context, string) ([]string, error) { return nil, nil }

func (lastLooks) Current(string) (*runner.Report, error) { return nil, nil }

func (lastLooks) Open(string, string, string) (io.ReadCloser, error) { return nil, nil }

func TestBoardLearnsFromRecords(t *testing.T) {
	old, fresh, never := placed("a", "old", stack.Applied), placed("a", "fresh", stack.Applied), placed("a", "never", stack.Applied)
	b := syncedBoard(old, fresh, never)
	b.Ran(string(fresh.UID), stack.CheckRun, 6*time.Second)
	took := func(d time.Duration) runner.Report {
		return runner.Report{Kind: stack.CheckRun, Outcome: stack.Succeeded, Started: day, Finished: day.Add(d)}
	}
	kept := lastLooks{string(old.UID): took(2 * time.Second), string(fresh.UID): took(time.Hour)}
	if err := b.Measure(t.Context(), NewBlobs(kept, kept, time.Second)); err != nil {
		t.Fatal(err)
	}
	if got, err := b.Capacity(Slots{Runs: 1}); err != nil || got.Measured != 2 || got.RunSeconds != 4 {
		t.Errorf("Capacity() = %+v, %v, want two looks of four seconds on average", got, err)
	}
}
