package pages

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
)

// What the parts in templates/parts are given. Each part says at its top how it
// is called and looks for its fields here.

// Tone is the severity of a pill, a note or a button. It only colours what
// a word and a glyph say already.
type Tone string

// The tones.
const (
	ToneOK    Tone = "ok"
	ToneBad   Tone = "bad"
	ToneWarn  Tone = "warn"
	ToneBusy  Tone = "busy"
	ToneDrift Tone = "drift"
	ToneIdle  Tone = "idle"
)

// Pill is a status in one word.
type Pill struct {
	Tone Tone
	Icon string // a name of the part "icon"
	Word string
}

// icons are the glyphs of tones that name none themselves.
var icons = map[Tone]string{ToneOK: "check", ToneBad: "cross", ToneWarn: "alert", ToneBusy: "turn", ToneDrift: "differs", ToneIdle: "dot"}

func pillOf(tone Tone, word string) Pill { return Pill{Tone: tone, Icon: icons[tone], Word: word} }

// statusPills has every status; a test checks that.
var statusPills = map[query.Status]Pill{
	query.StatusFailed:    {ToneBad, "cross", "Failed"},
	query.StatusLocked:    {ToneWarn, "lock", "Locked"},
	query.StatusPending:   {ToneWarn, "ask", "Needs approval"},
	query.StatusDrifted:   {ToneDrift, "differs", "Drifted"},
	query.StatusRunning:   {ToneBusy, "turn", "Running"},
	query.StatusWaiting:   {ToneIdle, "clock", "Waiting"},
	query.StatusDeleting:  {ToneWarn, "minus", "Deleting"},
	query.StatusSuspended: {ToneIdle, "pause", "Suspended"},
	query.StatusReady:     {ToneOK, "check", "Ready"},
}

// statusPill is the pill of a status; one that is not known is shown as it is.
func statusPill(s query.Status) Pill {
	if p, ok := statusPills[s]; ok {
		return p
	}
	return Pill{ToneIdle, "dot", string(s)}
}

// outcomePills are the outcomes of runs.
var outcomePills = map[stack.Outcome]Pill{
	stack.Succeeded:   {ToneOK, "check", "Succeeded"},
	stack.Failed:      {ToneBad, "cross", "Failed"},
	stack.Stale:       {ToneWarn, "clock", "Stale"},
	stack.Locked:      {ToneWarn, "lock", "Locked"},
	stack.TimedOut:    {ToneBad, "clock", "Timed out"},
	stack.Interrupted: {ToneIdle, "pause", "Interrupted"},
}

// outcomePill is the pill of a run; without an outcome it goes on.
func outcomePill(o stack.Outcome) Pill {
	if o == "" {
		return Pill{ToneBusy, "turn", "Running"}
	}
	if p, ok := outcomePills[o]; ok {
		return p
	}
	return Pill{ToneBad, "cross", string(o)}
}

// Moment is a time as seen from now.
type Moment struct {
	Now, At time.Time
}

// Tabs are links between the parts of one thing.
type Tabs struct {
	Label string // what they are of, for those who hear the page
	Items []Tab
}

// Tab is one of them.
type Tab struct {
	Name    string
	Href    string
	Count   int // shown if not zero
	Current bool
	Why     string // why the visitor may not open it; the tab is marked, and shows this
}

// Button is a form of one button.
type Button struct {
	Label  string
	To     string            // the address that it posts to
	Href   string            // the address that it leads to: then it is a link, and posts nothing
	Fields map[string]string // what it carries along
	Look   string            // primary, danger or empty
	Why    string            // why it cannot be used now; it is shown, disabled, with this reason
	Name   string            // says what it acts on, for those who hear the page; empty if that is plain
}

// Pager says which part of a list is shown and leads to the others.
type Pager struct {
	From, To, Total int
	Noun            string
	Prev, Next      string // addresses; empty if there is none
}

// pager is for a list whose address is path with query; rows are counted from 0.
func pager(path string, params url.Values, offset, shown, limit, total int, noun string) Pager {
	p := Pager{From: offset + 1, To: offset + shown, Total: total, Noun: noun}
	if shown == 0 {
		p.From = 0
	}
	if offset > 0 {
		p.Prev = with(path, params, "offset", offsetText(max(0, offset-limit)))
	}
	if offset+shown < total && shown > 0 {
		p.Next = with(path, params, "offset", offsetText(offset+limit))
	}
	return p
}

func offsetText(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

// with is the address path with one value of the query changed; an empty value
// removes it. The sentence about an earlier action is never carried along.
func with(path string, params url.Values, name string, values ...string) string {
	next := url.Values{}
	for k, v := range params {
		if k != name && k != "done" {
			next[k] = v
		}
	}
	for _, v := range values {
		if v != "" {
			next.Add(name, v)
		}
	}
	if len(next) == 0 {
		return path
	}
	return path + "?" + next.Encode()
}

// Empty is shown in place of an empty list.
type Empty struct {
	Title   string
	Text    string
	Command string // to copy
	Href    string // of a link, named Link
	Link    string
}

// Problem stands for a part of a page that could not be shown; the rest is shown.
type Problem struct {
	Title string
	Error string
	Hint  string
}

// problemOf describes err; nil for nil.
func problemOf(title string, err error) *Problem {
	if err == nil {
		return nil
	}
	return &Problem{Title: title, Error: err.Error(), Hint: browserHint(err)}
}

// revision shortens the name of a revision: what it is called by, and as much of
// the digest as people compare.
func revision(s string) string {
	const shown = 8
	name, digest, ok := strings.Cut(s, "@")
	if !ok {
		name, digest = "", s
	}
	if _, hex, ok := strings.Cut(digest, ":"); ok {
		digest = hex
	}
	if len(digest) > shown && strings.Trim(digest, "0123456789abcdef") == "" {
		digest = digest[:shown]
	}
	if name == "" {
		return digest
	}
	return name + "@" + digest
}

// cut shortens a text to n characters and says so with an ellipsis.
func cut(n int, s string) string {
	runes := 0
	for i := range s {
		if runes == n {
			return strings.TrimRight(s[:i], " ") + "…"
		}
		runes++
	}
	return s
}
