package aftersteps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/location"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

const (
	// hostsAgain is how often a file is written again whose repository did not answer, besides
	// the retries of its step. Then the step has failed.
	hostsAgain = 3

	// mostHostsMessage bounds the message of a step whose file was not written, in bytes.
	mostHostsMessage = 1 << 10
)

// hostsDuringRollback is what a step says that writes no hosts during a rollback: the source
// follows from the commit, so that the rollback would end, and the bad revision would be back.
const hostsDuringRollback = "the file is not written while the stack is rolled back, since a commit to its source would end the rollback"

// Writer carries out the orders of runs that ended.
type Writer struct {
	Hosts   *Hosts // nil if nothing is written here
	Queue   *Queue
	Outputs func(ctx context.Context, uid string) (map[string]kube.Output, error)
}

// Stack is whose orders are carried out.
type Stack struct {
	UID, Namespace, Name string
	By                   string                        // see ManagedBy
	RolledBack           bool                          // a rollback of it goes on
	Secrets              func() (client.Reader, error) // that reads its Secrets
	Wake                 func()                        // has it reconciled
	Warn                 func(reason, message string)  // its users
}

// Written is what is known of the files of the run that ended last. Its zero value knows nothing.
// It is used by one pass at a time.
type Written struct {
	run   string
	files map[string]*file // by step
}

// file is what is known of the file of one step.
type file struct {
	by    *Queue
	now   *writing  // nil if it is not being written
	first time.Time // when a pass asked for it first, as timers count
	tries int       // that the repository did not answer
	told  bool      // that it could not be written
	done  bool      // then the next two are what it came to
	said  string
	err   error
}

// Drop forgets the files, and ends what is being written: the stack is not of this controller
// any more.
func (k *Written) Drop() {
	for _, f := range k.files {
		if f.now != nil {
			f.by.drop(f.now)
		}
	}
	*k = Written{}
}

func (k *Written) file(run, step string, by *Queue) *file {
	if k.run != run {
		k.Drop()
		k.run, k.files = run, map[string]*file{}
	}
	if k.files[step] == nil {
		k.files[step] = &file{by: by}
	}
	return k.files[step]
}

// Settle carries out the orders of a run of the steps that ended, and has the step fail whose
// file cannot be written. With an error the run is not to be taken over yet: a repository has not
// answered. If its reason is Soon, that is nothing to tell yet. Writing again what is written
// changes nothing, so that this can be repeated.
func (w *Writer) Settle(ctx context.Context, s Stack, known *Written, r *runner.Report, orders []Order, run *stack.Run) error {
	remove := run.Kind != stack.StepsRun
	if len(orders) == 0 || run.Outcome != stack.Succeeded && (remove || run.Outcome != stack.Failed) {
		return nil // the next run after one that died has them, too
	}
	var waits error // of the first that is to be told, or else of the first: the others are begun as well
	for _, o := range orders {
		i := slices.IndexFunc(run.Steps, func(s stack.StepResult) bool { return s.Name == o.Step })
		if !remove && (i < 0 || run.Steps[i].State != stack.StepSucceeded) {
			continue
		}
		f := &file{done: true, said: hostsDuringRollback}
		if remove || !s.RolledBack {
			f = known.file(run.ID, o.Step, w.Queue)
		}
		if err := w.carryOut(ctx, s, f, o, run.ID); err != nil {
			if waits == nil || fault.Reason(waits, "") == Soon {
				waits = fmt.Errorf("the step %s: %w", o.Step, err)
			}
			continue
		}
		switch {
		case !remove:
			f.of(o.Step, i, r, run)
		case f.err != nil && !f.told:
			f.told = true
			s.Warn("HostsNotRemoved", fault.Shorten("The resources are destroyed, and their hosts may still be in "+o.Path+". Remove them there: "+f.err.Error(), mostHostsMessage))
		}
	}
	return waits
}

// of makes what a file came to the result of its step.
func (f *file) of(step string, i int, r *runner.Report, run *stack.Run) {
	if run.Steps[i].Message = f.said; f.err != nil {
		run.Steps[i].State, run.Steps[i].Message = stack.StepFailed, fault.Shorten(f.err.Error(), mostHostsMessage)
		run.Outcome, run.Message = stack.Failed, "the step "+step+" failed: "+run.Steps[i].Message
		r.Outcome, r.Message = run.Outcome, run.Message
	}
	if j := slices.IndexFunc(r.AfterSteps, func(s stack.StepResult) bool { return s.Name == step }); j >= 0 {
		r.AfterSteps[j].State, r.AfterSteps[j].Message = run.Steps[i].State, run.Steps[i].Message
	}
}

// carryOut has the file of an order written. With an error that is not over yet, and the end of
// the writing wakes the stack.
func (w *Writer) carryOut(ctx context.Context, s Stack, f *file, o Order, run string) error {
	if f.done {
		return nil
	}
	if f.now == nil {
		f.said, f.err = "", nil
		if f.now, f.err = w.writing(ctx, s, o, run); f.err == nil {
			w.Queue.add(f.now)
		}
		if f.first.IsZero() {
			f.first = time.Now()
		}
	}
	if f.now != nil {
		if !f.now.over() {
			err := w.Queue.waits(f.now, o.Path)
			if f.tries == 0 && time.Since(f.first) < w.Queue.patience {
				err = fault.New(fault.Later, Soon, err)
			}
			return err
		}
		f.said, f.err, f.now = f.now.said, f.now.err, nil
	}
	if k := fault.Of(f.err); f.err != nil && (k == fault.Later || k == fault.Broken) && f.tries < hostsAgain+o.Retries {
		f.tries++
		return f.err
	}
	f.done = true
	return nil
}

// over reports whether the writing ended.
func (w *writing) over() bool {
	select {
	case <-w.ended:
		return true
	default:
		return false
	}
}

// writing finds the repository of an order, and makes what writes to it.
func (w *Writer) writing(ctx context.Context, s Stack, o Order, run string) (*writing, error) {
	if w.Hosts == nil {
		return nil, fault.New(fault.Denied, "", errors.New("this platform writes to no repository"))
	}
	secrets, err := s.Secrets()
	if err != nil {
		return nil, err
	}
	f := For{Namespace: s.Namespace, Name: s.Name, By: s.By, Run: run, Secrets: secrets}
	in, err := w.Hosts.file(ctx, f, o)
	if err != nil {
		return nil, err
	}
	host, err := location.GitHost(in.Git.URL)
	if err != nil {
		host = o.Source // git says what is wrong with the URL
	}
	return &writing{
		namespace: s.Namespace, host: host, repository: in.Git.URL, wake: s.Wake, ended: make(chan struct{}),
		do: func(ctx context.Context) (string, error) {
			var outputs map[string]kube.Output
			if !o.Remove {
				var err error
				if outputs, err = w.Outputs(ctx, s.UID); err != nil {
					return "", fmt.Errorf("reading the outputs: %w", err)
				}
			}
			return w.Hosts.write(ctx, f, o, in, outputs)
		},
	}, nil
}
