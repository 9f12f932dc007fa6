package runnertest

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
)

const withCheckBlocks = `
variable "input" {
  default = "one"
}
variable "password" {
  default = "correct-horse-battery"
}
variable "wrong" {
  default = true
}
resource "terraform_data" "a" {
  input = var.input
}
module "m" {
  source = "./m"
  count  = 2
  wrong  = var.wrong && count.index == 1
}
check "password" {
  assert {
    condition     = !var.wrong
    error_message = "the password is ${var.password}"
  }
  assert {
    condition     = terraform_data.a.output == "two" || !var.wrong
    error_message = "output is ${terraform_data.a.output}"
  }
}
check "later" {
  assert {
    condition     = terraform_data.a.id == "" || !var.wrong
    error_message = "it has an id"
  }
}
`

// checkBlockOfData reads data, which every plan plans to read again in the apply.
const checkBlockOfData = `
check "source" {
  data "terraform_remote_state" "none" {
    backend = "local"
    config  = { path = var.wrong ? "/nonexistent/state" : "${path.module}/m/state.json" }
  }
  assert {
    condition     = data.terraform_remote_state.none.outputs.x == "x"
    error_message = "no x"
  }
}
`

const moduleWithCheckBlock = `
variable "wrong" {
  type = bool
}
check "inner" {
  assert {
    condition     = !var.wrong
    error_message = "wrong"
  }
}
`

const stateWithOutput = `{"version":4,"terraform_version":"1.9.0","serial":1,"lineage":"l","outputs":{"x":{"value":"x","type":"string"}},"resources":[]}`

// checkBlocks tests that the failing check blocks are in the report of each run that
// evaluates them, also of one that finds nothing to change.
func checkBlocks(t *testing.T, f Fixture) {
	s := f.stack(t, f.New(t), withCheckBlocks)
	failing := map[string]string{"check.password": "the password is (sensitive)", "module.m[1].check.inner": "wrong"}
	quiet, passed := evaluates(t, s, failing)
	if steps(quiet) != "plan show" || quiet.Plan != nil {
		t.Errorf("the drift check took the steps %q and left a plan of %d bytes, want plan and show and none", steps(quiet), len(quiet.Plan))
	}
	if steps(passed) != "plan" {
		t.Errorf("a drift check without warnings took the steps %q, want one plan", steps(passed))
	}

	s = f.stack(t, f.New(t), withCheckBlocks+checkBlockOfData)
	failing["check.source"] = "2 problems: - Unable to find remote state: No stored state was found for the given workspace in the given backend. " +
		"- data.terraform_remote_state.none: Unable to read remote state"
	evaluates(t, s, failing)
}

// evaluates goes through all runs that evaluate the check blocks of s, while they fail
// as they do in a plan and, at the end, pass.
func evaluates(t *testing.T, s *Stack, failing map[string]string) (quiet, passed Done) {
	t.Helper()
	s.Job.Files = append(s.Job.Files,
		workdir.File{Path: "m/main.tf", Mode: 0o600, Content: []byte(moduleWithCheckBlock)},
		workdir.File{Path: "m/state.json", Mode: 0o600, Content: []byte(stateWithOutput)})
	s.Job.Mask = []string{"correct-horse-battery"}
	compare := func(what string, got *stack.CheckBlocks, unknown []string, failed map[string]string) {
		t.Helper()
		if got == nil {
			t.Errorf("the %s evaluated no check blocks", what)
			return
		}
		messages := map[string]string{}
		for _, b := range got.Failed {
			messages[b.Address] = b.Message
		}
		if diff := cmp.Diff(failed, messages); diff != "" {
			t.Errorf("failing after the %s (-want +got):\n%s", what, diff)
		}
		if diff := cmp.Diff(unknown, got.Unknown); diff != "" {
			t.Errorf("unknown after the %s (-want +got):\n%s", what, diff)
		}
	}
	made := s.Must(stack.PlanRun)
	compare("plan", made.CheckBlocks, []string{"check.later"}, failing)

	known := maps.Clone(failing)
	known["check.password"], known["check.later"] = "output is one, the password is (sensitive)", "it has an id"
	compare("apply", s.Must(stack.ApplyRun, Saved(made)).CheckBlocks, nil, known)

	quiet = s.Must(stack.CheckRun)
	compare("drift check", quiet.CheckBlocks, nil, known)
	passed = s.Must(stack.CheckRun, func(j *runner.Job) { j.Env = map[string]string{"TF_VAR_wrong": "false"} })
	compare("drift check after the cause is gone", passed.CheckBlocks, nil, map[string]string{})
	if !quiet.Changes.None() || !passed.Changes.None() {
		t.Errorf("the drift checks found %v and %v, want no changes", quiet.Changes, passed.Changes)
	}
	return quiet, passed
}
