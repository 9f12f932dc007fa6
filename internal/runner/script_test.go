package runner_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/runnertest"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Scripts do what they like in their sandbox, and their runs end all the same, with the
// state that they made.
func TestHostileScripts(t *testing.T) {
	const module = "resource \"terraform_data\" \"a\" {\n}\n"
	apply := "\nterraform apply -auto-approve >/dev/null\n"
	for name, tt := range map[string]struct {
		script string
		want   stack.Outcome
		change func(*runner.Job)
		log    string
	}{
		"floods its output": {apply + "head -c 30000000 /dev/zero | tr '\\0' x; yes a line | head -c 20000000; echo the last words; exit 3", stack.Failed, nil, "the last words"},
		"forks until it can no more": {"#!/bin/sh" + apply + "i=0; while [ $i -lt 300 ]; do sleep 1000 & i=$((i+1)); done; exit 9", stack.Failed,
			func(j *runner.Job) { j.Limits.Processes = 200 }, "fork"},
		"replaces its path":    {"PATH=/usr/bin:/bin\n" + `"$(ls -d /terrier/bin 2>/dev/null || dirname "$0")/terraform" apply -auto-approve`, stack.Succeeded, nil, "Apply complete"},
		"fills the event file": {"(while :; do for f in ../run/events-*; do echo garbage >> $f; head -c 1000 /dev/urandom >> $f; done; done 2>/dev/null) &" + apply + "kill $!; exit 0", stack.Succeeded, nil, ""},
		"takes the socket away": {apply + "rm -f ../run/engine; terraform output && exit 9; exit 0", stack.Succeeded, nil,
			"the supervisor of the run does not listen any more"},
		"writes the backend override": {apply + "printf 'terraform {\\n  backend \"local\" {\\n  }\\n}\\n' > terrier_override.tf; terraform apply -auto-approve || exit 0; exit 9", stack.Succeeded, nil, ""},
		"forgets the backend":         {apply + "rm -rf .terraform terrier_override.tf; terraform apply -auto-approve || exit 0; exit 9", stack.Succeeded, nil, "where \"http\" is the stack's"},
		"kills what it can":           {apply + "kill -9 -1; kill -9 1; exit 0", stack.Succeeded, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := runnertest.NewStack(t, open(t, t.TempDir()), tofu(t), module)
			d := s.Finish(s.Start(stack.ScriptRun, func(j *runner.Job) {
				j.Script = &runner.Script{Apply: []byte(tt.script)}
				if tt.change != nil {
					tt.change(j)
				}
			}))
			if d.Outcome != tt.want || d.Exit == 9 || d.Resources != 1 || !strings.Contains(string(d.Log), tt.log) {
				t.Errorf("ended %s with %d and %d resources, want %s with one: %s\n%s", d.Outcome, d.Exit, d.Resources, tt.want, d.Message, d.Log[max(0, len(d.Log)-2000):])
			}
		})
	}
}

// A script exchanges its saved plan all the time, and what is applied is what was compared.
func TestApprovedPlanIsOutOfReach(t *testing.T) {
	s := runnertest.NewStack(t, open(t, t.TempDir()), tofu(t), "variable \"v\" {\n  default = \"good\"\n}\nresource \"terraform_data\" \"a\" {\n  input = var.v\n}\n")
	approved := s.Must(stack.PlanRun)
	d := s.Finish(s.Start(stack.ScriptRun, runnertest.Saved(approved), func(j *runner.Job) {
		j.Script = &runner.Script{Apply: []byte(`terraform plan -out=good && terraform plan -out=evil -var v=evil && cp good x || exit 9
(while :; do cp good y; mv y x; cp evil y; mv y x; done) &
until terraform apply x; do :; done
kill $!`)}
	}))
	if d.Outcome != stack.Succeeded || d.Resources != 1 || runnertest.Has("evil", s.State) {
		t.Errorf("ended %s with %d resources and the state %s: %s\n%s", d.Outcome, d.Resources, s.State, d.Message, d.Log)
	}
}

// Code of the module calls terraform, too, and its calls do not wait for the one that they
// are a part of.
func TestProvisionersCallTheEngine(t *testing.T) {
	s := runnertest.NewStack(t, open(t, t.TempDir()), tofu(t), `
resource "terraform_data" "a" {
  provisioner "local-exec" {
    command = "terraform version && ! terraform apply -auto-approve"
  }
}
`)
	d := s.Must(stack.ScriptRun, func(j *runner.Job) { j.Script = &runner.Script{Apply: []byte("terraform apply -auto-approve")} })
	if !runnertest.Has("Error acquiring the state lock", d.Log) || d.Resources != 1 {
		t.Errorf("an apply within an apply was not refused for the lock of the state:\n%s", d.Log)
	}
}

// A program that stops waiting for terraform takes no apply along.
func TestAScriptThatKillsItsCallEndsTheApplyPolitely(t *testing.T) {
	g := runnertest.NewGate(t)
	s := runnertest.NewStack(t, open(t, t.TempDir()), tofu(t), slow(g))
	s.Allow(g.Dir)
	d := s.Finish(s.Start(stack.ScriptRun, func(j *runner.Job) {
		j.Script = &runner.Script{Apply: fmt.Appendf(nil, "timeout -s KILL 3000 terraform apply -auto-approve & read line < %s; kill $!; wait; terraform state list", filepath.Join(g.Dir, "here"))}
	}))
	if d.Outcome != stack.Succeeded || d.Resources != 2 || strings.Count(string(d.Log), "Interrupt received") != 1 {
		t.Errorf("ended %s with %d resources, want Succeeded with both, one of them tainted: %s\n%s", d.Outcome, d.Resources, d.Message, d.Log)
	}
}
