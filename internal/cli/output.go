package cli

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// format is a way to print an answer.
type format string

// The formats. Not every command has all of them.
const (
	forPeople format = ""
	forWide   format = "wide"
	forJSON   format = "json"
	forYAML   format = "yaml"
	forName   format = "name"
)

// formatFlag adds -o with the formats that a command has.
func formatFlag(c *cobra.Command, f *format, has ...format) {
	var names []string
	for _, h := range has {
		names = append(names, string(h))
	}
	c.Flags().VarP(&formatValue{f, has}, "output", "o", "one of "+strings.Join(names, ", "))
	// An error means that the flag does not exist, which it does.
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
}

type formatValue struct {
	to  *format
	has []format
}

func (v *formatValue) String() string { return string(*v.to) }
func (v *formatValue) Type() string   { return "format" }
func (v *formatValue) Set(s string) error {
	for _, h := range v.has {
		if s == string(h) {
			*v.to = h
			return nil
		}
	}
	return fmt.Errorf("there is no format %q", s)
}

// cell is one cell of a table.
type cell struct{ text, colour string }

func plain(s string) cell { return cell{text: s} }

// table is laid out by the widest cell of each column but the last.
type table struct {
	head   []string
	rows   [][]cell
	widths []int
	from   int // the first column that is shown
}

// namespaced is a table whose first column is shown only for all namespaces.
func namespaced(everywhere bool, head ...string) *table {
	if everywhere {
		return &table{head: head}
	}
	return &table{head: head[1:], from: 1}
}

func (t *table) add(cells ...cell) {
	cells = cells[t.from:]
	for i := range cells {
		cells[i].text = clean(cells[i].text)
	}
	t.rows = append(t.rows, cells)
}

// measure widens the columns to what the rows need.
func (t *table) measure() {
	if t.widths == nil {
		t.widths = make([]int, len(t.head))
		for i, h := range t.head {
			t.widths[i] = utf8.RuneCountInString(h)
		}
	}
	for _, r := range t.rows {
		for i, c := range r {
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(c.text))
		}
	}
}

// print writes the table; rows that are added later go on below it.
func (t *table) print(w io.Writer, colour bool) error {
	first := t.widths == nil
	t.measure()
	if first {
		head := make([]cell, len(t.head))
		for i, h := range t.head {
			head[i] = cell{h, bold}
		}
		t.rows = append([][]cell{head}, t.rows...)
	}
	for _, r := range t.rows {
		var b strings.Builder
		for i, c := range r {
			b.WriteString(string(paint(colour, c.colour, c.text)))
			if i < len(r)-1 {
				b.WriteString(strings.Repeat(" ", t.widths[i]-utf8.RuneCountInString(c.text)+3))
			}
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(b.String(), " ")); err != nil {
			return err
		}
	}
	t.rows = nil
	return nil
}

// sheet is a list of names and values.
type sheet struct {
	b      strings.Builder
	colour bool
}

const sheetIndent = 16

func (s *sheet) row(name, value string) {
	if value == "" {
		return
	}
	s.b.WriteString(cleanf("%s%*s%s\n", []any{paint(s.colour, bold, name+":"), max(1, sheetIndent-len(name)-1), "", value}))
}

// text adds sentences, broken into lines.
func (s *sheet) text(name, value string) {
	if value == "" {
		return
	}
	for i, line := range wrap(value, 100-sheetIndent) {
		if i == 0 {
			s.row(name, line)
			continue
		}
		fmt.Fprintf(&s.b, "%s%s\n", strings.Repeat(" ", sheetIndent), line)
	}
}

func (s *sheet) heading(name string) {
	fmt.Fprintf(&s.b, "\n%s\n", paint(s.colour, bold, name+":"))
}

func (s *sheet) line(format string, args ...any) {
	fmt.Fprintf(&s.b, "  %s\n", strings.TrimRight(cleanf(format, args), " "))
}
