package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

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
	for _, change := range []string{"a new policy", "another limit"} {
		began := time.Now()
		if change == "a new policy" {
			err = e.client.Create(ctx, policy)
		} else {
			err = errors.Join(e.client.Get(ctx, client.ObjectKeyFromObject(policy), policy),
				unstructured.SetNestedField(policy.Object, int64(1), "spec", "guards", "maxDestroys"), e.client.Update(ctx, policy))
		}
		if err != nil {
			return err
		}
		if err := all(ctx, e, n, judgedSince(began)); err != nil {
			return err
		}
		f.fact(change+": until the last plan is judged", seconds(time.Since(began)), "≤ 10 s")
	}
	return f.err
}

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

// all waits until something is so of n stacks.
func all(ctx context.Context, e *estate, n int, so func(*v1alpha2.Terraform) bool) error {
	for {
		var list v1alpha2.TerraformList
		if err := e.client.List(ctx, &list); err != nil {
			return err
		}
		done := 0
		for i := range list.Items {
			if so(&list.Items[i]) {
				done++
			}
		}
		if done >= n {
			return nil
		}
		if err := sleep(ctx, 250*time.Millisecond); err != nil {
			return err
		}
	}
}
