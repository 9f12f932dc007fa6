package pages

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/runner/logfile"
)

// logged is an estate whose runs have one log.
type logged struct {
	*planned
	text string
	err  error
}

func (l logged) Log(_ context.Context, _ query.Key, _ string, o query.LogOptions) (io.ReadCloser, error) {
	return logfile.Read(io.NopCloser(strings.NewReader(l.text)), o.Timestamps), l.err
}

func logVisit(t *testing.T, text, address string) *Visit {
	t.Helper()
	p := history(t)
	v := runVisit(t, p, address)
	v.Backend.Stacks = logged{planned: p, text: text}
	return v
}

func numbered(n int) string {
	var b strings.Builder
	b.WriteString("$ tofu init\n")
	for i := 2; i <= n; i++ {
		fmt.Fprintf(&b, "\x1b[3%dmline %d\x1b[0m %s\n", i%8, i, hostile)
	}
	return b.String()
}

func TestLogsKeepTheRules(t *testing.T) {
	for name, text := range map[string]string{"no lines": "", "one": "x", "a few": numbered(30), "hostile": "</code></script><script>alert(1)</script>\n\x1b]8;;javascript:alert(1)\x07x\x1b]8;;\x07\n\x00\xff\r\n"} {
		for _, params := range []string{"", "?from=1", "?from=2005", "?from=99999", "?from=-1", "?from=x"} {
			for _, run := range []string{"plan-1", "plan-8"} {
				v := logVisit(t, text, "/stacks/apps/checkout/runs/"+run+"/log"+params)
				p, err := Log(v)
				if err != nil {
					t.Fatalf("%s%s: %v", name, params, err)
				}
				parse(t, v, p)
			}
		}
	}
}

func TestALogShowsThePartThatIsAskedFor(t *testing.T) {
	const total = 2*linesShown + 10
	for params, want := range map[string]struct{ first, last int }{
		"": {linesShown + 11, total}, "?from=1": {1, linesShown}, "?from=2005": {2005, 2004 + linesShown}, fmt.Sprintf("?from=%d", total): {total, total},
	} {
		v := logVisit(t, numbered(total), "/stacks/apps/checkout/runs/plan-1/log"+params)
		p, err := Log(v)
		if err != nil {
			t.Fatal(err)
		}
		d := parse(t, v, p)
		lines := d.all(func(n *html.Node) bool { return n.DataAtom == atom.Li && strings.HasPrefix(attr(n, "id"), "L") })
		first, last := lines[0], lines[len(lines)-1]
		if attr(first, "id") != fmt.Sprintf("L%d", want.first) || attr(last, "id") != fmt.Sprintf("L%d", want.last) {
			t.Errorf("%q shows %s to %s, want %d to %d", params, attr(first, "id"), attr(last, "id"), want.first, want.last)
		}
		if text := textOf(last); !strings.Contains(text, fmt.Sprintf("line %d", want.last)) {
			t.Errorf("%q ends with %q", params, text)
		}
	}
}

// A colour that began before what is shown is that of what is shown.
func TestColoursReachIntoAPart(t *testing.T) {
	text := "\x1b[32mgreen from here\n" + strings.Repeat("more\n", linesShown+5)
	v := logVisit(t, text, "/stacks/apps/checkout/runs/plan-1/log")
	p, err := Log(v)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(p.Data.(logPage).Lines[0].HTML), `<span class="a-f2">more</span>`; got != want {
		t.Errorf("the first line is %s, want %s", got, want)
	}
}

// Where a page ends, the stream goes on: at the end of the last whole line, each of
// which begins with a hyphen in the place of its time.
func TestAPageLeavesTheRestToTheStream(t *testing.T) {
	for run, want := range map[string]struct {
		bytes int64
		total int
	}{"plan-8": {12, 2}, "plan-1": {17, 3}} {
		v := logVisit(t, "one\ntwo\nthr", "/stacks/apps/checkout/runs/"+run+"/log")
		p, err := Log(v)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Data.(logPage); got.Bytes != want.bytes || got.Total != want.total {
			t.Errorf("%s: %d lines of %d bytes, want %d of %d", run, got.Total, got.Bytes, want.total, want.bytes)
		}
	}
}

func TestALogThatIsNotThere(t *testing.T) {
	missing := fault.New(fault.Missing, "NoLog", errors.New("no log"))
	v := logVisit(t, "", "/stacks/apps/checkout/runs/plan-1/log")
	v.Backend.Stacks = logged{planned: history(t), err: missing}
	if _, err := Log(v); fault.Of(err) != fault.Missing {
		t.Errorf("Log() of a run without one = %v, want Missing", err)
	}
	v = logVisit(t, "", "/stacks/apps/checkout/runs/plan-8/log")
	v.Backend.Stacks = logged{planned: history(t), err: missing}
	p, err := Log(v)
	if err != nil {
		t.Fatal(err)
	}
	if got := parse(t, v, p).text(); !strings.Contains(got, "The run has just started") {
		t.Error("the log of a run that has just begun does not say so")
	}
}

// A line shows its time beside it, and its text stays what the engine wrote.
func TestALogShowsTheTimesOfItsLines(t *testing.T) {
	v := logVisit(t, "2026-03-14T15:04:05.678Z $ tofu plan\n2026-03-14T15:04:06.000Z Error: no quota\n", "/stacks/apps/checkout/runs/plan-1/log")
	p, err := Log(v)
	if err != nil {
		t.Fatal(err)
	}
	d := parse(t, v, p)
	var times, texts []string
	for _, line := range d.all(func(n *html.Node) bool { return n.DataAtom == atom.Li && strings.HasPrefix(attr(n, "id"), "L") }) {
		within := parsed{t, line}
		for _, at := range within.all(func(n *html.Node) bool { return n.DataAtom == atom.Time }) {
			times = append(times, attr(at, "title")+" "+textOf(at))
		}
		for _, text := range within.all(func(n *html.Node) bool { return n.DataAtom == atom.Code }) {
			texts = append(texts, textOf(text))
		}
	}
	if diff := cmp.Diff(times, []string{"2026-03-14T15:04:05.678Z 15:04:05", "2026-03-14T15:04:06.000Z 15:04:06"}); diff != "" {
		t.Errorf("times (-got +want):\n%s", diff)
	}
	if diff := cmp.Diff(texts, []string{"$ tofu plan", "Error: no quota"}); diff != "" {
		t.Errorf("texts (-got +want):\n%s", diff)
	}
	if got := p.Data.(logPage); got.Error != "#L2" || !got.Times {
		t.Errorf("the first error is %q, times are shown: %t", got.Error, got.Times)
	}
}

// The log and the plan of a stack of another kind are read at its own address, and not at that
// of the stack of the first kind that has its name.
func TestStacksOfAnotherKindAreReadAtTheirAddress(t *testing.T) {
	v := logVisit(t, "line\n", "/stacks/apps/checkout/runs/plan-8/log")
	rows := v.Backend.Stacks.(logged).rows
	for i := range rows {
		if rows[i].Key() == v.Key() {
			rows[i].Kind = "terraform.second.example.com"
		}
	}
	v.Names["kind"] = "terraform.second.example.com"
	p, err := Log(v)
	if err != nil {
		t.Fatal(err)
	}
	const its = "/api/v1/namespaces/apps/stacks/terraform.second.example.com:checkout/"
	log := p.Data.(logPage)
	if log.Raw != its+"runs/plan-8/log" || log.Timed != its+"runs/plan-8/log?timestamps=true" {
		t.Errorf("the log is read at %q and %q", log.Raw, log.Timed)
	}
	if got := apiPath(v.Key(), "plan"); got != its+"plan" {
		t.Errorf("the plan is read at %q", got)
	}
}
