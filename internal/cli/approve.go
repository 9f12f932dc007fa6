package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/query"
)

func (p *program) approve() *cobra.Command {
	var file, comment string
	c := &cobra.Command{
		Use:   "approve STACK [PLAN]",
		Short: "Let the plan that waits be applied",
		Long: `Approves exactly the plan that waits, and shows what that is. If PLAN is given,
by name or by digest, and another plan waits, nothing is approved. The same goes
for a plan that takes the place of the one shown while the command runs, and for
anything that changes afterwards: an approval is of one plan.

With -f the approval is written into a manifest instead, for whoever keeps their
objects in git: only approvePlan of the stack is changed, in place.`,
		Example: `  terrier approve network
  terrier approve network plan-main-b8e362c206
  terrier approve network -f clusters/prod/network.yaml`,
		GroupID:           groupDecide,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: p.names,
		RunE: func(cmd *cobra.Command, args []string) error {
			if file != "" && comment != "" {
				return usage("a comment is kept on the object, and -f writes into a file: give one of them")
			}
			s, st, seen, err := p.pending(cmd.Context(), args)
			if err != nil {
				return err
			}
			if err := p.summarize(cmd.Context(), s, st, seen); err != nil {
				return err
			}
			if file != "" {
				return p.approveIn(file, st, seen)
			}
			if _, err := s.Approve(cmd.Context(), st.Key(), seen, comment); err != nil {
				return err
			}
			_, err = fmt.Fprintf(p.Stdout, "Approved %s of %s.\n", clean(seen.Name), clean(st.Key().String()))
			if err == nil && st.Suspended {
				_, err = fmt.Fprintln(p.Stderr, "The stack is suspended: it is applied once somebody resumes it.")
			}
			return err
		},
	}
	c.Flags().StringVarP(&file, "filename", "f", "", "write the approval into this `file`; - edits standard input to standard output")
	c.Flags().StringVarP(&comment, "comment", "m", "", "what to say about it; it stays on the object and in the audit journal")
	return c
}

func (p *program) reject() *cobra.Command {
	var comment string
	c := &cobra.Command{
		Use:   "reject STACK [PLAN]",
		Short: "Turn down the plan that waits",
		Long: `Notes on the stack that the plan which waits was turned down, and takes back an
approval of it that was not acted upon yet. The plan stays where it is until a
change of source, inputs or spec, or "terrier replan", puts another in its place.`,
		Example: `  terrier reject network
  terrier reject network plan-main-b8e362c206`,
		GroupID:           groupDecide,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: p.names,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, st, seen, err := p.pending(cmd.Context(), args)
			if err != nil {
				return err
			}
			if _, err := s.Reject(cmd.Context(), st.Key(), seen, comment); err != nil {
				return err
			}
			_, err = fmt.Fprintf(p.Stdout, "Rejected %s of %s.\n", clean(seen.Name), clean(st.Key().String()))
			return err
		},
	}
	c.Flags().StringVarP(&comment, "comment", "m", "", "why; it stays on the object and in the audit journal")
	return c
}

// pending finds the plan that a decision is about.
func (p *program) pending(ctx context.Context, args []string) (*command.Stacks, query.Stack, query.PlanInfo, error) {
	s, key, err := p.one(args[0])
	if err != nil {
		return nil, query.Stack{}, query.PlanInfo{}, err
	}
	st, err := s.Get(ctx, key)
	if err != nil {
		return nil, query.Stack{}, query.PlanInfo{}, err
	}
	name := ""
	if len(args) == 2 {
		name = args[1]
	}
	seen, err := command.Pending(st, name)
	return s, st, seen, err
}

// shownBefore is how many resources are listed before an approval.
const shownBefore = 20

// summarize shows what is about to be approved: the plan itself if its document
// can be read, and its counts if not, for an approval does not depend on that.
func (p *program) summarize(ctx context.Context, s *command.Stacks, st query.Stack, seen query.PlanInfo) error {
	if st.Plan == nil {
		_, err := fmt.Fprintln(p.Stderr, "What it would do is not known here.")
		return err
	}
	doc, err := s.Plan(ctx, st.Key(), seen.Digest)
	if err == nil {
		var d *plan.Document
		if d, err = plan.ParseDocument(doc.Document); err == nil {
			return plan.Render(p.Stderr, d, plan.Options{Limit: shownBefore})
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	_, err = fmt.Fprintf(p.Stderr, "%s\nWhat that is in detail cannot be shown: %s\n", plan.Summarize(seen.Changes), clean(err.Error()))
	return err
}

// approveIn writes an approval into a manifest.
func (p *program) approveIn(file string, st query.Stack, seen query.PlanInfo) error {
	path := file
	if file != "-" && !filepath.IsAbs(file) {
		path = filepath.Join(p.Dir, file)
	}
	before, err := p.readFile(path)
	if err != nil {
		return err
	}
	after, err := command.ApproveInManifest(before, st.Key(), seen.Name)
	if err != nil {
		return fmt.Errorf("editing %s: %w", file, err)
	}
	if file == "-" {
		_, err := p.Stdout.Write(after)
		return err
	}
	if bytes.Equal(before, after) {
		_, err := fmt.Fprintf(p.Stdout, "%s approves %s already.\n", clean(file), clean(seen.Name))
		return err
	}
	if err := replaceFile(path, after); err != nil {
		return err
	}
	_, err = fmt.Fprintf(p.Stdout, "%s approves %s now. It counts once the file is applied.\n", clean(file), clean(seen.Name))
	return err
}

// manifestBytes bounds what is read of a manifest.
const manifestBytes = 16 << 20

// readFile reads a file that somebody named; - is standard input.
func (p *program) readFile(path string) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(io.LimitReader(p.Stdin, manifestBytes))
	}
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fault.New(fault.Missing, "FileMissing", err)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, manifestBytes))
}

// replaceFile puts content in the place of a file, whole or not at all, and
// keeps its mode. A link keeps pointing where it did.
func replaceFile(path string, content []byte) error {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(content)
	err = errors.Join(err, tmp.Chmod(info.Mode().Perm()), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("writing %s: %w", path, err), os.Remove(tmp.Name()))
	}
	return nil
}
