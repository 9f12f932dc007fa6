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

// printer prints answers and errors.
type printer struct{ Env }

// complain prints the error in one sentence, and the next step in another.
func (p *printer) complain(err error) {
	fmt.Fprintf(p.Stderr, "terrier: %s\n", clean(err.Error()))
	hint := command.Hint(err)
	if fault.Reason(err, "") == reasonUsage {
		hint = "To list the commands: terrier --help. For one command: terrier COMMAND --help"
	}
	if hint != "" {
		fmt.Fprintf(p.Stderr, "  %s\n", hint)
	}
}

// structured prints v if f is a format for programs.
func (p *printer) structured(f format, v any) (done bool, err error) {
	switch f {
	case forJSON:
		raw, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			return true, err
		}
		return true, p.printJSON(raw)
	case forYAML:
		raw, err := yaml.Marshal(v)
		if err != nil {
			return true, err
		}
		_, err = p.Stdout.Write(raw)
		return true, err
	default:
		return false, nil
	}
}

// printJSON prints JSON in which all characters that a terminal does not show are
// escaped; a program reads the same values.
func (p *printer) printJSON(raw []byte) error {
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
	_, err := fmt.Fprintln(p.Stdout, strings.TrimSuffix(b.String(), "\n"))
	return err
}

func surrogates(r rune) (high, low rune) {
	r -= 0x10000
	return 0xd800 + r>>10, 0xdc00 + r&0x3ff
}

// write prints a text that has been laid out.
func (p *printer) write(s *sheet) error {
	_, err := io.WriteString(p.Stdout, s.b.String())
	return err
}

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

// settled prints the status of a settled stack.
func (p *printer) settled(st query.Stack) error {
	text := fmt.Sprintf("%s: %s", st.Phase, st.Message)
	if st.Plan != nil {
		text = fmt.Sprintf("%s: %s %s", st.Phase, st.Pending, plan.Summarize(st.Plan.Changes))
	}
	_, err := fmt.Fprintln(p.Stdout, clean(text))
	return err
}

func (p *printer) printPlan(doc query.PlanDocument, f format, limit int) error {
	if f == forJSON {
		return p.printJSON(doc.Document)
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
	if _, err := fmt.Fprintf(p.Stdout, "%s %s\n", paint(color, bold, clean(doc.Name)), state); err != nil {
		return err
	}
	for _, line := range []string{doc.Revision, doc.Digest, p.at(doc.At)} {
		if line != "" && line != doc.Name {
			if _, err := fmt.Fprintf(p.Stdout, "  %s\n", paint(color, faint, clean(line))); err != nil {
				return err
			}
		}
	}
	if _, err := fmt.Fprintln(p.Stdout); err != nil {
		return err
	}
	return plan.Render(p.Stdout, d, plan.Options{Color: color, Wide: f == forWide, Limit: limit})
}

// conditionsAndEvents are the end of every description.
func (p *printer) conditionsAndEvents(s *sheet, conditions []query.Condition, events []query.Event) {
	if len(conditions) > 0 {
		s.heading("Conditions")
		for _, c := range conditions {
			s.line("%-14s %-8s %-32s %s", clean(c.Type), clean(c.Status), clean(c.Reason), age(p.Now(), c.Since))
		}
	}
	if len(events) > 0 {
		s.heading("Events")
		for _, e := range events {
			s.line("%-6s %-8s %-28s %s", age(p.Now(), e.At), clean(e.Type), clean(e.Reason), cut(clean(e.Message), 120))
		}
	}
}
