package pages

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/schedule"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

// queuePage is how many queued stacks are shown at once.
const queuePage = 100

// queueEvery is how often the page refreshes: the queue moves with every run,
// also with runs of stacks that the visitor may not view.
const queueEvery = 5 * time.Second

// Queue shows the running and the queued runs, and whether there are enough slots
// for all stacks.
func Queue(v *Visit) (Page, error) {
	page := Page{Title: "Queue", Section: "queue", Template: "queue", Live: Live{Every: queueEvery}}
	if v.Backend.Queue == nil {
		page.Data = queueView{Now: v.Now, Empty: &ui.Empty{Title: "No queue", Text: "This server starts no runs, so it has no queue."}}
		return page, nil
	}
	backlog := v.Backend.Queue.Backlog()
	d := queueOf(v, backlog, v.Backend.Queue.Line())
	if v.Backend.Board != nil {
		c, err := v.Backend.Board.Capacity(query.SlotsOf(backlog))
		if d.Trouble = problemOf("The required number of slots is not known yet", err); err == nil {
			d.Capacity, d.Start = capacityOf(c, d.Slots, d.Memory), c.RunSeconds
		}
	}
	d.guess()
	page.Data = d
	return page, nil
}

// queueView is what the page shows.
type queueView struct {
	Now     time.Time
	Empty   *ui.Empty // this server runs nothing itself
	Slots   use
	Memory  use      // MiB
	PerTen  int      // runs of one tenant at once; 0 is no limit
	Limits  []string // of classes, in words
	Waiting int      // of all tenants
	Oldest  time.Time

	AtWork       []queueRow
	AtWorkHidden int // that the visitor may not view
	Line         []queueRow
	LineHidden   int
	Pager        ui.Pager

	Classes []queueClass
	Chosen  string // class
	Tenant  string
	Names   []string // of tenants that can be chosen
	Tenants []queueTenant
	Others  *queueTenant // those that the visitor may not view

	Capacity *capacityCard
	Trouble  *Problem
	Start    float64 // seconds that a run takes; 0 if unknown
}

// use is how much is taken of what there is; no limit if Most is 0.
type use struct{ Now, Most int }

// Full reports whether nothing is left.
func (u use) Full() bool { return u.Most > 0 && u.Now >= u.Most }

// queueRow is one stack in the queue.
type queueRow struct {
	schedule.Turn
	Href  string
	Log   string // the address of the log of its run, if that is known
	MiB   int
	Class string        // in words
	Doing string        // what its run does
	About time.Duration // until it should start; 0 if unknown
}

// queueClass is a class of runs, which the list can be cut to.
type queueClass struct {
	Name, Word, Means string
	Waiting           int
	Oldest            time.Time
	Href              string
	Current           bool
}

// queueTenant is one line of the table of tenants.
type queueTenant struct {
	Name            string
	Tenants         int // that this line stands for
	AtWork, Waiting int
	MiB             int
	Oldest          time.Time
	Classes         string // its queued runs, by class
}

var classWords = map[string]struct{ Word, Means string }{
	"apply":    {"Apply", "Applies and destroys."},
	"person":   {"User", "A user requested the run."},
	"spec":     {"Change", "The object of the stack changed."},
	"upstream": {"Upstream", "A source or an input changed, or a failed run is retried."},
	"drift":    {"Drift", "A drift check."},
}

func classWord(class string) string {
	if w, ok := classWords[class]; ok {
		return w.Word
	}
	return cmp.Or(class, "Recovered")
}

var turnWords = map[stack.RunKind]string{
	stack.PlanRun: "Plan", stack.CheckRun: "Drift check", stack.ApplyRun: "Apply", stack.ScriptRun: "Script", stack.DestroyRun: "Destroy",
	stack.PreviewRun: "Destroy preview", stack.HealthRun: "Health check", stack.BreakGlassRun: "Break-glass command", stack.StepsRun: "Steps after the apply",
}

func turnWord(k stack.RunKind) string { return cmp.Or(turnWords[k], string(k)) }

// queueOf reduces the queue to the stacks that the visitor may view.
func queueOf(v *Visit, b schedule.Backlog, line schedule.Line) queueView {
	d := queueView{
		Now: v.Now, Slots: use{b.Running, b.MaxRuns}, Memory: use{int(b.Memory >> 20), int(b.MaxMemory >> 20)}, PerTen: b.MaxPerTenant,
		Waiting: b.Waiting, Oldest: b.OldestSince, Chosen: v.Query.Get("class"), Tenant: v.Query.Get("tenant"),
	}
	seen := map[string]bool{} // tenants
	for _, t := range line.Running {
		if !v.Scope().Of(t.StackKind).Has(t.Namespace) {
			d.AtWorkHidden++
			continue
		}
		seen[t.Tenant] = true
		row := rowOfQueue(t)
		row.Log = logOfTurn(v.Backend.Board, t)
		d.AtWork = append(d.AtWork, row)
	}
	var chosen []queueRow
	for _, t := range line.Waiting {
		if !v.Scope().Of(t.StackKind).Has(t.Namespace) {
			d.LineHidden++
			continue
		}
		seen[t.Tenant] = true
		if (d.Chosen == "" || t.Class == d.Chosen) && (d.Tenant == "" || t.Tenant == d.Tenant) {
			chosen = append(chosen, rowOfQueue(t))
		}
	}
	offset := offsetOf(v, len(chosen), queuePage)
	d.Line = chosen[offset:min(offset+queuePage, len(chosen))]
	d.Pager = ui.NewPager(v.Path, v.Query, offset, len(d.Line), queuePage, len(chosen), "queued stack")
	d.classes(v, b.Classes)
	d.tenants(b.Tenants, func(name string) bool { return v.Scope().All || seen[name] })
	return d
}

func rowOfQueue(t schedule.Turn) queueRow {
	row := queueRow{Turn: t, Href: stackPath(keyOfTurn(t)), MiB: int(t.Memory >> 20), Class: classWord(t.Class), Doing: turnWord(t.Kind)}
	if t.Ending {
		row.Doing += ", its pod ends"
	}
	return row
}

func keyOfTurn(t schedule.Turn) query.Key {
	return query.Key{Namespace: t.Namespace, Name: t.Name, Kind: t.StackKind}
}

// logOfTurn is the address of the log of the active run of t. The
// board may be a moment behind, and have no run yet.
func logOfTurn(b Board, t schedule.Turn) string {
	if b == nil {
		return ""
	}
	key := keyOfTurn(t)
	row, ok := b.Get(key)
	if !ok || row.UID != t.UID || row.Run == nil {
		return ""
	}
	return runPath(key, row.Run.ID) + "/log"
}

func (d *queueView) classes(v *Visit, list []schedule.ClassBacklog) {
	for _, c := range list {
		if c.MaxRuns > 0 {
			d.Limits = append(d.Limits, fmt.Sprintf("%d of the class %s", c.MaxRuns, classWord(c.Class)))
		}
		to := c.Class
		if to == d.Chosen {
			to = "" // a second click removes the filter
		}
		d.Classes = append(d.Classes, queueClass{
			Name: c.Class, Word: classWord(c.Class), Means: classWords[c.Class].Means, Waiting: c.Waiting, Oldest: c.OldestSince,
			Href: ui.With(v.Path, ui.Without(v.Query, "offset"), "class", to), Current: c.Class == d.Chosen,
		})
	}
}

// tenants lists the tenants that the visitor may view, and adds up the others.
func (d *queueView) tenants(list []schedule.TenantBacklog, visible func(string) bool) {
	others := queueTenant{}
	for _, b := range list {
		t := queueTenant{Name: b.Tenant, Tenants: 1, AtWork: b.Running, MiB: int(b.Memory >> 20), Oldest: b.OldestSince}
		for _, class := range d.Classes {
			if n := b.Waiting[class.Name]; n > 0 {
				t.Waiting += n
				t.Classes = ui.Joined(t.Classes, fmt.Sprintf("%d %s", n, class.Word))
			}
		}
		if visible(b.Tenant) {
			d.Tenants = append(d.Tenants, t)
			d.Names = append(d.Names, t.Name)
			continue
		}
		others.Tenants++
		others.AtWork += t.AtWork
		others.Waiting += t.Waiting
		others.MiB += t.MiB
		if others.Oldest.IsZero() || !t.Oldest.IsZero() && t.Oldest.Before(others.Oldest) {
			others.Oldest = t.Oldest
		}
	}
	slices.SortStableFunc(d.Tenants, func(a, b queueTenant) int {
		return cmp.Or(cmp.Compare(b.AtWork+b.Waiting, a.AtWork+a.Waiting), cmp.Compare(a.Name, b.Name))
	})
	if others.Tenants > 0 {
		d.Others = &others
	}
}

// guess estimates when the queued runs start, as if each run took the average
// time, one slot after another.
func (d *queueView) guess() {
	if d.Start <= 0 || d.Slots.Most <= 0 {
		return
	}
	for i := range d.Line {
		rounds := float64(d.Line[i].Position) / float64(d.Slots.Most)
		d.Line[i].About = time.Duration(math.Ceil(rounds*d.Start)) * time.Second
	}
}

// capacityCard says whether all check intervals can be met.
type capacityCard struct {
	query.CapacityInfo
	Needed string // slots, with one digit
	Tone   ui.Tone
	MiB    int // memory that the needed slots would use, by the current runs; 0 if there is enough, or if it is unknown
}

// spare is the factor of slots above those for drift checks:
// applies and requested plans come on top.
const spare = 1.25

func capacityOf(c query.CapacityInfo, slots, memory use) *capacityCard {
	card := &capacityCard{CapacityInfo: c, Needed: fmt.Sprintf("%.1f", c.SlotsNeeded), Tone: ui.ToneOK}
	if c.SlotsNeeded < 0.1 {
		card.Needed = "< 0.1"
	}
	if c.Warning == "" {
		return card
	}
	card.Tone = ui.ToneWarn
	if !c.CycleMet {
		card.Tone = ui.ToneBad
	}
	if slots.Now > 0 && memory.Most > 0 {
		if takes := int(math.Ceil(float64(memory.Now) / float64(slots.Now) * math.Ceil(c.SlotsNeeded*spare))); takes > memory.Most {
			card.MiB = takes
		}
	}
	return card
}
