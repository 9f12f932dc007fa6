package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// onHooks measures how fast the hooks of metacontroller are answered beside many stacks of
// scripts, which are suspended: a hook reads one object, whatever that stack does.
func onHooks(ctx context.Context, b *bench, out io.Writer, many int) (err error) {
	if many == 0 {
		many = 1000
	}
	e, err := b.estate(ctx, "hooks", "--kinds", "infra.contrib.fluxcd.io,alustan.io", "--http-address", "127.0.0.1:0")
	defer func() { err = errors.Join(err, e.close()) }()
	if err != nil {
		return err
	}
	requests, err := scripted(ctx, e, many)
	if err != nil {
		return err
	}
	v, err := (&house{estate: e}).browser(ctx)
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", e.kubeconfig)
	if err != nil {
		return err
	}
	f := newFacts(out, fmt.Sprintf("sync of a composite, %d stacks of scripts, each once", many))
	for _, callers := range []int{1, 5, 32} { // 5 are the workers of metacontroller unless it is told otherwise
		took, err := v.callHooks(ctx, config.BearerToken, requests, callers)
		if err != nil {
			return err
		}
		f.fact(fmt.Sprintf("%d at a time: median, 99 of 100, most", callers),
			fmt.Sprintf("%d, %d, %d ms", median(took).Milliseconds(), percentile(took, 99).Milliseconds(), took[len(took)-1].Milliseconds()), "1000 ms")
	}
	return f.err
}

// scripted makes suspended stacks of scripts, and returns a request about each.
func scripted(ctx context.Context, e *estate, n int) ([][]byte, error) {
	requests := make([][]byte, n)
	making, ctx := errgroup.WithContext(ctx)
	making.SetLimit(writers)
	for i := range n {
		making.Go(func() error {
			o := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "alustan.io/v1alpha1", "kind": "Terraform",
				"metadata": map[string]any{"namespace": "default", "name": fmt.Sprint("stack-", i), "annotations": map[string]any{"terrier.dev/suspended": "true"}},
				"spec": map[string]any{
					"variables": map[string]any{"var1": "value1"},
					"scripts":   map[string]any{"apply": map[string]any{"inline": "terraform apply -auto-approve\n"}, "destroy": map[string]any{"inline": "terraform destroy -auto-approve\n"}},
					"gitRepo":   map[string]any{"url": "https://git.example/org/repo", "branch": "main"},
				},
			}}
			if err := e.client.Create(ctx, o); err != nil {
				return err
			}
			for {
				if err := e.client.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
					return err
				}
				if seen, _, err := unstructured.NestedInt64(o.Object, "status", "observedGeneration"); err == nil && seen == o.GetGeneration() {
					break
				}
				if err := sleep(ctx, 50*time.Millisecond); err != nil {
					return err
				}
			}
			var err error
			requests[i], err = json.Marshal(map[string]any{
				"controller": map[string]any{"kind": "CompositeController"}, "parent": o.Object, "children": map[string]any{}, "related": map[string]any{}, "finalizing": false,
			})
			return err
		})
	}
	return requests, making.Wait()
}

// callHooks sends each request once, and returns how long the answers took, sorted.
func (v *visitor) callHooks(ctx context.Context, token string, requests [][]byte, callers int) ([]time.Duration, error) {
	var mu sync.Mutex
	var took []time.Duration
	calling, ctx := errgroup.WithContext(ctx)
	calling.SetLimit(callers)
	for _, body := range requests {
		calling.Go(func() error {
			began := time.Now()
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, v.base+"/sync", bytes.NewReader(body))
			if err != nil {
				return err
			}
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Authorization", "Bearer "+token)
			answer, err := v.http.Do(r)
			if err != nil {
				return err
			}
			text, err := io.ReadAll(answer.Body)
			if err := errors.Join(err, answer.Body.Close()); err != nil {
				return err
			}
			if answer.StatusCode != http.StatusOK {
				return fmt.Errorf("a hook is answered with %s: %s", answer.Status, text)
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, time.Since(began))
			return nil
		})
	}
	err := calling.Wait()
	slices.Sort(took)
	return took, err
}
