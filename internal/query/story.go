package query

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/query/meaning"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Step is one step in the story of a stack.
type Step struct {
	Given string `json:"given,omitempty"` // what is assumed to have happened since the last step
	Does  string `json:"does"`
	Rule  string `json:"rule"`
}

// ExplainManifest says what Terrier would do with each stack of a manifest, without
// a cluster: it assumes that sources and inputs can be read and that runs succeed.
// A manifest with a status is explained from that status on.
func ExplainManifest(content []byte, kinds Kinds, now time.Time) ([]Explanation, error) {
	docs, err := ReadManifest(content)
	if err != nil {
		return nil, err
	}
	var out []Explanation
	for _, d := range docs {
		of := d.Dialect(kinds)
		if of == nil {
			continue
		}
		o := of.New()
		raw, err := d.yaml()
		if err == nil {
			err = yaml.UnmarshalStrict(raw, o)
		}
		if err != nil {
			return nil, fault.New(fault.Invalid, ReasonManifest, fmt.Errorf("reading the %s at line %d: %w", of.Kind().Kind, d.Line(), err))
		}
		e, err := explainObject(ReadObject(kinds, o), now)
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	if out == nil {
		return nil, fault.New(fault.Invalid, ReasonManifest, fmt.Errorf("the manifest holds no %s", spelledOut(kinds)))
	}
	return out, nil
}

// spelledOut lists the kinds in the words of a manifest.
func spelledOut(kinds Kinds) string {
	var all []string
	for _, d := range kinds.All() {
		all = append(all, d.Kind().Kind+" of "+d.Kind().Group)
	}
	return strings.Join(all, ", and no ")
}

func explainObject(o *Object, now time.Time) (Explanation, error) {
	err := o.Invalid
	if err != nil && fault.Of(err) != fault.Invalid {
		return Explanation{}, fmt.Errorf("reading %s: %w", o.Key(), err)
	}
	seen := pretend(o, now)
	if err != nil {
		seen.Blocked = &stack.Blocked{Kind: fault.Invalid, Reason: stack.SpecInvalid, Message: err.Error()}
	}
	d := stack.Decide(seen)
	s := View(o)
	s.Phase, s.Rule, s.Message = string(d.Reason), d.Rule, d.Message
	s.Stalled = d.Ready == stack.Stalled
	e := Explanation{Stack: s, Means: o.explained(d.Reason), Facts: facts(s, o.Status), Rules: ruleOutcomes(d.Rule, o.Spec.Words), Story: tell(seen), Assumed: true}
	for _, f := range o.Ignored {
		e.Facts = append(e.Facts, f+" is set and has no effect yet")
	}
	for _, f := range o.OnlyPods {
		e.Facts = append(e.Facts, f+" is set and has an effect only where runs are pods")
	}
	return e, nil
}

// pretend observes a stack as if all objects that it refers to existed, unchanged
// since the last plan.
func pretend(o *Object, now time.Time) stack.Observation {
	inputs := o.Status.Planned
	if inputs == (stack.PlanInputs{}) {
		inputs = stack.PlanInputs{Revision: "newest", Source: "newest", Shape: o.Configuration.Shape(), Engine: "tofu"}
	}
	if p := o.Status.Pending; p != nil {
		inputs = p.PlanInputs
	}
	return stack.Observation{
		Now: now, Spec: o.Spec, Status: o.Status, Replan: o.Replan, PlanInputs: inputs,
		Deleting: o.Deleting(), CheckedAt: now,
	}
}

// storyLength is enough for: plan, approval, apply, outputs, settled.
const storyLength = 8

// tell simulates what follows from o when every run succeeds.
func tell(o stack.Observation) []Step {
	var story []Step
	given := ""
	for range storyLength {
		d := stack.Decide(o)
		story = append(story, Step{Given: given, Does: meaning.Action(d.Action), Rule: d.Rule})
		if given = next(&o, d, len(story)); given == "" {
			break
		}
	}
	return story
}

// next simulates a decision and says what it assumes; empty if that is the end.
func next(o *stack.Observation, d stack.Decision, n int) string {
	run := stack.Run{ID: "step" + strconv.Itoa(n), Done: true, Outcome: stack.Succeeded, At: o.Now, State: "newest", Exists: true,
		Cause: stack.Cause{PlanInputs: o.PlanInputs, Replan: o.Replan, Destroy: o.Spec.Destroy}}
	switch a := d.Action.(type) {
	case stack.Wait:
		if d.Reason == stack.AwaitingApproval {
			o.Spec.Approved = o.Status.Pending.Approvable()
			return "when a user approves the plan"
		}
		return ""
	case stack.Start:
		run.Kind = a.Kind
		o.CheckedAt = o.Now
		given := "there is no drift"
		if a.Kind == stack.PlanRun && o.Status.Applied == nil {
			name := plan.Name(o.PlanInputs.Revision)
			run.Plan = &stack.Plan{Name: name, Digest: name, PlanInputs: o.PlanInputs, Changes: stack.Changes{Add: 1}, Destroy: o.Spec.Destroy, At: o.Now}
			given = "the plan has changes"
		}
		o.Status = o.Status.Record(run)
		return given
	case stack.Apply:
		run.Kind, run.Cause.Plan = stack.ApplyRun, &a.Plan
		o.Status = o.Status.Record(run)
		return "the plan is applied"
	case stack.RunScript:
		run.Kind, run.Cause.Plan = stack.ScriptRun, a.Plan
		o.Status = o.Status.Record(run)
		return "the script succeeds"
	case stack.Destroy:
		run.Kind = stack.DestroyRun
		o.Status = o.Status.Record(run)
		return "all resources are destroyed"
	case stack.RollBack:
		o.Status = stack.BeginRollback(o.Status, a.Rollback, o.Spec.RollBack)
		o.PlanInputs = a.Rollback.Inputs(o.PlanInputs.Engine)
		return "the stack is rolled back"
	case stack.Renew:
		o.OtherDestroy = false
		return "the record has the script"
	case stack.Publish:
		o.Status.Published = stack.Publication(o.Spec.Outputs, a.State)
		return "the outputs are written"
	case stack.Cancel:
		o.Run = nil
		return "the run is stopped"
	case stack.Finish:
		return ""
	default:
		panic("query: an action without a next step") // the set is closed
	}
}
