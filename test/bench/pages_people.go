package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
)

const (
	people   = "people" // the namespace of their accounts
	looking  = "looking"
	crews    = (followers + perPerson - 1) / perPerson // persons who may see all
	fews     = 13                                      // persons who may see few
	fewOf    = 3                                       // namespaces that each of those may see
	firsts   = 5                                       // of those whose very first page is measured
	readFor  = 40 * time.Second                        // by then some of the refused rights are asked about again
	leftLong = time.Minute
)

func crewName(i int) string { return fmt.Sprint("crew-", i) }
func fewName(i int) string  { return fmt.Sprint("few-", i) }

// people makes those who look, and lets the crew see everything.
func (h *house) people(ctx context.Context) error {
	if err := h.namespace(ctx, people); err != nil {
		return err
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: looking}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{v1alpha2.GroupVersion.Group}, Resources: []string{"terraforms", "terraforms/log", "terraforms/plan"}, Verbs: []string{"get", "list"},
	}}}
	all := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: looking}, RoleRef: looker()}
	objects := []client.Object{role, all}
	for i := range crews {
		all.Subjects = append(all.Subjects, account(crewName(i)))
		objects = append(objects, accountOf(crewName(i)))
	}
	for i := range fews {
		objects = append(objects, accountOf(fewName(i)))
	}
	for _, o := range objects {
		if err := h.client.Create(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// mayFew lets each of the others see some of the namespaces.
func (h *house) mayFew(ctx context.Context) error {
	namespaces := (h.n + perTenant - 1) / perTenant
	for i := range fews {
		for k := range min(fewOf, namespaces) {
			in := fmt.Sprint("tenant-", (i*fewOf+k)%namespaces)
			b := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: in, Name: fewName(i)}, RoleRef: looker(), Subjects: []rbacv1.Subject{account(fewName(i))}}
			if err := h.client.Create(ctx, b); err != nil {
				return err
			}
		}
	}
	return nil
}

func looker() rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: looking}
}

func account(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: people, Name: name}
}

func accountOf(name string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: people, Name: name}}
}

// few opens the list as persons who may see few namespaces: what each of them
// may see has to be found out first, and again after a while.
func (h *house) few(ctx context.Context) error {
	all, err := h.allSignedIn(ctx, firsts, fewName)
	if err != nil {
		return err
	}
	if err := h.once(ctx, fmt.Sprintf("stacks, seeing %d namespaces, first page of %d persons", fewOf, firsts), all, "/stacks", listGoal); err != nil {
		return err
	}
	others, err := h.allSignedIn(ctx, firsts, func(i int) string { return fewName(firsts + i) })
	if err != nil {
		return err
	}
	if err := h.once(ctx, fmt.Sprintf("… until all was asked, of %d others", firsts), others, "/api/v1/stacks", 0); err != nil {
		return err
	}
	if err := h.t.page(ctx, "… and then", all[0], "/stacks", listGoal); err != nil {
		return err
	}
	if err := h.t.page(ctx, "… searched", all[0], "/stacks?q=tenant+stack-7", searchGoal); err != nil {
		return err
	}
	if err := sleep(ctx, readFor); err != nil {
		return err
	}
	return h.once(ctx, fmt.Sprintf("… the next page of each, %s later", readFor), all, "/stacks", listGoal)
}

// once lets each of several persons open the same, one after another.
func (h *house) once(ctx context.Context, name string, all []*visitor, path string, goal time.Duration) error {
	before, err := h.t.server()
	if err != nil {
		return err
	}
	var took []time.Duration
	var last visit
	for _, v := range all {
		if last, err = v.get(ctx, path); err != nil {
			return err
		}
		took = append(took, last.whole)
	}
	after, err := h.t.server()
	h.t.asked(name, took, last.bytes, after-before, goal)
	return err
}

// leftOpen measures what it costs that persons who may see few namespaces leave
// the list open: what they may see is asked for again and again.
func (h *house) leftOpen(ctx context.Context) error {
	all, err := h.allSignedIn(ctx, fews, fewName)
	if err != nil {
		return err
	}
	end, cancel := context.WithCancel(ctx)
	defer cancel()
	opened := make(chan struct{}, fews)
	g, following := errgroup.WithContext(end)
	for _, v := range all {
		g.Go(func() error {
			err := v.follow(following, "/api/v1/events", func() { opened <- struct{}{} }, func(string, string, time.Time) bool { return true })
			if end.Err() != nil {
				return nil // as it should
			}
			return cmp.Or(err, errors.New("a list that was left open has ended"))
		})
	}
	g.Go(func() error {
		defer cancel()
		if err := arrived(following, opened, fews); err != nil {
			return err
		}
		return h.spending(fmt.Sprintf("%d lists of %d namespaces each, left open for %s", fews, fewOf, leftLong), func() error { return sleep(following, leftLong) })
	})
	return g.Wait()
}
