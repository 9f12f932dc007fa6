package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/runner/script"
	"github.com/terrier-iac/terrier/internal/sandbox"
)

// This file has the guards of the calls of a script: what is refused because the stack has an
// approved plan, or would have another state than its own.

// unapproved says why a call is none that an approved plan lets run; empty if it may run.
func (r *scriptCalls) unapproved(c *script.Call, i engine.Invocation) string {
	if r.approved == "" {
		return ""
	}
	for _, v := range c.Env {
		if name, value, _ := strings.Cut(v, "="); strings.HasPrefix(name, "TF_CLI_ARGS") && value != "" {
			return fmt.Sprintf("%s is set. The run has an approved plan, and compares each command with it: unset the variable, and give its flags to the command.", name)
		}
	}
	_, refreshes := i.Value("refresh-only")
	switch {
	case i.OnlyReads():
		return ""
	case i.Name != "apply" || refreshes:
		return fmt.Sprintf("%s would change the state or resources, and the approved plan lets %s apply alone change them. Remove the command from the script.",
			shownCommand(r.job.Engine.Name, i, refreshes), r.job.Engine.Name)
	case c.Dir != r.moduleDir():
		return fmt.Sprintf("The plan that was approved is of the directory of the stack, and %s is another one. Make a stack of its own of it.", r.shownDir(c.Dir))
	}
	return ""
}

// shownCommand is how people know a command.
func shownCommand(name string, i engine.Invocation, refreshes bool) string {
	shown := name + " " + i.Name
	if operands := i.Operands(); (i.Name == "state" || i.Name == "workspace") && len(operands) > 0 {
		shown += " " + operands[0]
	}
	if i.Name == "init" {
		shown += " with -migrate-state or -force-copy"
	}
	if refreshes {
		shown += " -refresh-only"
	}
	return shown
}

// foreign says which variable that the script has set would lead to another state; empty
// if none does.
func (r *scriptCalls) foreign(env []string) string {
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		switch {
		case name == "TF_DATA_DIR" && value != "":
			return "TF_DATA_DIR is set. The directory of the stack keeps what init makes in .terraform: unset the variable, or use another directory."
		case name == "TF_WORKSPACE" && value != "" && value != orDefaultWorkspace(r.job.Workspace):
			return fmt.Sprintf("TF_WORKSPACE is %q. The workspace of the stack is %q: unset the variable.", value, orDefaultWorkspace(r.job.Workspace))
		}
	}
	return ""
}

func orDefaultWorkspace(w string) string {
	if w == "" {
		return "default"
	}
	return w
}

// otherBackend says which setting of the script would lead to another state than Terrier
// keeps, or than a plug-in names; empty if none does.
func (r *scriptCalls) otherBackend(c *script.Call, i engine.Invocation) string {
	if !r.job.Managed && !r.state.locally && r.job.Backend == nil && r.job.Options.BackendFile == "" && len(r.job.Options.Backend) == 0 {
		return "" // the code and the script say where the state is
	}
	where, found := "-backend-config", i.Mentions("backend-config")
	for _, v := range c.Env {
		name, value, _ := strings.Cut(v, "=")
		if (name == "TF_CLI_ARGS" || name == "TF_CLI_ARGS_init") && strings.Contains(value, "backend-config") {
			where, found = "-backend-config in "+name, true
		}
	}
	if !found {
		return ""
	}
	return fmt.Sprintf("%s init has %s, and the object of the stack says where its state is: remove the flag.", r.job.Engine.Name, where)
}

// approve reads what the approved plan would change, if there is one.
func (r *scriptCalls) approve(ctx context.Context) error {
	if r.job.Plan.Size == 0 {
		return nil
	}
	_, doc, err := r.plans.showCopy(ctx, approvedName, r.job.Plan.Bytes())
	if err != nil {
		return err
	}
	r.approved = doc.Hash()
	return nil
}

// applyApproved applies a plan if it changes what was approved, and nothing else. What is
// compared and applied is a copy that no program in the sandbox can write.
func (r *scriptCalls) applyApproved(ctx context.Context, c *script.Call, i engine.Invocation) script.Result {
	saved := ""
	if operands := i.Operands(); len(operands) > 0 {
		saved = operands[0]
	} else {
		saved = r.work.scratch(planName)
		if result := r.execute(ctx, c, i.Planning(saved), true); result.Exit != 0 {
			return result
		}
	}
	saved, done, err := r.copyPlan(ctx, c, saved)
	if err != nil {
		return refused(c, "The plan cannot be compared with the approved one: %v.", err)
	}
	defer done()
	doc, err := r.show(ctx, c, saved)
	if err != nil {
		return refused(c, "The plan cannot be compared with the approved one: %v.", err)
	}
	if doc.Hash() != r.approved {
		if doc.ChangesNothing() {
			c.Say("The plan changes nothing, so there is nothing to apply.")
			return script.Result{}
		}
		why := fmt.Sprintf("%s apply would not do what was approved, but %s. It has done nothing. Approve the next plan.", r.job.Engine.Name, doc.Changes())
		r.mu.Lock()
		r.stale = why
		r.mu.Unlock()
		return refused(c, "%s", why)
	}
	return r.execute(ctx, c, engine.ParseInvocation(i.Applying(r.job.Engine.Name, saved)).Plainly().Args, true)
}

// copyPlan copies a saved plan of the script to where the sandbox can only read it. The
// plan may be at any place that programs in the sandbox see, so one of them reads it.
func (r *scriptCalls) copyPlan(ctx context.Context, c *script.Call, saved string) (inside string, done func(), err error) {
	data, err := r.output(ctx, "reading it", maxPlan, sandbox.Command{Path: sandbox.Self, Args: []string{script.Print, saved}, Dir: c.Dir})
	if err != nil {
		return "", nil, err
	}
	r.mu.Lock()
	r.outputs++
	name := fmt.Sprintf("%s-%d", planName, r.outputs)
	r.mu.Unlock()
	host := r.work.path(dirShown, name)
	if err := errors.Join(os.WriteFile(host, data, 0o600), sandbox.AllowRead(host)); err != nil {
		return "", nil, errors.Join(err, removeIfThere(host))
	}
	return r.plans.shownPath(name), func() { r.recorder.keepError(removeIfThere(host)) }, nil
}

// show reads the copy of a saved plan.
func (r *scriptCalls) show(ctx context.Context, c *script.Call, saved string) (*plan.Document, error) {
	raw, err := r.output(ctx, "show", maxDocument, sandbox.Command{
		Path: r.sandbox.config.PathInside(r.sandbox.engineInside()), Args: engine.ShowJSON(saved), Env: r.environFor(c.Env), Dir: c.Dir,
	})
	if err != nil {
		return nil, err
	}
	return plan.ParseDocument(raw)
}

// output runs a program of the platform in the sandbox, and returns what it prints.
func (r *scriptCalls) output(ctx context.Context, doing string, most int, command sandbox.Command) ([]byte, error) {
	out, complaint := &capped{most: most}, &capped{most: maxText}
	command.Stdout, command.Stderr, command.Spares = out, complaint, true
	exit, err := r.processes.Run(func() (*sandbox.Process, error) { return r.providers.session.sandbox.Start(command) }, ctx.Done())
	switch {
	case err != nil:
		return nil, err
	case !exit.OK():
		return nil, fmt.Errorf("%s: %s: %s", doing, exit, strings.TrimSpace(complaint.String()))
	case out.over:
		return nil, fmt.Errorf("%s gave more than %d bytes", doing, most)
	}
	return out.Bytes(), nil
}
