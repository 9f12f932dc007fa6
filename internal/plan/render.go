package plan

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/terrier-iac/terrier/internal/plural"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Options of Render.
type Options struct {
	Color bool
	Wide  bool // whole values, and the attributes of what is destroyed
	Limit int  // resource instances shown; 0 shows all
}

// group is one heading of a rendered plan.
type group struct {
	action Action
	title  string
	past   string // the title when it is not planned but found
	mark   string
	color  string
}

// groups are in the order of how much there is to lose.
var groups = []group{
	{Delete, "Destroy", "Deleted", "-", red},
	{Replace, "Replace", "Replaced", "-/+", red},
	{ForgetCreate, "Forget and create", "Forgotten and created", ".+", yellow},
	{Update, "Update", "Changed", "~", yellow},
	{Create, "Create", "Created", "+", green},
	{Import, "Import", "Imported", "<-", green},
	{Move, "Move", "Moved", "=>", ""},
	{Forget, "Forget", "Forgotten", ".", yellow},
	{Read, "Read", "Read", "<=", ""},
}

const (
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	bold   = "\x1b[1m"
	faint  = "\x1b[2m"
	reset  = "\x1b[0m"
)

// Render writes a plan for people: what is destroyed first, sensitive values
// masked, and nothing in it that a terminal would take for a command.
func Render(w io.Writer, d *Document, o Options) error {
	p := printer{Options: o}
	p.groups(d.Items(), false)
	p.outputs(d.Outputs())
	if drift := d.Drift(); len(drift) > 0 {
		p.line(p.paint(bold, "Changed outside since the last run"))
		p.groups(drift, true)
	}
	p.checkBlocks(d.CheckBlocks())
	if d.Errored() {
		p.line(p.paint(red, "Planning ended in an error: this is only a part of the plan."))
	}
	p.line(p.paint(bold, Summarize(d.Changes())))
	_, err := w.Write(p.out.Bytes())
	return err
}

// Summarize puts counts into one sentence, the engine's where it has one.
func Summarize(c stack.Changes) string {
	if c.None() {
		return "No changes."
	}
	var parts []string
	count := func(n int, always bool, what string) {
		if n > 0 || always {
			parts = append(parts, strconv.Itoa(n)+" to "+what)
		}
	}
	count(c.Import, false, "import")
	count(c.Add, true, "add")
	count(c.Change, true, "change")
	count(c.Destroy, true, "destroy")
	count(c.Forget, false, "forget")
	count(c.Move, false, "move")
	text := "Plan: " + strings.Join(parts, ", ") + "."
	switch {
	case c.Outputs == 1:
		text += " 1 output changes."
	case c.Outputs > 1:
		text += fmt.Sprintf(" %d outputs change.", c.Outputs)
	}
	return text
}

// printer lays out a plan.
type printer struct {
	Options
	out   bytes.Buffer
	shown int
}

func (p *printer) line(parts ...string) {
	for _, part := range parts {
		p.out.WriteString(part)
	}
	p.out.WriteByte('\n')
}

func (p *printer) paint(color, text string) string {
	if !p.Color || color == "" {
		return text
	}
	return color + text + reset
}

func (p *printer) groups(changes []Change, found bool) {
	indent := ""
	if found {
		indent = "  "
	}
	byAction := map[Action][]Change{}
	for _, c := range changes {
		byAction[c.Action] = append(byAction[c.Action], c)
	}
	for _, g := range groups {
		list := byAction[g.action]
		if len(list) == 0 {
			continue
		}
		title := g.title
		if found {
			title = g.past
		}
		p.line(indent, p.paint(bold, fmt.Sprintf("%s (%d)", title, len(list))))
		for i, c := range list {
			if p.Limit > 0 && p.shown >= p.Limit {
				p.line(indent, fmt.Sprintf("  … and %d more", len(list)-i))
				break
			}
			p.shown++
			p.change(g, c, indent+"  ")
		}
		p.line()
	}
}

func (p *printer) change(g group, c Change, indent string) {
	mark := g.mark
	if c.CreateFirst {
		mark = "+/-"
	}
	text := clean(c.Address)
	if c.Deposed != "" {
		text += " (deposed " + clean(c.Deposed) + ")"
	}
	p.line(indent, p.paint(g.color, mark+" "+text), p.paint(faint, notes(c)))
	if c.Action == Delete && !p.Wide || c.Action == Forget || c.Action == Move {
		return
	}
	for _, d := range c.Diffs {
		p.diff(d, clean(d.Path)+": ", indent+strings.Repeat(" ", len(mark)+1))
	}
}

// notes says what else there is to know about a change.
func notes(c Change) string {
	var parts []string
	if c.Previous != "" {
		parts = append(parts, "moved from "+clean(c.Previous))
	}
	if c.Import != "" {
		parts = append(parts, "imported by "+clean(shorten(c.Import, 80)))
	}
	if c.Reason != "" {
		parts = append(parts, reason(c.Reason))
	}
	if parts == nil {
		return ""
	}
	return "  # " + strings.Join(parts, "; ")
}

func (p *printer) outputs(list []OutputChange) {
	if len(list) == 0 {
		return
	}
	p.line(p.paint(bold, fmt.Sprintf("Outputs (%d)", len(list))))
	for _, o := range list {
		p.diff(o.Diff, clean(o.Name)+": ", "  ")
	}
	p.line()
}

// checkBlocks are those that fail; they do not prevent an apply.
func (p *printer) checkBlocks(c stack.CheckBlocks) {
	if len(c.Failed) == 0 {
		return
	}
	p.line(p.paint(bold, fmt.Sprintf("Failing check blocks (%d)", len(c.Failed)+c.More)))
	for _, b := range c.Failed {
		p.line("  ", p.paint(yellow, "! "+clean(b.Address)), "  ", clean(b.Message))
	}
	if c.More > 0 {
		p.line(fmt.Sprintf("  … and %d more", c.More))
	}
	p.line()
}

func (p *printer) diff(d Diff, label, indent string) {
	before, after := p.value(d.Before, d.Sensitive), p.value(d.After, d.Sensitive)
	if d.Unknown {
		after = "(known after apply)"
	}
	suffix := ""
	if d.ForcesReplacement {
		suffix = p.paint(red, "  # forces replacement")
	}
	switch {
	case d.Before == nil && (d.After != nil || d.Unknown):
		p.line(indent, p.paint(green, "+ "), label, after, suffix)
	case d.After == nil && !d.Unknown:
		p.line(indent, p.paint(red, "- "), label, before, suffix)
	case d.Sensitive && !d.Unknown:
		p.line(indent, p.paint(yellow, "~ "), label, Mask, suffix)
	case p.manyLines(d):
		p.line(indent, p.paint(yellow, "~ "), strings.TrimSuffix(label, " "), suffix)
		p.texts(d.Before.(string), d.After.(string), indent+"    ")
	default:
		p.line(indent, p.paint(yellow, "~ "), label, before, " → ", after, suffix)
	}
}

// manyLines reports whether a change is from one text to another, of which one has
// several lines: on one line, what differs would be lost among what does not.
func (p *printer) manyLines(d Diff) bool {
	before, ok := d.Before.(string)
	after, also := d.After.(string)
	return ok && also && !d.Unknown && !d.Sensitive && (strings.Contains(before, "\n") || strings.Contains(after, "\n"))
}

const (
	linesAround = 2       // of what stays, before and after each change
	linesMost   = 40      // of one change; Wide has no bound
	linesWork   = 1 << 20 // bounds the comparison of two texts
)

// texts prints the lines in which two texts differ, and some around them.
func (p *printer) texts(before, after, indent string) {
	lines := CompareLines(strings.Split(before, "\n"), strings.Split(after, "\n"), func(b, a int) bool { return b*a > linesWork })
	near := func(i int) bool {
		return slices.ContainsFunc(lines[max(0, i-linesAround):min(len(lines), i+linesAround+1)], func(l Line) bool { return l.Sign != ' ' })
	}
	colours := map[byte]string{'+': green, '-': red, ' ': faint}
	shown, skipped := 0, false
	for i, l := range lines {
		if !near(i) {
			skipped = true
			continue
		}
		if shown == linesMost && !p.Wide {
			p.line(indent, p.paint(faint, "… more lines differ: -o wide shows all"))
			return
		}
		if skipped {
			p.line(indent, p.paint(faint, "…"))
		}
		skipped = false
		shown++
		p.line(indent, p.paint(colours[l.Sign], string(l.Sign)+" "+clean(shorten(l.Text, 200))))
	}
	if skipped {
		p.line(indent, p.paint(faint, "…"))
	}
}

// value prints one value on one line. The mask of a sensitive value stands
// without quotes, so that a text of the same letters cannot pass for one.
func (p *printer) value(v any, sensitive bool) string {
	if sensitive && v == Mask {
		return Mask
	}
	limit := 100
	if p.Wide {
		limit = 2000
	}
	if s, ok := v.(string); ok {
		return quote(shorten(s, limit))
	}
	return clean(shorten(string(encode(v)), limit))
}

// quote puts s in quotes and everything that does not print into escapes:
// control bytes, terminal sequences, and the marks that reverse the direction
// of what follows.
func quote(s string) string { return strconv.Quote(s) }

// clean is quote for text that stands without quotes.
func clean(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) {
		return s
	}
	q := strconv.Quote(s)
	return strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(q[1 : len(q)-1])
}

// size is a number of bytes for people.
func size(n int) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	default:
		return plural.Count(n, "byte")
	}
}
