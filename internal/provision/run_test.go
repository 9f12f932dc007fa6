package provision_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/backend"
	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/provision"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/runnertest"
	"github.com/terrier-iac/terrier/internal/runner/sealer"
	"github.com/terrier-iac/terrier/internal/sandbox"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit/database"
	"github.com/terrier-iac/terrier/internal/testkit/storage"
)

// TestMain makes the test binary the supervisor of runs, and the program of the backends: a
// supervisor starts that without arguments.
func TestMain(m *testing.M) {
	sandbox.Main()
	sealer.Main()
	var err error
	switch {
	case len(os.Args) == 1:
		err = backend.Serve(context.Background(), os.Stdin, os.Stdout, provision.Plugins{Environ: os.Getenv, Now: time.Now}.Find)
	case os.Args[1] == "supervise":
		err = runner.Program(os.Args[1:], "test")
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// stackOn is a stack whose state a backend keeps. Its module says nothing about that, or
// something else.
func stackOn(t *testing.T, b runner.Backend, env map[string]string) (*runnertest.Stack, *runnertest.Local) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, err := runnertest.NewLocal(runner.Config{Dir: t.TempDir(), Binary: self, MinLevel: 1, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	tofu, err := filepath.Abs("../../bin/tofu")
	if err != nil {
		t.Fatal(err)
	}
	s := runnertest.NewStack(t, r, engine.Engine{Path: tofu, Name: "tofu", Version: "1.12.6"}, "terraform {\n  backend \"local\" {}\n}\nresource \"terraform_data\" \"a\" {\n  input = \"kept\"\n}\n")
	r.Host().Provide(func(p *runner.Platform) { p.Backends = map[string]string{b.Name: self} })
	b.Stack = backend.Stack{Namespace: "team", Name: "network"}
	s.Job.Managed, s.Job.Env, s.Job.Backend, s.Job.Sandbox.Network = false, env, &b, "host"
	s.Job.Files[1] = backend.Placeholder()
	return s, r
}

// survives applies a stack and finds it unchanged in another work directory. It returns the
// log of that run.
func survives(t *testing.T, s *runnertest.Stack, r *runnertest.Local) []byte {
	t.Helper()
	planned := s.Must(stack.PlanRun)
	if planned.Changes.Add != 1 {
		t.Fatalf("the first plan has %v\n%s", planned.Changes, planned.Log)
	}
	s.Must(stack.ApplyRun, runnertest.Saved(planned))
	s.Job.Backend.Expected = true
	if d := s.Must(stack.CheckRun); len(d.Steps) != 1 || !d.Changes.None() {
		t.Errorf("a quiet check took the steps %v and found %v", d.Steps, d.Changes)
	}
	if err := r.Remove(s.Job.Stack); err != nil {
		t.Fatal(err)
	}
	d := s.Must(stack.CheckRun)
	if !d.Changes.None() {
		t.Errorf("in another work directory a check found %v\n%s", d.Changes, d.Log)
	}
	return d.Log
}

// The first run makes the bucket, and the state is in it. Later runs write nothing but the
// state; the destroy of the stack leaves the bucket. A bucket that is gone is not made again.
func TestStateInABucket(t *testing.T) {
	at := storage.NewS3(t)
	s, r := stackOn(t, runner.Backend{Name: "aws", Settings: map[string]string{"s3": "store", "region": "eu-central-1", "endpoint": at.URL}}, awsIdentity)
	if log := survives(t, s, r); runnertest.Has("created", log) {
		t.Errorf("the last run made something:\n%s", log)
	}
	if got := at.Region("store"); got != "eu-central-1" {
		t.Errorf("the bucket is in %q", got)
	}
	const state = "store/team/network/terraform.tfstate"
	if at.Object(t, state) == nil {
		t.Error("the state is not in the bucket")
	}
	at.Take()
	s.Must(stack.CheckRun, func(j *runner.Job) { j.Options.InitKey = "another directory" })
	lock := []string{"PUT /" + state + ".tflock?x-id=PutObject", "DELETE /" + state + ".tflock?x-id=DeleteObject"}
	if diff := cmp.Diff(lock, at.Take()); diff != "" {
		t.Errorf("a run that initialises its directory wrote more than the lock file (-want +got):\n%s", diff)
	}
	s.Must(stack.DestroyRun)
	if at.Region("store") == "" {
		t.Error("the destroy of the stack has removed the bucket")
	}
}

func TestStateInPostgreSQL(t *testing.T) {
	db := database.StartPostgreSQL(t)
	s, r := stackOn(t, runner.Backend{Name: "pg"}, map[string]string{
		"PG_CONN_STR": fmt.Sprintf("postgres://admin@/%s?host=%s&port=%d&sslmode=disable", database.Database, db.Socket, db.Port),
	})
	s.Allow(db.Socket)
	s.Job.Backend.Stack.Cluster = "cluster-a"
	survives(t, s, r)
	s.Job.Backend.Stack.Cluster = "cluster-b"
	if d := s.Finish(s.Start(stack.PlanRun)); d.Outcome != stack.Failed || !strings.Contains(d.Message, "belongs to the stack team/network of another cluster") {
		t.Errorf("a plan of another cluster ended %s: %s", d.Outcome, d.Message)
	}
}
