package runner

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/runner/disk"
	"github.com/terrier-iac/terrier/internal/sandbox"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Reasons in a Report for failures that neither the engine nor a user caused.
const (
	OutOfMemory = "OutOfMemory" // the run reached the limit of its memory
	NoSpace     = disk.NoSpace  // there was no space on a disk, or in a file
	Stuck       = "Stuck"       // a step reached its deadline; the message says at what

	ProviderUnnamed = "ProviderUnnamed" // the provider cache has a package that no lock file names
)

// operation is something that an engine has begun and not ended.
type operation struct {
	doing string
	since time.Time
}

var gerunds = map[plan.Action]string{
	plan.Create: "creating", plan.Update: "changing", plan.Delete: "destroying", plan.Read: "reading", plan.Import: "importing",
}

// follow keeps track of the operations that are under way.
func (out *stepOutput) follow(e plan.Event) {
	if out.underway == nil {
		out.underway = map[string]operation{}
	}
	out.last = cmp.Or(plan.HeadOf(e).Message, out.last)
	switch e := e.(type) {
	case plan.Applied:
		out.step(e.Stage, e.Resource.Address, cmp.Or(gerunds[e.Action], string(e.Action)), e.At)
	case plan.Refreshed:
		out.step(e.Stage, e.Resource.Address, "reading", e.At)
	}
}

func (out *stepOutput) step(s plan.Stage, addr, doing string, at time.Time) {
	switch s {
	case plan.Started:
		out.underway[addr] = operation{doing: doing, since: at}
	case plan.Completed, plan.Errored:
		delete(out.underway, addr)
	case plan.Progressed:
	}
}

// running says what the engine is doing now: which operations and for how long,
// the longest first, or its last message if there are none.
func (r *recorder) running(now time.Time) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	const most = 3
	all := r.output.underway
	names := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(all[a].since.Compare(all[b].since), strings.Compare(a, b))
	})
	var texts []string
	for _, addr := range names[:min(most, len(names))] {
		o := all[addr]
		texts = append(texts, fmt.Sprintf("%s %s for %s", o.doing, addr, now.Sub(o.since).Round(time.Second/10)))
	}
	switch {
	case len(names) > most:
		texts = append(texts, fmt.Sprintf("%d more", len(names)-most))
	case len(names) == 0 && r.output.last != "":
		return fmt.Sprintf("after it said %q", fault.Shorten(r.hide.String(r.output.last), 200))
	case len(names) == 0:
		return "before it said anything"
	}
	return "while " + strings.Join(texts, ", ")
}

// explainLimits says whether a limit of the machine made a command fail.
func (e *ending) explainLimits(exit sandbox.Exit, h stepOutput) {
	m := exit.Memory
	said := string(h.text.buf)
	for _, d := range h.diagnostics {
		if d.Severity == "error" {
			said += "\n" + d.Summary + "\n" + d.Detail
		}
	}
	switch {
	case m.Kills > 0:
		used := ""
		if m.Peak > 0 {
			used = fmt.Sprintf(", having used %s", mebibytes(m.Peak))
		}
		e.fault, e.reason = fault.Broken, OutOfMemory
		e.message = fmt.Sprintf("the run reached its memory limit of %s and was killed by the kernel%s: %s", mebibytes(m.Limit), used, e.message)
	case contains(said, "fatal error: runtime: cannot allocate memory", "fatal error: out of memory", "runtime: out of memory"):
		e.fault, e.reason = fault.Broken, OutOfMemory
		e.message = fmt.Sprintf("the run reached its memory limit, having used %s: %s", mebibytes(exit.MaxRSS), e.message)
	case contains(strings.ToLower(said), syscall.ENOSPC.Error(), syscall.EDQUOT.Error(), syscall.EFBIG.Error()):
		e.fault, e.reason = fault.Broken, NoSpace
		e.message = "there is no space left: " + e.message
	case e.outcome == stack.Killed && exit.MaxRSS > 0:
		e.message += fmt.Sprintf("; its largest process had used %s", mebibytes(exit.MaxRSS))
	}
}

func contains(text string, any ...string) bool {
	return slices.ContainsFunc(any, func(s string) bool { return strings.Contains(text, s) })
}

func mebibytes(n int64) string { return fmt.Sprintf("%d MiB", (n+1<<19)>>20) }
