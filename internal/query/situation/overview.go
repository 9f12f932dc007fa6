// Package situation answers one question: is anything wrong? It puts together what other
// answers say of stacks, plans, Vault, the objects of Flux, the server, the controllers that
// share the stacks and the queue, each with a level, the worst first.
//
// It counts what the user may see and nothing else. It changes nothing, and an answer that
// cannot be had is itself something wrong. Start reading at Of.
package situation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/plural"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/vault/monitor"
)

// Level says how bad something is.
type Level string

// The levels, the worst first.
const (
	Bad       Level = "bad"       // something is broken: a user has to act, or waits
	Attention Level = "attention" // a user should look: a pending plan, drift, a lock
	Good      Level = "good"
	Unused    Level = "unused" // the platform does not have this part
)

var severity = map[Level]int{Bad: 0, Attention: 1, Good: 2, Unused: 3}

// Compare orders levels, the worst first.
func (l Level) Compare(other Level) int { return cmp.Compare(severity[l], severity[other]) }

// Names of the parts.
const (
	Stacks      = "stacks"
	Plans       = "plans"
	Vault       = "vault"
	Flux        = "flux"
	Server      = "server"
	Controllers = "controllers"
	Queue       = "queue"
)

// Overview is the status of everything that a user may see.
type Overview struct {
	Level   Level     `json:"level"` // of the worst part
	Parts   []Part    `json:"parts"` // the worst first
	Version string    `json:"version,omitempty"`
	At      time.Time `json:"at"`
}

// Part is the status of one part.
type Part struct {
	Name  string `json:"name"`
	Level Level  `json:"level"`
	Text  string `json:"text"`            // in one sentence
	Items []Item `json:"items,omitempty"` // what is not good, the worst first
	More  int    `json:"more,omitempty"`  // items beyond those

	Controllers []Controller `json:"controllers,omitempty"` // of the part controllers, for those who may list all stacks
}

// Item is one thing that is not good.
type Item struct {
	Level     Level     `json:"level"`
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name"`
	Status    string    `json:"status"`
	Message   string    `json:"message,omitempty"`
	Next      string    `json:"next,omitempty"` // what to do
	Since     time.Time `json:"since,omitzero"`

	Stack *query.Key `json:"stack,omitempty"` // if it is one
}

// mostItems bounds the items of one part.
const mostItems = 20

// Board is where stacks are counted.
type Board interface {
	Page(access.Scope, query.BoardQuery) (query.BoardPage, error)
	Capacity(query.Slots) (query.CapacityInfo, error)
}

// Objects lists the objects of Flux that a user may list.
type Objects interface {
	List(ctx context.Context, scope access.Scope) (Listed, error)
}

// Check is one check of the server itself.
type Check struct {
	Name string
	Ask  func(context.Context) error
}

// Asked is what there is to ask. A nil field is a part that the platform does not have.
type Asked struct {
	Board   Board
	Queue   query.Queue
	Vaults  func() []monitor.Status
	Flux    Objects // with the rights of the user
	Checks  []Check
	Sharing func(context.Context) (Sharing, error) // nil if one controller has all stacks
	Scope   access.Scope                           // the namespaces whose stacks the user may list
	Version string
	Now     time.Time
}

// For is the same question of one user.
func (a Asked) For(scope access.Scope, flux Objects, now time.Time) Asked {
	a.Scope, a.Flux, a.Now = scope, flux, now
	return a
}

// patience bounds the wait for one part.
const patience = 10 * time.Second

// Of asks all parts, at the same time.
func Of(ctx context.Context, a Asked) Overview {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	ask := []func(context.Context) Part{a.stacks, a.plans, a.vault, a.flux, a.server, a.controllers, a.queue}
	parts := make([]Part, len(ask))
	var all sync.WaitGroup
	for i, f := range ask {
		all.Go(func() { parts[i] = f(ctx) })
	}
	all.Wait()
	for i := range parts {
		parts[i].settle()
	}
	slices.SortStableFunc(parts, func(x, y Part) int { return x.Level.Compare(y.Level) })
	return Overview{Level: parts[0].Level, Parts: parts, Version: a.Version, At: a.Now}
}

// settle orders and bounds the items.
func (p *Part) settle() {
	slices.SortStableFunc(p.Items, func(x, y Item) int {
		return cmp.Or(x.Level.Compare(y.Level), cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name), cmp.Compare(x.Kind, y.Kind))
	})
	for _, i := range p.Items {
		if i.Level.Compare(p.Level) < 0 {
			p.Level = i.Level
		}
	}
	if len(p.Items) > mostItems {
		p.More += len(p.Items) - mostItems
		p.Items = p.Items[:mostItems]
	}
}

// unanswered is a part whose status cannot be had.
func unanswered(name string, err error) Part {
	return Part{Name: name, Level: Bad, Text: "Not known: " + err.Error()}
}

// stackLevels are the levels of stacks by status. Those that are not named are good.
var stackLevels = map[query.Status]Level{
	query.StatusFailed: Bad, query.StatusLocked: Attention, query.StatusRejected: Attention, query.StatusDrifted: Attention,
}

// worried are the statuses that are not good, the worst first.
var worried = []query.Status{query.StatusFailed, query.StatusLocked, query.StatusDrifted, query.StatusRejected}

func (a Asked) stacks(context.Context) Part {
	if a.Board == nil {
		return Part{Name: Stacks, Level: Unused, Text: "This server reconciles no stacks"}
	}
	page, err := a.Board.Page(a.Scope, query.BoardQuery{Statuses: worried, Sort: "status", Limit: mostItems})
	if err != nil {
		return unanswered(Stacks, err)
	}
	p := Part{Name: Stacks, Level: Good, Items: rows(page.Items), More: page.Total - len(page.Items)}
	total := 0
	var words []string
	for _, n := range page.Counts {
		total += n
	}
	for _, s := range []query.Status{
		query.StatusFailed, query.StatusLocked, query.StatusDrifted, query.StatusRejected, query.StatusPending, query.StatusRunning, query.StatusWaiting, query.StatusDeleting, query.StatusSuspended, query.StatusReady,
	} {
		if n := page.Counts[s]; n > 0 {
			words = append(words, fmt.Sprintf("%d %s", n, s))
		}
	}
	p.Text = plural.Count(total, "stack")
	if len(words) > 0 {
		p.Text += ": " + strings.Join(words, ", ")
	}
	for status, level := range stackLevels { // also if their items are cut off
		if page.Counts[status] > 0 && level.Compare(p.Level) < 0 {
			p.Level = level
		}
	}
	return p
}

func rows(all []query.Row) []Item {
	var items []Item
	for _, r := range all {
		level, ok := stackLevels[r.Status]
		if !ok {
			level = Attention
		}
		key := r.Key()
		items = append(items, Item{Level: level, Kind: "stack", Namespace: r.Namespace, Name: key.Argument(), Status: string(r.Status), Message: r.Message, Since: r.StatusSince(),
			Next: fmt.Sprintf("terrier explain %s -n %s", key.Argument(), key.Namespace), Stack: &key})
	}
	return items
}

func (a Asked) plans(context.Context) Part {
	if a.Board == nil {
		return Part{Name: Plans, Level: Unused, Text: "This server reconciles no stacks"}
	}
	page, err := a.Board.Page(a.Scope, query.BoardQuery{Statuses: []query.Status{query.StatusPending}, Sort: "since", Limit: mostItems})
	if err != nil {
		return unanswered(Plans, err)
	}
	if page.Total == 0 {
		return Part{Name: Plans, Level: Good, Text: "No plan is pending"}
	}
	p := Part{Name: Plans, Level: Attention, Text: plural.Count(page.Total, "plan") + " pending", Items: rows(page.Items), More: page.Total - len(page.Items)}
	for i, r := range page.Items {
		p.Items[i].Kind, p.Items[i].Next = "plan", fmt.Sprintf("terrier plan %s -n %s", p.Items[i].Name, r.Namespace)
		if r.Pending != "" {
			p.Items[i].Status = r.Pending
		}
	}
	return p
}

// vaultLevels are the levels of the states of a server.
var vaultLevels = map[monitor.State]Level{
	monitor.Active: Good, monitor.Standby: Good, monitor.Unknown: Attention, monitor.Sealed: Bad, monitor.Uninitialized: Bad, monitor.Unreachable: Bad,
}

func (a Asked) vault(context.Context) Part {
	var all []monitor.Status
	if a.Vaults != nil {
		all = a.Vaults()
	}
	if len(all) == 0 {
		return Part{Name: Vault, Level: Unused, Text: "The platform uses no OpenBao or Vault (--vault)"}
	}
	p := Part{Name: Vault, Level: Good}
	var words []string
	for _, s := range all {
		words = append(words, fmt.Sprintf("%s %s", s.Address, s.State))
		if level := vaultLevels[s.State]; level != Good {
			item := Item{Level: level, Kind: "vault", Name: s.Address, Status: string(s.State), Message: s.Message, Next: s.Next, Since: s.Since}
			p.Items = append(p.Items, a.forOperators(item))
		}
	}
	p.Text = strings.Join(words, ", ")
	return p
}

// forOperators is an item whose message names addresses and files of the server, which only
// those who may list all stacks see.
func (a Asked) forOperators(i Item) Item {
	if !a.Scope.All {
		i.Message, i.Next = "", "Ask the operator of this server"
	}
	return i
}

func (a Asked) server(ctx context.Context) Part {
	p := Part{Name: Server, Level: Good}
	failed := 0
	for _, c := range a.Checks {
		if err := c.Ask(ctx); err != nil {
			failed++
			p.Items = append(p.Items, a.forOperators(Item{Level: Bad, Kind: "check", Name: c.Name, Status: "failed", Message: err.Error()}))
		}
	}
	p.Text = fmt.Sprintf("Terrier %s, %s", a.Version, plural.Count(len(a.Checks), "check"))
	if failed > 0 {
		p.Text += fmt.Sprintf(", %d failed", failed)
	}
	return p
}

func (a Asked) queue(context.Context) Part {
	if a.Queue == nil || a.Board == nil {
		return Part{Name: Queue, Level: Unused, Text: "This server starts no runs"}
	}
	line, backlog := a.Queue.Line(), a.Queue.Backlog()
	running, waiting := 0, 0
	for _, t := range line.Running {
		if a.Scope.Of(t.StackKind).Has(t.Namespace) {
			running++
		}
	}
	for _, t := range line.Waiting {
		if a.Scope.Of(t.StackKind).Has(t.Namespace) {
			waiting++
		}
	}
	p := Part{Name: Queue, Level: Good, Text: fmt.Sprintf("%s running, %d queued", plural.Count(running, "run"), waiting)}
	if backlog.MaxRuns > 0 {
		p.Text += fmt.Sprintf(", %d at once", backlog.MaxRuns)
	}
	c, err := a.Board.Capacity(query.SlotsOf(backlog))
	if err == nil && !c.CycleMet && c.Warning != "" && a.Scope.All {
		p.Items = append(p.Items, Item{Level: Attention, Kind: "queue", Name: "slots", Status: "too few", Message: c.Warning})
	}
	return p
}
