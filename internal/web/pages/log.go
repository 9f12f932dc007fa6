package pages

import (
	"bufio"
	"errors"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/web/ansi"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

// linesShown is how many lines of a log a page has without scripts.
const linesShown = 2000

// logBytes bounds how much of a log is read for a page.
const logBytes = 64 << 20

type logPage struct {
	Head    stackHead
	Run     string
	Href    string // of the run
	Pill    ui.Pill
	Goes    bool
	Raw     string // the address of the log as it is
	Timed   string // the address of the log with the times of its lines, which can be followed
	Times   bool   // the times of the lines are shown
	Lines   []logLine
	From    int // number of the first line that is shown
	Total   int
	Bytes   int64 // up to where the log was read
	Earlier string
	Later   string
	Newest  string
	First   string
	Steps   []logLine
	Error   string // the address of the first error; empty if there is none
	Cut     bool   // the log goes on beyond what was read
	Empty   *ui.Empty
}

type logLine struct {
	Number int
	Kind   string // head of a step, error, warning or nothing
	At     string // when it was written; empty in logs of earlier releases
	HTML   template.HTML
}

// Log shows the log of a run: its end, or the part that begins at the line from.
func Log(v *Visit) (Page, error) {
	head, err := headOf(v, tabRuns)
	if err != nil {
		return Page{}, err
	}
	run, key := v.Names["run"], v.Key()
	report, err := v.Backend.Stacks.Run(v.Context, key, run)
	if err != nil {
		return Page{}, err
	}
	p := logPage{Head: head, Run: run, Href: runPath(key, run), Pill: outcomePill(report.Outcome), Goes: report.Finished.IsZero() && report.Outcome == "",
		Raw: apiPath(key, "runs", run, "log"), Timed: ui.With(apiPath(key, "runs", run, "log"), nil, "timestamps", "true")}
	if err := p.read(v, run); err != nil {
		return Page{}, err
	}
	page := stackPage(v, "log", "Log of "+run, p)
	return page, nil
}

// read reads the log and keeps the part that is asked for.
func (p *logPage) read(v *Visit, run string) error {
	r, err := v.Backend.Stacks.Log(v.Context, v.Key(), run, query.LogOptions{Timestamps: true})
	if fault.Of(err) == fault.Missing && p.Goes {
		p.Times = true
		p.Empty = &ui.Empty{Title: "The log is empty", Text: "The run has just started."}
		return nil
	}
	if err != nil {
		return err
	}
	wanted := lineNumber(v.Query.Get("from"))
	part, err := readLog(r, wanted, p.Goes)
	if err := errors.Join(err, r.Close()); err != nil {
		return fmt.Errorf("reading the log of %s: %w", run, err)
	}
	p.Lines, p.From, p.Total, p.Bytes, p.Cut = part.lines, part.from, part.total, part.bytes, part.cut
	p.Times = p.Goes || slices.ContainsFunc(p.Lines, func(l logLine) bool { return l.At != "" })
	p.Steps = stepsOf(p.Lines)
	if part.errorAt > 0 {
		p.Error = fmt.Sprintf("#L%d", part.errorAt)
		if part.errorAt < p.From || part.errorAt >= p.From+len(p.Lines) {
			p.Error = ui.With(v.Path, nil, "from", strconv.Itoa(max(1, part.errorAt-linesShown/2))) + p.Error
		}
	}
	p.ways(v)
	if p.Total == 0 {
		p.Empty = &ui.Empty{Title: "The log is empty", Text: "The run wrote no output."}
	}
	return nil
}

// ways are the addresses of the other parts.
func (p *logPage) ways(v *Visit) {
	if p.From > 1 {
		p.First = ui.With(v.Path, nil, "from", "1")
		p.Earlier = ui.With(v.Path, nil, "from", strconv.Itoa(max(1, p.From-linesShown)))
	}
	if next := p.From + len(p.Lines); next <= p.Total {
		p.Later = ui.With(v.Path, nil, "from", strconv.Itoa(next))
		p.Newest = v.Path
	}
}

func lineNumber(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		return 0
	}
	return n
}

// logPart is some lines of a log.
type logPart struct {
	lines []logLine
	from  int
	total int
	bytes int64
	cut   bool

	errorAt int // number of the first line that is an error; 0 if none is
}

// readLog reads a whole log with its times and keeps linesShown lines of it: those from a line
// on, or the last if from is 0. While the log grows, an unfinished last line
// is left to the stream.
func readLog(r io.Reader, from int, grows bool) (logPart, error) {
	limited := &io.LimitedReader{R: r, N: logBytes}
	in := bufio.NewReaderSize(limited, 64<<10)
	var p logPart
	last := window{most: linesShown}
	for {
		line, err := readLine(in)
		if line != "" && (!grows || strings.HasSuffix(line, "\n")) {
			p.total++
			p.bytes += int64(len(line))
			at, text := query.CutLogTime(line)
			if p.errorAt == 0 && lineKind(text) == "error" {
				p.errorAt = p.total
			}
			if from == 0 || p.total < from+linesShown {
				last.add(timedLine{at, text})
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return p, err
		}
	}
	p.cut = limited.N <= 0
	lines := last.lines()
	p.from = last.count - len(lines) + 1
	if from > p.from {
		lines = lines[min(len(lines), from-p.from):]
		p.from = min(from, p.total+1)
	}
	for i, line := range lines {
		p.lines = append(p.lines, logLine{p.from + i, lineKind(line.text), line.at, last.pen.Line(line.text)})
	}
	return p, nil
}

// readLine reads a line with its end. A long one is cut where the page would cut
// it anyway, but for its end, which is read to the end of the line.
func readLine(in *bufio.Reader) (string, error) {
	var b strings.Builder
	for {
		part, err := in.ReadSlice('\n')
		b.Write(part)
		if err == bufio.ErrBufferFull {
			continue
		}
		return b.String(), err
	}
}

type timedLine struct{ at, text string }

// window is the last lines that were added to it, and the colours that the first
// of them begins with.
type window struct {
	most  int
	ring  []timedLine
	count int
	pen   ansi.Terminal
}

func (w *window) add(line timedLine) {
	if len(w.ring) < w.most {
		w.ring = append(w.ring, line)
	} else {
		w.pen.Skip(w.ring[w.count%w.most].text)
		w.ring[w.count%w.most] = line
	}
	w.count++
}

// lines are the lines in order.
func (w *window) lines() []timedLine {
	if w.count <= len(w.ring) {
		return w.ring
	}
	at := w.count % w.most
	return append(append([]timedLine{}, w.ring[at:]...), w.ring[:at]...)
}

// lineKind is what a line is, as far as that can be seen from how it begins.
func lineKind(line string) string {
	line = strings.TrimRight(line, "\r\n")
	switch {
	case strings.HasPrefix(line, "$ "), strings.HasPrefix(line, "# "):
		return "step"
	case strings.HasPrefix(line, "Error: "), strings.HasPrefix(line, "error: "), strings.HasPrefix(line, "│ Error: "):
		return "error"
	case strings.HasPrefix(line, "Warning: "), strings.HasPrefix(line, "warning: "), strings.HasPrefix(line, "│ Warning: "):
		return "warning"
	default:
		return ""
	}
}

// stepsShown bounds the links to headings.
const stepsShown = 20

// stepsOf are the headings of steps among lines.
func stepsOf(lines []logLine) []logLine {
	var out []logLine
	for _, l := range lines {
		if l.Kind == "step" && len(out) < stepsShown {
			out = append(out, l)
		}
	}
	return out
}
