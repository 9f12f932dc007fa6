package query

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query/meaning"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Decisions are what was decided about stacks, as it was written down.
type Decisions interface {
	// Decisions returns what was decided about a stack, newest first.
	Decisions(context.Context, StackID) ([]Decided, error)
}

// Decided is one decision about a stack. It stands until the next one.
type Decided struct {
	At         time.Time `json:"at"`
	Phase      string    `json:"phase"` // a stack.Reason
	Rule       string    `json:"rule"`
	Message    string    `json:"message,omitempty"`
	WaitingFor string    `json:"waitingFor,omitempty"`
}

// Moment is one thing that happened to a stack.
type Moment struct {
	At      time.Time     `json:"at"`
	Kind    MomentKind    `json:"kind"`
	Title   string        `json:"title"`
	Text    string        `json:"text,omitempty"`
	Who     string        `json:"who,omitempty"`  // did it
	Rule    string        `json:"rule,omitempty"` // that fired
	Run     string        `json:"run,omitempty"`  // its identifier
	Outcome stack.Outcome `json:"outcome,omitempty"`
	Took    time.Duration `json:"took,omitempty"`  // of a run that ended; nanoseconds
	Count   int           `json:"count,omitempty"` // how often, if more than once
	First   time.Time     `json:"first,omitzero"`  // of a run that failed, or a drift check that found the same, Count times: the end of the first
	Bad     bool          `json:"bad,omitempty"`   // it went wrong
}

// MomentKind is what sort of thing happened.
type MomentKind string

// The kinds of moment.
const (
	MomentCreated  MomentKind = "created"
	MomentRun      MomentKind = "run"
	MomentDecision MomentKind = "decision"
	MomentEvent    MomentKind = "event"
	MomentDeed     MomentKind = "deed" // of a person; only where the audit log may be read
)

// momentsShown bounds a timeline.
const momentsShown = 500

// Timeline implements StackDetails. What only tells of a run is not there beside
// that run, and runs that fail again and again in the same way are one moment.
func (d *Details) Timeline(ctx context.Context, key Key) ([]Moment, error) {
	o, err := d.stacks.Read(ctx, key)
	if err != nil {
		return nil, err
	}
	st := View(o)
	runs, err := d.stacks.Records.Runs(ctx, st.ID())
	if err != nil {
		return nil, err
	}
	happened, err := events(ctx, d.stacks.Kube, key.Namespace, st.UID)
	if err != nil {
		return nil, err
	}
	var decided []Decided
	if d.decisions != nil {
		if decided, err = d.decisions.Decisions(ctx, st.ID()); err != nil {
			return nil, err
		}
	}
	return timeline(o.Dialect, o.explained, st.Created, runs, happened, decided), nil
}

// timeline puts everything in one order, newest first. Of what is of the same
// moment, the end of a run caused the decision, and that the event.
func timeline(of dialect.Dialect, explained func(stack.Reason) meaning.Situation, created time.Time, runs []Report, happened []Event, decided []Decided) []Moment {
	out := []Moment{{At: created, Kind: MomentCreated, Title: "Created"}}
	decided, began := withoutRuns(decided, runs)
	for _, d := range decided[:min(len(decided), momentsShown)] {
		out = append(out, momentOfDecision(d, explained))
	}
	told := map[int]string{} // by run, in the words of its event
	var others []Event
	for _, e := range happened {
		if i := slices.IndexFunc(runs, func(r Report) bool { return tellsOf(of, e, r) }); i >= 0 {
			told[i] = e.Message
			continue
		}
		others = append(others, e)
	}
	for i, r := range runs {
		m := momentOfRun(r, told[i])
		m.Rule = began[r.ID]
		out = append(out, m)
	}
	for _, e := range others {
		m := Moment{At: e.At, Kind: MomentEvent, Title: words(e.Reason), Text: e.Message, Bad: e.Type == "Warning"}
		if e.Count > 1 {
			m.Count = e.Count
		}
		out = append(out, m)
	}
	inOrder(out)
	out = streaks(out, runs)
	return out[:min(len(out), momentsShown)]
}

// inOrder sorts moments, the newest first.
func inOrder(moments []Moment) {
	causes := []MomentKind{MomentEvent, MomentDecision, MomentDeed, MomentRun, MomentCreated}
	slices.SortStableFunc(moments, func(a, b Moment) int {
		return cmp.Or(b.late().Compare(a.late()), cmp.Compare(slices.Index(causes, a.Kind), slices.Index(causes, b.Kind)))
	})
}

// late is the last moment that m may have happened at: events are kept to the
// second, so that one would come before what caused it.
func (m Moment) late() time.Time {
	if m.Kind == MomentEvent && m.At.Nanosecond() == 0 {
		return m.At.Add(time.Second - 1)
	}
	return m.At
}

func momentOfDecision(d Decided, explained func(stack.Reason) meaning.Situation) Moment {
	return Moment{
		At: d.At, Kind: MomentDecision, Title: words(d.Phase), Text: cmp.Or(d.Message, d.WaitingFor, explained(stack.Reason(d.Phase)).Means),
		Rule: d.Rule, Bad: statuses[stack.Reason(d.Phase)] == StatusFailed,
	}
}

func momentOfRun(r Report, said string) Moment {
	m := Moment{At: r.Started, Kind: MomentRun, Title: runTitle(r), Run: r.ID}
	if r.Phase != runner.Done {
		return m
	}
	m.At, m.Took, m.Outcome = r.Finished, r.Finished.Sub(r.Started), r.Outcome
	m.Text = cmp.Or(said, r.Message)
	m.Bad = bad(r)
	return m
}

// tells are how long after a run its event may be made.
const tells = 2 * time.Minute

// tellsOf reports whether e says no more than that r ended. Events are kept to
// the second.
func tellsOf(of dialect.Dialect, e Event, r Report) bool {
	if r.Phase != runner.Done || e.At.Before(r.Finished.Add(-time.Second)) || e.At.After(r.Finished.Add(tells)) {
		return false
	}
	end := stack.Run{Kind: r.Kind, Outcome: r.Outcome, Step: r.Step, Why: r.Reason}
	if e.Reason == of.EventReason(end) {
		return true
	}
	end.Plan = &stack.Plan{Drift: true} // the report does not say that it was drift
	return r.Outcome == stack.Succeeded && !r.Kind.Writes() && e.Reason == of.EventReason(end)
}

// words is a CamelCase name as people write it: AwaitingApproval is Awaiting
// approval.
func words(name string) string {
	var b strings.Builder
	before := rune(0)
	for i, r := range name {
		if i == 0 {
			r = unicode.ToUpper(r)
		} else if unicode.IsUpper(r) && unicode.IsLower(before) {
			b.WriteByte(' ')
			if next := name[i+1:]; next == "" || !unicode.IsUpper(rune(next[0])) {
				r = unicode.ToLower(r)
			}
		}
		before = rune(name[i])
		b.WriteRune(r)
	}
	return b.String()
}

func (b *Blobs) Decisions(ctx context.Context, id StackID) ([]Decided, error) {
	if err := CheckID(id, "any"); err != nil {
		return nil, err
	}
	text, err := b.store.Get(ctx, record.Decisions(id.UID).Key)
	if fault.Of(err) == fault.Missing || fault.Reason(err, "") == blob.Damaged || fault.Reason(err, "") == blob.KeyUnknown {
		return nil, nil // the rest of the history is worth more than an error
	}
	var kept []stack.Decided
	if err == nil {
		kept, err = record.Decisions(id.UID).Decode(text)
	}
	if err != nil {
		return nil, fmt.Errorf("reading what was decided about %s: %w", id.Key, err)
	}
	out := make([]Decided, 0, len(kept))
	for _, d := range slices.Backward(kept) {
		out = append(out, Decided(d))
	}
	return out, nil
}

var _ Decisions = (*Blobs)(nil)
