package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
)

// decideCommands decide about plans.
type decideCommands struct{ *program }

func (p decideCommands) commands() []*cobra.Command {
	return []*cobra.Command{p.approve(), p.reject(), p.drift(), p.repair()}
}

func (p decideCommands) approve() *cobra.Command {
	var (
		file, comment string
		yes, override bool
	)
	c := &cobra.Command{
		Use:   "approve STACK [PLAN]",
		Short: "Approve the pending plan",
		Long: `Shows the pending plan and approves exactly this plan. If PLAN is given, by name or
by digest, and another plan is pending, the command approves nothing. The same holds
if another plan replaces the pending one while the command runs. An approval becomes
void as soon as an input of the plan changes.

On a terminal the command asks first, unless PLAN or --yes is given. Without a terminal
it approves the pending plan, except one that destroys resources: that needs PLAN or
--yes. In a script, give PLAN, so that no other plan than the one that you know can be
approved.

A policy may need more approvals than one. Then the command records yours, and says which
are still needed. A stack with approvePlan: auto stays automatic: only this plan is approved.

Where the windows or freezes of policies withhold the plan, --override-window has exactly
this plan applied nevertheless, if the policies let you: see windowOverride in their guards.
That also needs the permission to update terraforms/windows.

With -f the command writes the approval into a manifest instead, for stacks that are
kept in Git. It changes only the field approvePlan of the stack.`,
		Example: `  terrier approve network
  terrier approve network plan-main-b8e362c206
  terrier approve network plan-main-b8e362c206 --override-window -m "incident 4711"
  terrier approve network -f clusters/prod/network.yaml`,
		GroupID:           groupDecide,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: p.names,
		RunE: func(cmd *cobra.Command, args []string) error {
			if file != "" && comment != "" {
				return usage("--comment is stored on the object, and -f writes into a file: use only one of them")
			}
			if file != "" && override {
				return usage("--override-window is stored on the object, and -f writes into a file: use only one of them")
			}
			s, st, seen, err := p.pending(cmd.Context(), args)
			if err != nil {
				return err
			}
			if st.Pending == "" {
				_, err := fmt.Fprintf(p.Stdout, "Nothing is pending: %s.\n", clean(st.AppliedText()))
				return err
			}
			if err := p.summarize(cmd.Context(), s, st, seen); err != nil {
				return err
			}
			if file != "" {
				return p.approveIn(file, st, seen)
			}
			if r := st.Run; r != nil && stack.RunKind(r.Kind).Applies() {
				_, err := fmt.Fprintf(p.Stdout, "The run %s applies the plan %s already.\n", clean(r.ID), clean(seen.Name))
				return err
			}
			if len(args) < 2 && (p.Terminal || seen.Changes.Destroy > 0) {
				if agreed, err := p.agreed(yes, "Approve %s of %s%s?", seen.Name, st.Key(), destroying(seen)); !agreed {
					if err == nil {
						p.say("Nothing was approved.\n")
					}
					return err
				}
			}
			do := s.Approve
			if override {
				do = s.OverrideWindow
			}
			got, err := do(cmd.Context(), st.Key(), seen, comment)
			if err != nil {
				return err
			}
			if !override || got.Undecidable == "" {
				p.approved(got, seen)
			}
			if override {
				p.say("Recorded that %s is to be applied outside of the windows of policies. terrier explain says whether they let you do so.\n", seen.Name)
			}
			if st.Suspended {
				p.note("The stack is suspended. The plan is applied when the stack is resumed.\n")
			}
			return nil
		},
	}
	c.Flags().StringVarP(&file, "filename", "f", "", "write the approval into this `file`; - edits standard input to standard output")
	c.Flags().StringVarP(&comment, "comment", "m", "", "a comment, stored on the object and in the audit log")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "approve without asking")
	c.Flags().BoolVar(&override, "override-window", false, "apply the plan outside of the windows of policies")
	return c
}

// approved says what came of an approval: the plan is approved, or which approvals it needs
// besides, and what the next user runs.
func (p decideCommands) approved(st query.Stack, seen query.PlanInfo) {
	a := st.Approvals
	if a == nil || a.Left == "" {
		p.say("Approved %s of %s.\n", seen.Name, st.Key())
		return
	}
	who := "your approval"
	if st.DecidedBy != "" {
		who = "the approval of " + st.DecidedBy
	}
	p.say("Recorded %s. %s\n", who, a.Text())
	if a.Unverified == "" {
		p.say("The next user runs: %s\n", a.Next)
	}
}

// destroying says how many resources a plan destroys.
func destroying(seen query.PlanInfo) string {
	if seen.Changes.Destroy == 0 {
		return ""
	}
	return ", which destroys " + query.Count(seen.Changes.Destroy, "resource")
}

func (p decideCommands) reject() *cobra.Command {
	var comment string
	c := &cobra.Command{
		Use:   "reject STACK [PLAN]",
		Short: "Reject the pending plan",
		Long: `Records on the stack that the pending plan was rejected, and withdraws an approval of
it that was not acted upon yet. The plan is not applied, and stays until a change of
the source, the inputs or the spec makes another one.

If a run applies the plan by now, or has applied it, the rejection is too late: the
command says so, and exits with 5. The rejection is in the audit log all the same.`,
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
			p.say("Rejected %s of %s.\n", seen.Name, st.Key())
			return nil
		},
	}
	c.Flags().StringVarP(&comment, "comment", "m", "", "a reason, stored on the object and in the audit log")
	return c
}

// pending finds the plan to decide on.
func (p decideCommands) pending(ctx context.Context, args []string) (command.StackAPI, query.Stack, query.PlanInfo, error) {
	s, key, err := p.one(ctx, args[0])
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

// summarize shows the plan before the approval: the plan itself if its document
// can be read, else its counts, since an approval does not depend on the document.
func (p decideCommands) summarize(ctx context.Context, s command.StackAPI, st query.Stack, seen query.PlanInfo) error {
	if st.Plan == nil {
		p.note("The changes of the plan are not known.\n")
		return nil
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
	p.note("%s\nThe details of the plan cannot be shown: %s\n", plan.Summarize(seen.Changes), err)
	return nil
}

// approveIn writes an approval into a manifest.
func (p decideCommands) approveIn(file string, st query.Stack, seen query.PlanInfo) error {
	before, err := p.readFile(file, manifestBytes)
	if err != nil {
		return err
	}
	after, err := command.ApproveInManifest(before, p.connection.StackKinds(), st.Key(), seen.Name)
	if err != nil {
		return fmt.Errorf("editing %s: %w", file, err)
	}
	if file == stdin {
		p.print(p.Stdout, string(after))
		return nil
	}
	if bytes.Equal(before, after) {
		p.say("%s already approves %s.\n", file, seen.Name)
		return nil
	}
	if err := replaceFile(p.path(file), after); err != nil {
		return err
	}
	p.say("%s approves %s now. To approve the plan in the cluster: kubectl apply -f %[1]s\n", file, seen.Name)
	return nil
}

// replaceFile replaces the content of a file atomically, and
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

// confirmations is the rule that all commands follow, as the help has it.
const confirmations = `Commands that destroy something, or that cannot be undone, ask for a confirmation on a
terminal. Without a terminal they change nothing and exit with 2, unless --yes is given.
They are: approve of a plan that destroys resources, repair, cancel, state push, state
rollback, state accept, retained forget, rollout undo, rows --allow, module retract and
provider retract of a version that stacks use, and break-glass with a command that
changes the state. approve of another plan asks on a terminal only. A
command that names the plan or the lock that it is about does not ask. All other
commands never ask.`

// IsTerminal reports whether a user can answer questions at f.
func IsTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// errNoAnswer is the error of a question without an answer. A script
// that does not know of the question must not take that for success.
var errNoAnswer = fault.New(fault.Invalid, "NoAnswer", errors.New("the question was not answered, so nothing was changed: answer y, or use --yes"))

// agreed asks a question on standard error, unless the user has agreed before, and
// reads the answer. Every answer but yes is a no; the end of input is neither. Without
// a terminal nothing is asked: what a script has on its standard input is no answer.
func (p *printer) agreed(before bool, question string, args ...any) (bool, error) {
	if before {
		return true, nil
	}
	if !p.Terminal {
		return false, fault.New(fault.Invalid, "NoAnswer", fmt.Errorf(question+" There is no terminal to ask this on, so nothing was changed: use --yes", args...))
	}
	p.note(question+" [y/N] ", args...)
	line, err := bufio.NewReader(io.LimitReader(p.Stdin, 100)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("reading the answer: %w", err)
	}
	if errors.Is(err, io.EOF) {
		p.note("\n")
		if line == "" {
			return false, errNoAnswer
		}
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true, nil
	default:
		return false, nil
	}
}
