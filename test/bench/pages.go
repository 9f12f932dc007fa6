package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
)

const (
	manyPages   = 10000 // stacks, if nothing else is said
	warmUps     = 10
	visits      = 200
	waitingWork = 50 // small pending plans
	largePlans  = 3  // pending plans of 5,000 resources

	listGoal   = 200 * time.Millisecond
	searchGoal = 300 * time.Millisecond
	planGoal   = 300 * time.Millisecond // to the first byte
)

// house is an estate that people look at.
type house struct {
	*estate
	n     int // stacks
	t     *times
	owner *visitor
}

// pages measures what it takes to look at n settled stacks: as a user who may
// view all, as a user who may view few, and as two hundred at once.
func (b *bench) pages(ctx context.Context, out io.Writer, n int) (err error) {
	if n == 0 {
		n = manyPages
	}
	t, err := newTimes(out, fmt.Sprintf("pages of %d stacks in %d namespaces, %d visits each after %d", n, (n+perTenant-1)/perTenant, visits, warmUps))
	if err != nil {
		return err
	}
	e, err := b.estate(ctx, "pages")
	defer func() { err = errors.Join(err, e.close()) }()
	if err != nil {
		return err
	}
	h := &house{estate: e, n: n, t: t}
	if err := h.furnish(ctx); err != nil {
		return err
	}
	t.server = func() (time.Duration, error) { return cpuOf(e.controller.Process.Pid) }
	if h.owner, err = h.signInOwner(ctx); err != nil {
		return err
	}
	before, err := rssOf(e.controller.Process.Pid)
	if err != nil {
		return err
	}
	for _, part := range []func(context.Context) error{h.plans, h.lists, h.few, h.followLog, h.followChanges, h.leftOpen, h.lettings} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	after, err := rssOf(e.controller.Process.Pid)
	t.said("server, memory before all that", mib(before), "")
	t.said("… and after", mib(after), "")
	return errors.Join(err, t.err)
}

// furnish makes all there is to look at. What is built is built first, while it
// is alone; the server that is asked later is one that has shown nothing yet.
func (h *house) furnish(ctx context.Context) error {
	seed, err := h.seed(ctx)
	if err != nil {
		return err
	}
	for i := range largePlans {
		if err := h.waits(ctx, largePlan(i), large); err != nil {
			return err
		}
	}
	g, making := errgroup.WithContext(ctx)
	g.SetLimit(writers)
	for i := range waitingWork {
		g.Go(func() error { return h.waits(making, fmt.Sprint("waiting-", i), builtin) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if err := h.people(ctx); err != nil {
		return err
	}
	if err := stop(h.controller); err != nil {
		return err
	}
	if err := h.copies(ctx, seed, h.n); err != nil {
		return err
	}
	if err := h.mayFew(ctx); err != nil {
		return err
	}
	if err := h.start(ctx); err != nil {
		return err
	}
	return h.quiet(ctx)
}

func largePlan(i int) string { return fmt.Sprint("large-", i) }

// waits makes a stack with a pending plan.
func (h *house) waits(ctx context.Context, name, hcl string) error {
	s, err := inline("default", name, hcl)
	if err != nil {
		return err
	}
	s.Spec.ApprovePlan = ""
	if err := h.client.Create(ctx, s); err != nil {
		return err
	}
	return until(ctx, h.client, s, func(s *v1alpha2.Terraform) bool { return s.Status.Plan.Pending != "" })
}

// plans opens the plans of 5,000 resources: each for the first time, and one of
// them again and again.
func (h *house) plans(ctx context.Context) error {
	if _, err := h.owner.get(ctx, "/about"); err != nil { // the connection is there
		return err
	}
	if err := h.plan(ctx, fmt.Sprintf("plan of 5,000 resources, never shown (%d): first byte", largePlans), largePlans, planOf); err != nil {
		return err
	}
	return h.plan(ctx, "the same plan again: first byte", visits, func(int) string { return planOf(0) })
}

func (h *house) plan(ctx context.Context, name string, times int, path func(int) string) error {
	before, err := h.t.server()
	if err != nil {
		return err
	}
	var first, whole []time.Duration
	var last visit
	for i := range times {
		if last, err = h.owner.get(ctx, path(i)); err != nil {
			return err
		}
		first, whole = append(first, last.first), append(whole, last.whole)
	}
	after, err := h.t.server()
	h.t.asked(name, first, 0, 0, planGoal)
	h.t.asked("… the whole page", whole, last.bytes, after-before, 0)
	return err
}

func planOf(i int) string { return "/stacks/default/" + largePlan(i) + "/plan" }

// lists opens the lists as a user who may view everything.
func (h *house) lists(ctx context.Context) error {
	for _, p := range []struct {
		name, path string
		goal       time.Duration
	}{
		{"stacks", "/stacks", listGoal},
		{"stacks, two words searched for", "/stacks?q=tenant-1+stack-7", searchGoal},
		{"stacks, words that nothing has", "/stacks?q=tenant+nowhere+at+all", searchGoal},
		{"stacks that wait for approval", "/stacks?status=pending", listGoal},
		{"stacks, grouped by namespace", "/stacks?group=namespace", listGoal},
		{"stacks, the latest changes first", "/stacks?sort=-since", listGoal},
		{"stacks, the last page", fmt.Sprintf("/stacks?offset=%d", max(0, h.n-100)), listGoal},
		{"one stack", "/stacks/tenant-0/stack-0", listGoal},
		{"approvals", "/approvals", listGoal},
		{"API: stacks", "/api/v1/stacks", listGoal},
		{"API: stacks, searched", "/api/v1/stacks?q=tenant-1+stack-7", searchGoal},
	} {
		if err := h.t.page(ctx, p.name, h.owner, p.path, p.goal); err != nil {
			return err
		}
	}
	return nil
}
