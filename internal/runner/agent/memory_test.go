package agent

import (
	"strconv"
	"testing"
	"testing/fstest"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// The run has what the limit of its container leaves beside the agent, and no more than
// its job says. A limit in which no engine starts is refused.
func TestARunHasWhatItsPlaceLeaves(t *testing.T) {
	engine := runner.Job{Engine: runner.Engine{Name: "tofu"}, Kind: stack.PlanRun}
	script := runner.Job{Engine: runner.Engine{Name: "tofu"}, Kind: stack.ScriptRun, Script: &runner.Script{}}
	for name, tt := range map[string]struct {
		limit     string
		job, want int64
		invalid   bool
		run       runner.Job
	}{
		"no limit":               {"max", 4 << 30, 4 << 30, false, engine},
		"a limit below the job":  {strconv.Itoa(512 << 20), 4 << 30, 448 << 20, false, engine},
		"a job below the limit":  {strconv.Itoa(512 << 20), 300 << 20, 300 << 20, false, engine},
		"a job without a limit":  {strconv.Itoa(512 << 20), 0, 448 << 20, false, engine},
		"the least limit":        {strconv.Itoa(160 << 20), 0, 96 << 20, false, engine},
		"a limit that is small":  {strconv.Itoa(159 << 20), 4 << 30, 4 << 30, true, engine},
		"of a check of health":   {strconv.Itoa(128 << 20), 4 << 30, 64 << 20, false, runner.Job{Kind: stack.HealthRun}},
		"of a script":            {strconv.Itoa(128 << 20), 0, 64 << 20, false, script},
		"of a script, tiny":      {strconv.Itoa(64 << 20), 0, 16 << 20, false, script},
		"no limit for no memory": {"max", 0, 0, false, engine},
	} {
		t.Run(name, func(t *testing.T) {
			job := tt.run
			job.Limits.Memory = tt.job
			err := fitMemory(&job, fstest.MapFS{
				"proc/self/cgroup":         &fstest.MapFile{Data: []byte("0::/\n")},
				"sys/fs/cgroup/memory.max": &fstest.MapFile{Data: []byte(tt.limit + "\n")},
			})
			if invalid := fault.Of(err) == fault.Invalid; invalid != tt.invalid || err != nil && !invalid {
				t.Errorf("fitMemory() = %v, want it refused: %v", err, tt.invalid)
			}
			if job.Limits.Memory != tt.want {
				t.Errorf("the run has %d MiB, want %d", job.Limits.Memory>>20, tt.want>>20)
			}
		})
	}
}
