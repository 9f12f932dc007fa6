package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

const (
	followers  = 200
	perPerson  = 16  // streams that one may have open
	logLines   = 300 // as talking has it
	changes    = 200
	between    = time.Second / 10 // two changes
	heardAfter = time.Minute      // at most, the last change by the last follower
)

// talking is a module whose run writes a line ten times in a second, and in
// each line when it wrote it.
const talking = `
resource "terraform_data" "talks" {
  provisioner "local-exec" {
    command = "i=0; while [ $i -lt 300 ]; do i=$((i+1)); echo line $i $(date +%s%N); sleep 0.1; done"
  }
}
`

var spoken = regexp.MustCompile(`\bline (\d+) (\d{19})\b`)

// heard is what one follower got: when each thing came, by its number.
type heard struct {
	at    map[int]time.Time
	twice int
	ended bool
}

func (h *heard) one(n int, at time.Time) {
	if _, again := h.at[n]; again {
		h.twice++
		return
	}
	h.at[n] = at
}

// audience are all followers of the same thing.
type audience struct {
	path    string
	hear    func(h *heard, name, data string, at time.Time) (more bool)
	all     [followers]heard
	arrived time.Time // of the last of them
}

// attend opens the streams, prints under a name what both processes use from
// when all are open until the last has ended, and calls meanwhile at its start.
func (h *house) attend(ctx context.Context, a *audience, name string, meanwhile func(context.Context) error) error {
	persons, err := h.allSignedIn(ctx, crews, crewName)
	if err != nil {
		return err
	}
	opened := make(chan struct{}, followers)
	g, following := errgroup.WithContext(ctx)
	for i := range a.all {
		a.all[i].at = map[int]time.Time{}
		g.Go(func() error {
			return persons[i/perPerson].follow(following, a.path, func() { opened <- struct{}{} }, func(name, data string, at time.Time) bool {
				return a.hear(&a.all[i], name, data, at)
			})
		})
	}
	if err := arrived(following, opened, followers); err != nil {
		return errors.Join(err, g.Wait())
	}
	a.arrived = time.Now()
	return h.spending(name, func() error {
		g.Go(func() error { return meanwhile(following) })
		return g.Wait()
	})
}

// arrived waits until so many have said that they are there.
func arrived(ctx context.Context, opened <-chan struct{}, n int) error {
	for range n {
		select {
		case <-opened:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// print says who got everything, and how long after it was said each thing had
// come to the last of them.
func (a *audience) print(t *times, said map[int]time.Time, what string) {
	got := 0
	late := map[int]time.Duration{}
	for _, h := range a.all {
		if len(h.at) == len(said) && h.twice == 0 && h.ended {
			got++
		}
		for n, at := range h.at {
			late[n] = max(late[n], at.Sub(said[n]))
		}
	}
	var last []time.Duration
	for n, when := range said {
		if when.After(a.arrived) {
			last = append(last, late[n])
		}
	}
	t.said("… got all of it, each thing once", fmt.Sprintf("%d of %d", got, followers), "all")
	if len(last) > 0 {
		t.asked(fmt.Sprintf("… from %s until the last has it (%d)", what, len(last)), last, 0, 0, 0)
	}
}

// followLog lets two hundred follow one run that talks.
func (h *house) followLog(ctx context.Context) error {
	s, err := inline("default", "talks", talking)
	if err != nil {
		return err
	}
	if err := h.client.Create(ctx, s); err != nil {
		return err
	}
	run, err := h.running(ctx, s, stack.ApplyRun)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	said := map[int]time.Time{}
	a := &audience{path: "/api/v1/namespaces/default/stacks/talks/runs/" + run + "/log"}
	a.hear = func(h *heard, name, data string, at time.Time) bool {
		if name == "end" {
			h.ended = true
			return false
		}
		if m := spoken.FindStringSubmatch(data); m != nil {
			n, _ := strconv.Atoi(m[1]) // digits
			ns, _ := strconv.ParseInt(m[2], 10, 64)
			h.one(n, at)
			mu.Lock()
			said[n] = time.Unix(0, ns)
			mu.Unlock()
		}
		return true
	}
	if err := h.attend(ctx, a, fmt.Sprintf("%d follow the log of one run that writes %d lines", followers, logLines), func(context.Context) error { return nil }); err != nil {
		return err
	}
	if len(said) != logLines {
		return fmt.Errorf("%d of %d lines were heard by anybody", len(said), logLines)
	}
	a.print(h.t, said, "the writing of a line")
	return nil
}

// running waits for a run of a kind, as a user does who views the list of runs.
func (h *house) running(ctx context.Context, s *v1alpha2.Terraform, kind stack.RunKind) (id string, err error) {
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, readyAfter, true, func(ctx context.Context) (bool, error) {
		answer, err := h.owner.open(ctx, "/api/v1/namespaces/"+s.Namespace+"/stacks/"+s.Name+"/runs", "cors", "application/json")
		if err != nil {
			return false, err
		}
		defer answer.Body.Close()
		var runs struct{ Items []runner.Report }
		if err := json.NewDecoder(answer.Body).Decode(&runs); err != nil {
			return false, err
		}
		for _, r := range runs.Items {
			if r.Kind == kind {
				id = r.ID
			}
		}
		return id != "", nil
	})
	return id, err
}

var turned = regexp.MustCompile(`"bench-turn":"(\d+)"`)

// followChanges lets two hundred follow all stacks while ten a second change.
func (h *house) followChanges(ctx context.Context) error {
	many := min(changes, h.n) // a stack that changes twice may be told of once
	said := map[int]time.Time{}
	a := &audience{path: "/api/v1/events"}
	a.hear = func(h *heard, _, data string, at time.Time) bool {
		if m := turned.FindStringSubmatch(data); m != nil {
			turn, _ := strconv.Atoi(m[1]) // digits
			h.one(turn, at)
		}
		h.ended = len(h.at) == many
		return !h.ended
	}
	listening, cancel := context.WithTimeout(ctx, time.Duration(many)*between+heardAfter)
	defer cancel()
	err := h.attend(listening, a, fmt.Sprintf("%d follow all stacks while %d change", followers, many), func(ctx context.Context) error {
		tick := time.NewTicker(between)
		defer tick.Stop()
		for i := range many {
			<-tick.C
			s := &v1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprint("tenant-", i/perTenant), Name: fmt.Sprint("stack-", i%perTenant)}}
			said[i] = time.Now()
			patch := fmt.Appendf(nil, `{"metadata":{"labels":{"bench-turn":"%d"}}}`, i)
			if err := h.client.Patch(ctx, s, client.RawPatch(types.MergePatchType, patch)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	a.print(h.t, said, "a request to change a stack")
	return nil
}
