package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
)

// meter is what was used up to a moment.
type meter struct {
	at                time.Time
	controller, plane used
	reads, statements int             // of the rows
	api               map[request]int // the requests to the API server, of all clients
}

// used is what a process has used.
type used struct {
	cpu  time.Duration // of itself and of everything that it has waited for
	peak int           // MiB
}

// request is a kind of request to the API server.
type request struct{ verb, resource string }

// writes reports whether the request changes what is stored.
func (r request) writes() bool {
	return slices.Contains([]string{"POST", "PUT", "PATCH", "APPLY", "DELETE"}, r.verb) && !strings.HasSuffix(r.resource, "reviews") && r.resource != "serviceaccounts/token"
}

func (s *shop) meter(ctx context.Context) (*meter, error) {
	m := &meter{at: time.Now()}
	var err error
	if m.reads, err = s.rows.reads(); err != nil {
		return nil, err
	}
	if m.statements, err = s.rows.statements(); err != nil {
		return nil, err
	}
	for c, u := range map[*exec.Cmd]*used{s.controller: &m.controller, s.plane: &m.plane} {
		if *u, err = usedBy(c.Process.Pid); err != nil {
			return nil, err
		}
	}
	m.api, err = requestsTo(ctx, s.raw)
	return m, err
}

// requestsTo counts what an API server was asked, by all clients.
func requestsTo(ctx context.Context, api *kubernetes.Clientset) (map[request]int, error) {
	text, err := api.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	all := map[request]int{}
	err = series(string(text), "apiserver_request_total", func(of map[string]string, n float64) {
		name := of["resource"]
		if of["subresource"] != "" {
			name += "/" + of["subresource"]
		}
		all[request{of["verb"], cmp.Or(name, "none")}] += int(n)
	})
	return all, err
}

var label = regexp.MustCompile(`(\w+)="([^"]*)"`)

// series calls each for every series of one metric with labels.
func series(text, metric string, each func(labels map[string]string, value float64)) error {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, metric+"{")
		if !ok {
			continue
		}
		labels, value, _ := strings.Cut(rest, "} ")
		of := map[string]string{}
		for _, pair := range label.FindAllStringSubmatch(labels, -1) {
			of[pair[1]] = pair[2]
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil {
			return fmt.Errorf("reading the metric %q: %w", line, err)
		}
		each(of, n)
	}
	return nil
}

// usedBy is what a process, and those that it has waited for, have used.
func usedBy(pid int) (used, error) {
	own, err := cpuOf(pid)
	if err != nil {
		return used{}, err
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return used{}, err
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	for _, f := range fields[13:15] { // cutime and cstime, proc_pid_stat(5)
		n, err := strconv.Atoi(f)
		if err != nil {
			return used{}, err
		}
		own += time.Duration(n) * time.Second / 100
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return used{}, err
	}
	u := used{cpu: own}
	for line := range strings.Lines(string(status)) {
		if held, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			_, err = fmt.Sscan(held, &u.peak)
			u.peak /= 1024
		}
	}
	return u, err
}

// writes counts what was written since from, but for the leases by which
// servers say that they live.
func (m *meter) writes(from *meter) (n int) {
	for r, count := range m.api {
		if r.writes() && r.resource != "leases" {
			n += count - from.api[r]
		}
	}
	return n
}

// since prints what n tenants have cost since from.
func (m *meter) since(out io.Writer, from *meter, n int) error {
	fmt.Fprintf(out, "controller and its runs: %.1f s of CPU (%.0f ms a tenant), at most %d MiB; control plane: %.1f s (%.0f ms), at most %d MiB; %d reads of the rows\n",
		(m.controller.cpu - from.controller.cpu).Seconds(), share(m.controller.cpu-from.controller.cpu, n), m.controller.peak,
		(m.plane.cpu - from.plane.cpu).Seconds(), share(m.plane.cpu-from.plane.cpu, n), m.plane.peak, m.reads-from.reads)
	return m.requests(out, from)
}

func share(all time.Duration, n int) float64 { return float64(all.Milliseconds()) / float64(n) }

// requests prints what the API server was asked since from, most often first.
func (m *meter) requests(out io.Writer, from *meter) error {
	const shown = 24
	more := map[request]int{}
	for r, count := range m.api {
		if d := count - from.api[r]; d > 0 && r.verb != "WATCH" {
			more[r] = d
		}
	}
	all := slices.SortedFunc(maps.Keys(more), func(a, b request) int {
		return cmp.Or(cmp.Compare(more[b], more[a]), cmp.Compare(a.verb+a.resource, b.verb+b.resource))
	})
	var texts []string
	for _, r := range all[:min(len(all), shown)] {
		texts = append(texts, fmt.Sprintf("%d %s %s", more[r], r.verb, r.resource))
	}
	_, err := fmt.Fprintf(out, "API requests: %s\n", strings.Join(texts, ", "))
	return err
}
