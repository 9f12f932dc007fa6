package planview

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

// Bounds of what is shown of one value. The text of a plan has all of it.
const (
	shortValue  = 160     // bytes that stand on one line
	valueLines  = 300     // of a value that takes several
	valueBytes  = 8 << 10 // of one line of it
	comparisons = 1 << 20 // of lines, to find out which of two texts are the same
	around      = 3       // lines that are shown around what differs
)

// Attribute is what happens to one attribute.
type Attribute struct {
	ID     string // of an output
	Name   string // likewise
	Path   string
	Tone   ui.Tone
	Mark   string // + - ~
	Word   string // what the mark says, for those who hear the page
	Before *Value
	After  *Value
	Forces bool
	Hidden bool    // what differs is masked, so that both sides look the same
	Blocks []Block // of a long text, instead of Before and After
	Left   int     // lines that there was no room for
}

// Value is one side of an attribute.
type Value struct {
	Text string
	Note bool // it says something about the value
}

// Block is lines in a row with the same mark.
type Block struct {
	Lines []Line
	Fold  int // lines that stay as they are and are not shown at once
}

// Line is one line of a long text.
type Line struct {
	Tone ui.Tone
	Mark string
	Text string
}

// AttributeOf is how a difference is shown.
func AttributeOf(d plan.Diff) Attribute {
	a := Attribute{Path: ui.Visible(d.Path), Forces: d.ForcesReplacement}
	switch {
	case d.Before == nil && (d.After != nil || d.Unknown):
		a.Tone, a.Mark, a.Word = ui.ToneOK, "+", "added"
	case d.After == nil && !d.Unknown:
		a.Tone, a.Mark, a.Word = ui.ToneBad, "-", "removed"
	default:
		a.Tone, a.Mark, a.Word = ui.ToneWarn, "~", "changed"
	}
	a.Hidden = d.Sensitive && a.Mark == "~" && !d.Unknown
	before, after := linesOf(d.Before), linesOf(d.After)
	if !a.Hidden && !d.Sensitive && (len(before) > 1 || len(after) > 1) && (!d.Unknown || len(before) > 1) {
		a.Blocks, a.Left = folded(compare(before, after))
		if d.Unknown {
			a.After = &Value{knownLater, true}
		}
		return a
	}
	a.Before, a.After = valueOf(d.Before, d.Sensitive), valueOf(d.After, d.Sensitive)
	if d.Unknown {
		a.After = &Value{knownLater, true}
	}
	return a
}

const (
	knownLater = "known after apply"
	masked     = "sensitive"
)

func valueOf(v any, sensitive bool) *Value {
	switch {
	case v == nil:
		return nil
	case sensitive && v == plan.Mask:
		return &Value{masked, true}
	}
	if s, ok := v.(string); ok {
		return &Value{Text: ui.Quoted(s)}
	}
	return &Value{Text: ui.Visible(compact(v))}
}

// linesOf is a value as lines: a text as it is, anything else laid out. What
// fits on one line is one.
func linesOf(v any) []string {
	var text string
	switch v := v.(type) {
	case nil:
		return nil
	case string:
		if !strings.Contains(v, "\n") && len(v) <= shortValue {
			return []string{v}
		}
		text = strings.TrimSuffix(v, "\n")
	case map[string]any, []any:
		text = compact(v)
		if len(text) > shortValue {
			text = indented(v)
		}
	default:
		text = compact(v)
	}
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if len(l) > valueBytes {
			l = strings.ToValidUTF8(l[:valueBytes], "") + "…"
		}
		lines[i] = ui.Visible(l)
	}
	return lines
}

func compact(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return "" // values that came from JSON always encode
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func indented(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if e.Encode(v) != nil {
		return ""
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// compare says of each line of two texts whether it is removed, added or unchanged.
func compare(before, after []string) []Line {
	found := plan.CompareLines(before, after, func(before, after int) bool { return before*after > comparisons })
	out := make([]Line, 0, len(found))
	for _, l := range found {
		out = append(out, Line{lineTones[l.Sign], string(l.Sign), l.Text})
	}
	return out
}

var lineTones = map[byte]ui.Tone{'-': ui.ToneBad, '+': ui.ToneOK}

// folded hides unchanged lines where nothing near them differs. It
// returns how many lines there was no room for.
func folded(list []Line) (blocks []Block, left int) {
	shown := make([]bool, len(list))
	for i, l := range list {
		if l.Mark == " " {
			continue
		}
		for k := max(0, i-around); k <= min(len(list)-1, i+around); k++ {
			shown[k] = true
		}
	}
	room := valueLines
	for i := 0; i < len(list); {
		end := i
		for end < len(list) && shown[end] == shown[i] {
			end++
		}
		part := list[i:end]
		fold := !shown[i] && len(part) > 1
		if len(part) > room {
			return append(blocks, Block{Lines: slices.Clone(part[:room])}), len(list) - i - room
		}
		room -= len(part)
		b := Block{Lines: part}
		if fold {
			b.Fold = len(part)
		}
		blocks = append(blocks, b)
		i = end
	}
	return blocks, 0
}
