package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
)

// judgedStacks is how many plans wait while a policy changes.
const judgedStacks = 1000

// onPolicies measures how long it takes until every pending plan has another verdict, after a
// policy was changed.
func onPolicies(ctx context.Context, b *bench, out io.Writer, n int) (err error) {
	if n == 0 {
		n = judgedStacks
	}
	f := newFacts(out, fmt.Sprintf("%d pending plans in %d namespaces: a policy changes", n, (n+perTenant-1)/perTenant))
	e, err := b.estate(ctx, "policies")
	defer func() { err = errors.Join(err, e.close()) }()
	if err != nil {
		return err
	}
	for i := range n {
		namespace := fmt.Sprintf("judged-%d", i/perTenant)
		if i%perTenant == 0 {
			if err := e.namespace(ctx, namespace); err != nil {
				return err
			}
		}
		s, err := inline(namespace, fmt.Sprintf("s%d", i), builtin)
		if err != nil {
			return err
		}
		s.Spec.ApprovePlan = ""
		if err := e.client.Create(ctx, s); err != nil {
			return err
		}
	}
	pending := func(s *v1alpha2.Terraform) bool { return s.Status.Plan.Pending != "" }
	if err := all(ctx, e, n, pending); err != nil {
		return err
	}
	policy := func(name string, spec map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "policy.terrier.dev/v1alpha1", "kind": "ClusterPolicy", "metadata": map[string]any{"name": name}, "spec": spec,
		}}
	}
	guards := policy("production", map[string]any{"guards": map[string]any{"protected": []any{map[string]any{"types": []any{"terraform_*"}}}, "maxDestroys": int64(0), "minSourceAge": "1h"}})
	program := policy("program", map[string]any{"rego": map[string]any{"modules": map[string]any{"policy.rego": judgedBy}}})
	for _, change := range []struct {
		name   string
		policy *unstructured.Unstructured
		to     any // of the field below spec
		field  []string
	}{
		{"a new policy", guards, nil, nil},
		{"another limit", guards, int64(1), []string{"guards", "maxDestroys"}},
		{"a new program in Rego", program, nil, nil},
		{"another parameter of it", program, "now", []string{"rego", "parameters", "word"}},
		{"a parameter with which it holds all of them", program, true, []string{"rego", "parameters", "all"}},
	} {
		began := time.Now()
		plane, control, workers, err := policiesCPU(e)
		if err != nil {
			return err
		}
		if change.field == nil {
			err = e.client.Create(ctx, change.policy)
		} else {
			err = errors.Join(e.client.Get(ctx, client.ObjectKeyFromObject(change.policy), change.policy),
				unstructured.SetNestedField(change.policy.Object, change.to, append([]string{"spec"}, change.field...)...), e.client.Update(ctx, change.policy))
		}
		if err != nil {
			return err
		}
		if err := judgedSince(ctx, e, began, n); err != nil {
			return err
		}
		if change.to == true { // the verdict is another one, and the status says so
			if err := all(ctx, e, n, held); err != nil {
				return err
			}
		}
		took := time.Since(began)
		planeNow, controlNow, workersNow, err := policiesCPU(e)
		if err != nil {
			return err
		}
		f.fact(change.name+": until the last plan is judged", seconds(took), "≤ 10 s")
		f.fact("… CPU of the controller meanwhile", seconds(controlNow-control), "")
		f.fact("… of the control plane", seconds(planeNow-plane), "")
		f.fact("… of the processes that evaluate programs", seconds(max(0, workersNow-workers)), "")
	}
	return f.err
}

// policiesCPU is what the control plane, the controller, and the programs that it has started
// have used.
func policiesCPU(e *estate) (plane, control, workers time.Duration, err error) {
	plane, err = cpuOf(e.plane.Process.Pid)
	if err != nil {
		return 0, 0, 0, err
	}
	if control, err = cpuOf(e.controller.Process.Pid); err != nil {
		return 0, 0, 0, err
	}
	workers, err = cpuBelow(e.controller.Process.Pid)
	return plane, control, workers, err
}

// held reports whether a policy holds the pending plan of a stack.
func held(s *v1alpha2.Terraform) bool {
	for _, c := range s.Status.Conditions {
		if c.Type == "Ready" && strings.Contains(c.Message, "held by ClusterPolicy/program") {
			return true
		}
	}
	return false
}

// judgedSince waits until the verdict beside each pending plan is newer. A verdict that says
// the same as the last one is not written to the API server.
func judgedSince(ctx context.Context, e *estate, at time.Time, n int) error {
	for {
		files, err := filepath.Glob(e.data("records", "stacks", "*", "plans", "*", "verdict.json*"))
		if err != nil {
			return err
		}
		newer := 0
		for _, file := range files {
			if info, err := os.Stat(file); err == nil && info.ModTime().After(at) {
				newer++
			}
		}
		if newer >= n {
			return nil
		}
		if err := sleep(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
}

// judgedBy is a program that reads every change, and finds something in none of them unless
// it is told to.
const judgedBy = `package terrier

hold contains sprintf("%s is replaced", [c.address]) if {
	some c in input.changes
	c.kind == "replace"
}

hold contains "all plans are held" if input.parameters.all
`

// all waits until something is so of n stacks. It watches them: listing them again and again
// would cost more than what is measured.
func all(ctx context.Context, e *estate, n int, so func(*v1alpha2.Terraform) bool) error {
	done := map[string]bool{}
	for {
		var list v1alpha2.TerraformList
		if err := e.client.List(ctx, &list); err != nil {
			return err
		}
		for i := range list.Items {
			if so(&list.Items[i]) {
				done[string(list.Items[i].UID)] = true
			}
		}
		if len(done) >= n {
			return nil
		}
		w, err := e.client.Watch(ctx, &list, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}})
		if err != nil {
			return err
		}
		for event := range w.ResultChan() {
			if s, ok := event.Object.(*v1alpha2.Terraform); ok && so(s) {
				done[string(s.UID)] = true
			}
			if len(done) >= n {
				break
			}
		}
		w.Stop()
		if err := ctx.Err(); err != nil || len(done) >= n {
			return err
		}
	}
}
