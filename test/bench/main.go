// Command bench prints what Terrier costs on this machine, beside what the bare
// engine costs there, in one run: `make bench`.
//
// It measures and judges nothing: goals stand beside the figures, and no test
// depends on them. CPU is user and system time of this process and of every process
// that it waited for, sandboxes and providers included; on a busy machine the least
// of several runs says most. Start reading at run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/terrier-iac/terrier/internal/sandbox"
)

var tenants = flag.Int("tenants", manyTenants, "how many tenants with a stack each; without, and for pages, ten times as many, too")

var minutes = flag.Int("minutes", 2, "for registry: how many minutes of 100 inits each; 10 for 1,000")

// repeats is how often each thing is done.
const repeats = 12

func main() {
	sandbox.Main() // this binary finds out how well it can sandbox runs
	log.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	what := flag.String("only", "", "measure only this: runs, checks, platform, fairness, large, settled, pods, node, fleet, policies, replicas, pages, hooks, tenants, drift or registry")
	many := flag.Int("stacks", 0, "how many settled stacks; 1000 and then 10000 if 0, 1000 for fleet, policies and hooks, and 10000 for pages")
	flag.Parse()
	if err := run(ctx, os.Stdout, *what, *many); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// modules are what is measured, by what their providers cost.
var modules = []struct {
	name, hcl string
	quietGoal string
}{
	{"built-in resources only", builtin, "≤ 1.6 ×"},
	{"random provider", random, "≤ 0.6 ×"},
}

const builtin = `
resource "terraform_data" "a" { input = "a" }
resource "terraform_data" "b" { input = terraform_data.a.output }
resource "terraform_data" "c" { input = terraform_data.b.output }
output "c" { value = terraform_data.c.output }
`

const random = `
terraform {
  required_providers {
    random = { source = "hashicorp/random" }
  }
}
resource "random_pet" "a" {}
resource "random_id" "b" { byte_length = 8 }
resource "random_string" "c" { length = 16 }
output "a" { value = random_pet.a.id }
`

func run(ctx context.Context, out io.Writer, only string, many int) (err error) {
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "terrier-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	b := &bench{root: root, scratch: scratch}
	parts := []struct {
		name string
		do   func(context.Context, io.Writer) error
	}{
		{"runs", b.runs},
		{"checks", b.checks},
		{"platform", b.platform},
		{"fairness", b.fairness},
		{"large", b.large},
		{"settled", func(ctx context.Context, out io.Writer) error { return b.estates(ctx, out, many) }},
		{"pods", b.pods},
		{"node", func(ctx context.Context, out io.Writer) error { return onNode(ctx, b, out) }},
		{"fleet", func(ctx context.Context, out io.Writer) error { return b.fleet(ctx, out, many) }},
		{"policies", func(ctx context.Context, out io.Writer) error { return onPolicies(ctx, b, out, many) }},
		{"replicas", func(ctx context.Context, out io.Writer) error { return b.replicas(ctx, out, many) }},
		{"pages", func(ctx context.Context, out io.Writer) error { return b.pages(ctx, out, many) }},
		{"hooks", func(ctx context.Context, out io.Writer) error { return onHooks(ctx, b, out, many) }},
		{"tenants", func(ctx context.Context, out io.Writer) error { return b.tenants(ctx, out, *tenants) }},
		{"drift", onDrift},
		{"registry", func(ctx context.Context, out io.Writer) error { return onRegistry(ctx, b, out, *minutes) }},
	}
	known := only == ""
	for _, p := range parts {
		if only == "" || only == p.name {
			known = true
			if err := p.do(ctx, out); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}
	}
	if !known {
		return fmt.Errorf("-only %s: there is no such part", only)
	}
	return nil
}

// runs measures what a run costs, beside the bare engine.
func (b *bench) runs(ctx context.Context, out io.Writer) error {
	scratch := b.scratch
	t := &table{out: out}
	t.head()
	for i, m := range modules {
		bare, ours, err := b.quiet(ctx, filepath.Join(scratch, fmt.Sprint("quiet-", i)), m.hcl)
		if err != nil {
			return fmt.Errorf("measuring a quiet check, %s: %w", m.name, err)
		}
		t.row("bare plan, "+m.name, bare, samples{}, "")
		t.row("quiet check, "+m.name, ours, bare, m.quietGoal)
	}
	for i, m := range modules {
		bare, ours, err := b.first(ctx, filepath.Join(scratch, fmt.Sprint("first-", i)), m.hcl)
		if err != nil {
			return fmt.Errorf("measuring a first apply, %s: %w", m.name, err)
		}
		t.row("bare init, plan, apply, "+m.name, bare, samples{}, "")
		t.row("first apply, "+m.name, ours, bare, "≤ 1.25 ×")
	}
	return t.err
}
