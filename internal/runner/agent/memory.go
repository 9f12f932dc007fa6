package agent

import (
	"fmt"
	"io/fs"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/machine"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// What the memory limit of a place has to have room for, in bytes.
const (
	OwnMemory   = 64 << 20 // the agent and the supervisor
	LeastMemory = 96 << 20 // an engine: tofu 1.12 does not start with 64 MiB
)

// MemoryTooSmall is the reason of a run whose place has too small a limit.
const MemoryTooSmall = "PodMemoryTooSmall"

// TooSmall refuses a memory limit in which no engine starts; 0 is no limit. A run that
// starts none by itself, as one that asks for health or runs a script, may have less.
func TooSmall(limit int64, job runner.Job) error {
	scripted := job.Script != nil && (job.Kind == stack.ScriptRun || job.Kind == stack.DestroyRun)
	if limit == 0 || limit >= OwnMemory+LeastMemory || job.Engine.Name == "" || scripted {
		return nil
	}
	way := "set spec.runnerPodTemplate.spec.resources.limits.memory, "
	if job.Script != nil {
		way = "set " // the kind has no template of a pod
	}
	return fault.New(fault.Invalid, MemoryTooSmall, fmt.Errorf(
		"the memory limit of the pod is %d MiB. The agent in it takes %d MiB, and an engine needs %d MiB to start: "+
			way+"--run-resources limits.memory or the LimitRange of the namespace to %dMi or more",
		limit>>20, OwnMemory>>20, LeastMemory>>20, (OwnMemory+LeastMemory)>>20))
}

// fitMemory gives the run what the limit of this place leaves to it. A run that takes
// more is killed as a whole, with the agent: the engine has to fail before that.
func fitMemory(job *runner.Job, root fs.FS) error {
	limit := machine.Group(root)
	if err := TooSmall(limit, *job); err != nil || limit == 0 {
		return err
	}
	if left := max(limit-OwnMemory, limit/4); job.Limits.Memory == 0 || job.Limits.Memory > left {
		job.Limits.Memory = left
	}
	return nil
}
