package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// large is a module of very many resources and one very long value.
const large = `
resource "terraform_data" "many" {
  count = 5000
  input = "number ${count.index}"
}
output "text" { value = join("", [for i in range(1000) : format("%01500d", i)]) }
output "count" { value = length(terraform_data.many) }
`

// reader takes the long value over.
const reader = `
variable "text" {}
output "length" { value = length(var.text) }
`

// large measures a stack that is much larger than most: what it takes to plan
// and to apply it, beside the bare engine, and what is kept of it.
func (b *bench) large(ctx context.Context, out io.Writer) (err error) {
	f := newFacts(out, "5,000 resources and a value of 1.5 MB")
	plain, err := b.plain(filepath.Join(b.scratch, "large-bare"), large)
	if err != nil {
		return err
	}
	bare, err := measure(func() error { return plain.apply(ctx) })
	if err != nil {
		return err
	}
	f.fact("bare init, plan and apply", spent(bare), "")
	e, err := b.estate(ctx, "large")
	defer func() { err = errors.Join(err, e.close()) }()
	if err != nil {
		return err
	}
	s, took, err := e.large(ctx)
	if err != nil {
		return err
	}
	f.fact("from the creation of the stack until it is ready", seconds(took), "no trouble")
	if err := e.spent(ctx, f, s); err != nil {
		return err
	}
	if err := e.kept(ctx, f, s); err != nil {
		return err
	}
	read, err := e.reader(ctx)
	if err != nil {
		return err
	}
	f.fact("another stack takes the value as a variable, ready after", seconds(read), "")
	peak, err := peakOf(e.controller.Process.Pid)
	if err != nil {
		return err
	}
	f.fact("controller, most memory", mib(peak), "")
	return f.err
}

func spent(s sample) string { return fmt.Sprintf("%s, CPU %s", seconds(s.wall), seconds(s.cpu)) }

// large builds the stack.
func (e *estate) large(ctx context.Context) (*v1alpha2.Terraform, time.Duration, error) {
	s, err := inline("default", "large", large)
	if err != nil {
		return nil, 0, err
	}
	s.Spec.WriteOutputsToSecret = &v1alpha2.OutputSecret{Name: "large"}
	took, err := built(ctx, e.client, s)
	return s, took, err
}

// reader builds a stack whose variable is the long value.
func (e *estate) reader(ctx context.Context) (time.Duration, error) {
	s, err := inline("default", "reader", reader)
	if err != nil {
		return 0, err
	}
	s.Spec.VarsFrom = []v1alpha2.VarsReference{{Kind: "Secret", Name: "large", VarsKeys: []string{"text"}}}
	s.Spec.WriteOutputsToSecret = &v1alpha2.OutputSecret{Name: "read"}
	took, err := built(ctx, e.client, s)
	if err != nil {
		return 0, err
	}
	var read corev1.Secret
	if err := e.client.Get(ctx, client.ObjectKey{Namespace: "default", Name: "read"}, &read); err != nil {
		return 0, err
	}
	if got := string(read.Data["length"]); got != "1500000" {
		return 0, fmt.Errorf("the reader read %q bytes of 1500000", got)
	}
	return took, nil
}

// spent prints what the runs of the stack took. Reports know the CPU time of
// engine processes, and not that of the supervisor.
func (e *estate) spent(ctx context.Context, f *facts, s *v1alpha2.Terraform) error {
	runs, err := e.history(ctx, s)
	if err != nil {
		return err
	}
	var most int64
	for _, kind := range []stack.RunKind{stack.PlanRun, stack.ApplyRun} {
		var all sample
		for _, r := range runs {
			if r.Kind != kind {
				continue
			}
			one, largest := engineOf(r)
			all.wall, all.cpu, most = all.wall+one.wall, all.cpu+one.cpu, max(most, largest)
		}
		f.fact(fmt.Sprintf("… the run that is its %s", kind), spent(all), "")
	}
	f.fact("largest engine process of these runs", mib(most), "")
	return nil
}

// engineOf is how long a run took, what CPU time its engine processes used, and
// the most memory that one of them held.
func engineOf(r runner.Report) (took sample, largest int64) {
	took.wall = r.Finished.Sub(r.Started)
	for _, step := range r.Steps {
		took.cpu, largest = took.cpu+step.CPU, max(largest, step.MaxRSS)
	}
	return took, largest
}

// kept prints how much is stored of the stack.
func (e *estate) kept(ctx context.Context, f *facts, s *v1alpha2.Terraform) error {
	records := e.data("records", "stacks", string(s.UID))
	plan, err := sizeOf(filepath.Join(records, "plans"))
	if err != nil {
		return err
	}
	all, err := sizeOf(records)
	if err != nil {
		return err
	}
	var state corev1.Secret
	if err := e.client.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: "tfstate-default-" + s.Name}, &state); err != nil {
		return fmt.Errorf("reading the state: %w", err)
	}
	f.fact("its plan in the records", mib(plan), "")
	f.fact("its state in its Secret, packed", fmt.Sprintf("%d KiB", len(state.Data["tfstate"])>>10), "")
	f.fact("all records of it: plan, state, versions, logs, outputs", mib(all), "")
	return nil
}

// sizeOf is what the files below a directory hold together.
func sizeOf(dir string) (int64, error) {
	var total int64
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, os.ErrNotExist) {
			return nil // records are replaced by renaming
		}
		if err == nil {
			total += info.Size()
		}
		return err
	})
	return total, err
}
