package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
	"sigs.k8s.io/yaml"

	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/query"
)

// printer prints answers and errors. The first failure to print one is the failure
// of the command.
type printer struct {
	Env
	failed error
}

// say prints a part of the answer, with the texts of args as a terminal shows them.
func (p *printer) say(format string, args ...any) { p.print(p.Stdout, cleanf(format, args)) }

// note prints to standard error, which an answer in a pipe does not contain.
func (p *printer) note(format string, args ...any) { p.print(p.Stderr, cleanf(format, args)) }

func (p *printer) print(w io.Writer, text string) {
	_, err := io.WriteString(w, text)
	p.fail(err)
}

func (p *printer) fail(err error) {
	if p.failed == nil {
		p.failed = err
	}
}

// complain prints the error in one sentence, and the next step in another.
func (p *printer) complain(err error) {
	p.note("terrier: %s\n", err)
	hint := command.Hint(err)
	if fault.Reason(err, "") == reasonUsage {
		hint = "To list the commands: terrier --help. For one command: terrier COMMAND --help"
	}
	if hint != "" {
		p.note("  %s\n", hint)
	}
}

// structured prints v if f is a format for programs, and reports whether it is.
func (p *printer) structured(f format, v any) bool {
	switch f {
	case forJSON:
		raw, err := json.MarshalIndent(v, "", "  ")
		p.fail(err)
		p.printJSON(raw)
	case forYAML:
		raw, err := yaml.Marshal(v)
		p.fail(err)
		p.print(p.Stdout, string(raw))
	default:
		return false
	}
	return true
}

// printJSON prints JSON in which all characters that a terminal does not show are
// escaped; a program reads the same values.
func (p *printer) printJSON(raw []byte) {
	var b strings.Builder
	for _, r := range string(raw) {
		switch {
		case r == '\n' || shown(r) || r == utf8.RuneError:
			b.WriteRune(r)
		case r > 0xffff:
			high, low := surrogates(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	p.print(p.Stdout, strings.TrimSuffix(b.String(), "\n")+"\n")
}

func surrogates(r rune) (high, low rune) {
	r -= 0x10000
	return 0xd800 + r>>10, 0xdc00 + r&0x3ff
}

// write prints a text that has been laid out.
func (p *printer) write(s *sheet) { p.print(p.Stdout, s.b.String()) }

// table prints a table; rows that are added later are printed below it.
func (p *printer) table(t *table) { p.fail(t.print(p.Stdout, p.coloured())) }

// coloured reports whether to use colours: on a terminal, unless the user
// disables them (https://no-color.org).
func (p *printer) coloured() bool {
	f, ok := p.Stdout.(*os.File)
	return ok && p.getenv("NO_COLOR") == "" && p.getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}

// at is a time, and its distance from now.
func (p *printer) at(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	text := t.UTC().Format(time.RFC3339)
	if d := t.Sub(p.Now()); d > 0 {
		return text + " (in " + span(d) + ")"
	}
	return text + " (" + age(p.Now(), t) + " ago)"
}

// waiting says on standard error what a command waits for.
func (p *printer) waiting(what string) { p.note("Waiting: %s\n", what) }

// settled prints the status of a settled stack.
func (p *printer) settled(st query.Stack) {
	text := st.Message
	if st.Plan != nil {
		text = st.Pending + " " + plan.Summarize(st.Plan.Changes)
	}
	p.say("%s: %s\n", st.Phase, text)
}

func (p *printer) printPlan(doc query.PlanDocument, f format, limit int) error {
	if f == forJSON {
		p.printJSON(doc.Document)
		return nil
	}
	d, err := plan.ParseDocument(doc.Document)
	if err != nil {
		return err
	}
	state := "was applied"
	if doc.Waits {
		state = "is pending"
	}
	switch {
	case doc.Name == "" && doc.Destroy:
		state, doc.Name = "would make these changes", "A destroy"
	case doc.Name == "":
		state, doc.Name = "is stored", doc.Digest
	}
	color := p.coloured()
	p.say("%s %s\n", paint(color, bold, doc.Name), state)
	for _, line := range []string{doc.Revision, doc.Digest, p.at(doc.At)} {
		if line != "" && line != doc.Name {
			p.say("  %s\n", paint(color, faint, line))
		}
	}
	p.say("\n")
	if v := doc.Verdict; v != nil {
		s := &sheet{colour: color}
		findings(s, v)
		p.write(s)
		p.say("\n")
	}
	for _, text := range doc.Besides() {
		for _, line := range wrap(text, 92) {
			p.say("%s\n", line)
		}
		p.say("\n")
	}
	return plan.Render(p.Stdout, d, plan.Options{Color: color, Wide: f == forWide, Limit: limit})
}

// saidAbove are the conditions whose message a description has already, in its status, its
// plans or its failure.
var saidAbove = map[string]bool{"Ready": true, "Reconciling": true, "Stalled": true, "Plan": true, "Apply": true, "Output": true, "StateLocked": true}

// conditionsAndEvents are the end of every description.
func (p *printer) conditionsAndEvents(s *sheet, conditions []query.Condition, events []query.Event) {
	if len(conditions) > 0 {
		s.heading("Conditions")
		for _, c := range conditions {
			s.line("%-14s %-8s %-32s %s", c.Type, c.Status, c.Reason, age(p.Now(), c.Since))
			if saidAbove[c.Type] {
				continue
			}
			for _, line := range wrap(c.Message, 92) {
				s.line("  %s", line)
			}
		}
	}
	if len(events) > 0 {
		s.heading("Events")
		for _, e := range events {
			s.line("%-6s %-8s %-28s %s", age(p.Now(), e.At), e.Type, e.Reason, ends(e.Message, 120))
		}
	}
}
