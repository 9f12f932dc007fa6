package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
)

const (
	fleetStacks = 1000
	fleetSlots  = 10
)

var checksPerPod = flag.Int("checks-per-pod", 1, "how many quiet checks of a tenant share a pod in the part fleet")

// fleet measures one cycle of drift checks that find nothing, of very many stacks that
// are all due at once, each in a pod.
func (b *bench) fleet(ctx context.Context, out io.Writer, n int) (err error) {
	if n == 0 {
		n = fleetStacks
	}
	flags, where, open := []string{"--max-runs", fmt.Sprint(fleetSlots), "--checks-per-pod", fmt.Sprint(*checksPerPod)}, "pods", (*bench).podEstate
	if *cluster != "" {
		where = "pods of a real node"
		open = func(b *bench, ctx context.Context, name string, flags ...string) (*podEstate, error) {
			return nodeEstate(ctx, b, name, flags...)
		}
	}
	f := newFacts(out, fmt.Sprintf("%d stacks in %d namespaces, %d slots, %s: one cycle of quiet checks", n, (n+perTenant-1)/perTenant, fleetSlots, where))
	e, err := open(b, ctx, "fleet", flags...)
	defer func() { err = errors.Join(err, e.close()) }()
	if err != nil {
		return err
	}
	seed, err := e.checkedSeed(ctx)
	if err != nil {
		return err
	}
	if err := e.copies(ctx, seed, n); err != nil {
		return err
	}
	seen, end, err := e.watchPods(ctx)
	if err != nil {
		return err
	}
	defer end()
	from, err := e.meter(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := e.start(ctx); err != nil {
		return err
	}
	if err := e.checkedAll(ctx, seen, n); err != nil {
		return err
	}
	took := time.Since(began)
	to, err := e.meter(ctx)
	if err != nil {
		return err
	}
	seen.look(func(s *podsSeen) { s.print(f, began, took, n) })
	if err := e.cost(ctx, f, from, to, n, took); err != nil {
		return err
	}
	return errors.Join(f.err, (&meter{api: to.api}).requests(out, &meter{api: from.api}))
}

// checkedSeed builds the stack that the others are copies of: one whose next check is
// due and changes nothing. The first check after an apply still has news to tell. No
// controller is there when it returns.
func (e *podEstate) checkedSeed(ctx context.Context) (*v1alpha2.Terraform, error) {
	s, err := e.seed(ctx)
	if err != nil {
		return nil, err
	}
	makeDue := func() error {
		return errors.Join(stop(e.controller), e.client.Get(ctx, client.ObjectKeyFromObject(s), s), earlier(s))
	}
	if err := errors.Join(makeDue(), e.client.Status().Update(ctx, s), e.start(ctx)); err != nil {
		return nil, err
	}
	quiet := func(s *v1alpha2.Terraform) bool {
		c := meta.FindStatusCondition(s.Status.Conditions, "Ready")
		return c != nil && c.Reason == "NoDrift"
	}
	if err := until(ctx, e.client, s, quiet); err != nil {
		return nil, err
	}
	return s, makeDue()
}

var instant = regexp.MustCompile(`"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[^"]*"`)

// earlier has the status of a stack say that all of it was an interval ago.
func earlier(s *v1alpha2.Terraform) error {
	raw, err := json.Marshal(s.Status)
	if err != nil {
		return err
	}
	raw = instant.ReplaceAllFunc(raw, func(quoted []byte) []byte {
		at, err := time.Parse(time.RFC3339Nano, strings.Trim(string(quoted), `"`))
		if err != nil || at.IsZero() {
			return quoted
		}
		return []byte(at.Add(-s.Spec.Interval.Duration).Format(`"` + time.RFC3339Nano + `"`))
	})
	s.Status = v1alpha2.TerraformStatus{}
	return json.Unmarshal(raw, &s.Status)
}

// checkedAll waits until every stack has had a check that found nothing, and no pod is
// left.
func (e *podEstate) checkedAll(ctx context.Context, seen *podsSeen, n int) error {
	for {
		if err := sleep(ctx, 500*time.Millisecond); err != nil {
			return err
		}
		ended := map[string]int{}
		err := e.scrape(ctx, "terrier_runs_total", func(of map[string]string, n float64) {
			ended[of["kind"]+" "+of["outcome"]] += int(n)
		})
		if err != nil {
			return err
		}
		quiet := ended["check Succeeded"]
		delete(ended, "check Succeeded")
		maps.DeleteFunc(ended, func(_ string, n int) bool { return n == 0 })
		if len(ended) > 0 {
			return fmt.Errorf("not all runs were quiet checks: %v", ended)
		}
		left := 0
		seen.look(func(s *podsSeen) { left = len(s.objects) })
		if quiet >= n && left == 0 {
			return nil
		}
	}
}

// print prints what the watch of the pods saw. All checks were due when the controller
// began.
func (s *podsSeen) print(f *facts, began time.Time, took time.Duration, n int) {
	var waits []time.Duration
	first := map[string]time.Duration{} // of each tenant
	stacks := map[string]bool{}
	for _, p := range s.made {
		wait := p.at.Sub(began)
		waits = append(waits, wait)
		stacks[p.namespace+"/"+strings.Join(strings.Split(p.name, "-")[:2], "-")] = true
		if was, ok := first[p.namespace]; !ok || wait < was {
			first[p.namespace] = wait
		}
	}
	slices.Sort(waits)
	firsts := slices.Sorted(maps.Values(first))
	f.fact("all were checked after", seconds(took), "")
	f.fact("pods, of stacks", fmt.Sprintf("%d, %d", len(s.made), len(stacks)), fmt.Sprintf("%d", n))
	f.fact("most pods that had not ended at one moment", fmt.Sprint(s.running), fmt.Sprintf("≤ %d", fleetSlots))
	f.fact("… and that were there at all", fmt.Sprint(s.there), "")
	f.fact("wait for the pod: p50, p95, max", fmt.Sprintf("%s, %s, %s", seconds(waits[len(waits)/2]), seconds(waits[len(waits)*95/100]), seconds(waits[len(waits)-1])), "")
	f.fact("the last tenant has had its first pod after", seconds(firsts[len(firsts)-1]), "")
}

// podMeter is what was used up to a moment, by those who take part.
type podMeter struct {
	controller, plane used
	node, runs        time.Duration // CPU of what carries the pods, and of the pods
	kubelet           map[string]int
	api               map[request]int
}

func (e *podEstate) meter(ctx context.Context) (*podMeter, error) {
	m := &podMeter{}
	var err error
	if e.controller.ProcessState == nil {
		if m.controller, err = usedBy(e.controller.Process.Pid); err != nil {
			return nil, err
		}
	}
	if m.api, err = requestsTo(ctx, e.api); err != nil {
		return nil, err
	}
	if e.kubelet == nil {
		return m, e.group.meter(m)
	}
	// The simulated kubelet is the most of this process.
	m.node, m.runs, m.kubelet = cpuOwn(), cpu()-cpuOwn(), e.asked.now()
	m.plane, err = usedBy(e.plane.Process.Pid)
	return m, err
}

// cost prints what a cycle of n stacks cost since from, the controller's part first. The
// controller began after from, so its counters are of the cycle.
func (e *podEstate) cost(ctx context.Context, f *facts, from, to *podMeter, n int, took time.Duration) error {
	methods := map[string]int{}
	err := e.scrape(ctx, "rest_client_requests_total", func(of map[string]string, n float64) { methods[of["method"]] += int(n) })
	if err != nil {
		return err
	}
	all, reviews, elsewhere := 0, 0, 0
	for r, count := range to.api {
		more := count - from.api[r]
		if r.writes() {
			all += more
			if kind, _, _ := strings.Cut(r.resource, "/"); kind != "pods" && kind != "leases" && kind != "events" {
				elsewhere += more
			}
		}
		if strings.HasSuffix(r.resource, "reviews") {
			reviews += more
		}
	}
	writes := methods["POST"] + methods["PUT"] + methods["PATCH"] + methods["DELETE"] - reviews
	node := 0 // the API server does not tell a real one from the others
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
		node += to.kubelet[method] - from.kubelet[method]
	}
	each := func(count int) string { return fmt.Sprintf("%.2f", float64(count)/float64(n)) }
	f.fact("API writes for each stack: controller", each(writes), "≤ 2")
	f.fact("… kubelet, and all others", each(node)+", "+each(max(0, all-writes-node)), "")
	f.fact("… in all, about anything but pods, events and Leases", fmt.Sprint(elsewhere), "")
	f.fact("… reviews of tokens and access, which store nothing", each(reviews), "")
	ms := func(d time.Duration) string {
		return fmt.Sprintf("%.0f ms, %.1f %% of a core", share(d, n), 100*d.Seconds()/took.Seconds())
	}
	f.fact("controller: most memory", fmt.Sprintf("%d MiB", to.controller.peak), "≤ 512 MiB")
	f.fact("… CPU for each stack", ms(to.controller.cpu), "")
	f.fact("pods: CPU for each stack", ms(to.runs-from.runs), "")
	f.fact(e.carries+": CPU for each stack", ms(to.node-from.node), "")
	if to.plane.peak > 0 {
		f.fact("control plane (API server and etcd): most memory", fmt.Sprintf("%d MiB", to.plane.peak), "")
	}
	f.fact("control plane: CPU for each stack", ms(to.plane.cpu-from.plane.cpu), "")
	return nil
}
