package runner

import (
	"context"
	"fmt"

	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/runner/managed"
	"github.com/terrier-iac/terrier/internal/stack"
)

// checkBlocks are the steps of a run that find out which check blocks of the module
// failed. To ask costs a process of the engine, so that it is asked only after it
// warned: a check block that fails is always a warning. A run is not a failure
// because of them.
type checkBlocks struct{ *run }

// planned keeps the results of a plan without changes, which is not shown.
func (r *checkBlocks) planned(ctx context.Context, warned bool) {
	r.find(warned, func() (stack.CheckBlocks, error) {
		made, err := r.plans.document(ctx)
		if err != nil {
			return stack.CheckBlocks{}, err
		}
		return made.doc.CheckBlocks(r.hide), nil
	})
}

// applied keeps the results of an apply, which are in the state.
func (r *checkBlocks) applied(ctx context.Context, warned bool) {
	r.find(warned, func() (stack.CheckBlocks, error) {
		data, file, err := r.newestState(ctx)
		if err != nil {
			return stack.CheckBlocks{}, err
		}
		return plan.CheckBlocksOfState(data, r.hide, plan.NewRedactor(file.Secrets()))
	})
}

// newestState is the state, readable: the one that we keep, or what the engine prints
// of another one and of an encrypted one.
func (r *checkBlocks) newestState(ctx context.Context) ([]byte, *managed.File, error) {
	if r.job.Managed {
		if data, file := r.state.store.Newest(); file != nil && file.Encrypted == nil {
			return data, file, nil
		}
	}
	out := &capped{most: managed.MaxBytes}
	if _, err := r.engine.execute(ctx, command{step: "check-blocks", args: engine.StatePull(), out: out}); err != nil {
		return nil, nil, err
	}
	if out.over {
		return nil, nil, fmt.Errorf("the state is larger than %d bytes", out.most)
	}
	file, err := managed.Parse(out.Bytes())
	return out.Bytes(), file, err
}

// find keeps what read finds. Without a warning no check block failed.
func (r *checkBlocks) find(warned bool, read func() (stack.CheckBlocks, error)) {
	var found stack.CheckBlocks
	if warned {
		var err error
		if found, err = read(); err != nil {
			r.recorder.logf("The results of the check blocks are unknown: %v.", err)
			return
		}
	}
	r.reportFile.set(func(rep *Report) { rep.CheckBlocks = &found })
}
