package main

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	policy := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "policy.terrier.dev/v1alpha1", "kind": "ClusterPolicy", "metadata": map[string]any{"name": "production"},
		"spec": map[string]any{"guards": map[string]any{"protected": []any{map[string]any{"types": []any{"terraform_*"}}}, "maxDestroys": int64(0), "minSourceAge": "1h"}},
	}}
	program := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "policy.terrier.dev/v1alpha1", "kind": "ClusterPolicy", "metadata": map[string]any{"name": "program"},
		"spec": map[string]any{"rego": map[string]any{"modules": map[string]any{"policy.rego": judgedBy}}},
	}}
	for _, change := range []struct {
		name   string
		policy *unstructured.Unstructured
		to     any // of the field below spec
		field  []string
	}{
		{"a new policy", policy, nil, nil},
		{"another limit", policy, int64(1), []string{"guards", "maxDestroys"}},
		{"a new program in Rego", program, nil, nil},
		{"another parameter of it", program, "now", []string{"rego", "parameters", "word"}},
	} {
		began, used := time.Now(), time.Duration(0)
		if used, err = platformCPU(e); err != nil {
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
		if err := all(ctx, e, n, judgedSince(began)); err != nil {
			return err
		}
		took := time.Since(began)
		after, err := platformCPU(e)
		if err != nil {
			return err
		}
		f.fact(change.name+": until the last plan is judged", seconds(took), "≤ 10 s")
		f.fact("… CPU of the controller and the control plane meanwhile", seconds(after-used), "")
	}
	return f.err
}

// platformCPU is what the controller and the control plane have used.
func platformCPU(e *estate) (time.Duration, error) {
	a, err := cpuOf(e.controller.Process.Pid)
	b, also := cpuOf(e.plane.Process.Pid)
	return a + b, errors.Join(err, also)
}

// judgedBy is a program that reads every change, and finds something in none of them.
const judgedBy = `package terrier

hold contains sprintf("%s is replaced", [c.address]) if {
	some c in input.changes
	c.kind == "replace"
}
`

// judgedSince reports whether the pending plan of a stack has a verdict that is newer.
func judgedSince(at time.Time) func(*v1alpha2.Terraform) bool {
	return func(s *v1alpha2.Terraform) bool {
		if s.Status.Terrier == nil || s.Status.Terrier.Memory == nil {
			return false
		}
		_, review, ok := strings.Cut(string(s.Status.Terrier.Memory.Raw), `"review":{`)
		_, stamp, stamped := strings.Cut(review, `"at":"`)
		judged, err := time.Parse(time.RFC3339Nano, strings.SplitN(stamp, `"`, 2)[0])
		return ok && stamped && err == nil && !judged.Before(at)
	}
}

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
