package cli

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/terrier-iac/terrier/internal/fault"
)

// shown reports whether a terminal shows r as it is. All other characters may
// move the cursor, change what stands on the screen, or reverse the direction
// of the text after them.
func shown(r rune) bool { return unicode.IsPrint(r) && r != utf8.RuneError }

// clean makes s one line that a terminal shows as it is: line breaks become bars, and all
// other control characters their escapes.
func clean(s string) string {
	s = fault.OneLine(s)
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), " ")
	return escape(s, false)
}

// cleanText is clean for text of several lines.
func cleanText(s string) string { return escape(s, true) }

func escape(s string, lines bool) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case lines && (r == '\n' || r == '\t'), shown(r), r == utf8.RuneError && n > 1:
			b.WriteString(s[i : i+n])
		case r == '\t':
			b.WriteByte(' ')
		case r == utf8.RuneError:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		default:
			q := strconv.QuoteRuneToASCII(r)
			b.WriteString(q[1 : len(q)-1])
		}
		i += n
	}
	return b.String()
}

// cleanWriter is cleanText for text that comes in pieces.
type cleanWriter struct {
	w    io.Writer
	rest []byte // the beginning of a character
}

func (c *cleanWriter) Write(p []byte) (int, error) {
	text := append(c.rest, p...)
	end := len(text)
	// A character has at most four bytes, so only the last three can be cut.
	for i := max(0, len(text)-utf8.UTFMax+1); i < len(text); i++ {
		if utf8.RuneStart(text[i]) && !utf8.FullRune(text[i:]) {
			end = i
			break
		}
	}
	c.rest = append([]byte(nil), text[end:]...)
	// A carriage return before a line break is only how some end their lines.
	out := strings.ReplaceAll(string(text[:end]), "\r\n", "\n")
	if _, err := io.WriteString(c.w, cleanText(out)); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (c *cleanWriter) Close() error {
	_, err := io.WriteString(c.w, cleanText(string(c.rest)))
	c.rest = nil
	return err
}

// Colours.
const (
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	bold   = "\x1b[1m"
	faint  = "\x1b[2m"
	reset  = "\x1b[0m"
)

// painted is a text that is clean except for our own colours.
type painted string

func paint(on bool, colour, text string) painted {
	text = clean(text)
	if !on || colour == "" || text == "" {
		return painted(text)
	}
	return painted(colour + text + reset)
}

// cleanf formats args, of which all texts but painted ones become clean.
func cleanf(format string, args []any) string {
	clear := slices.Clone(args)
	for i, a := range clear {
		switch a := a.(type) {
		case string:
			clear[i] = clean(a)
		case error:
			clear[i] = clean(a.Error())
		case fmt.Stringer:
			clear[i] = clean(a.String())
		}
	}
	return fmt.Sprintf(format, clear...)
}

// ends makes a message clean and at most n characters long by leaving out its
// middle: the error is mostly at its end.
func ends(s string, n int) string {
	s = clean(s)
	runes := []rune(s)
	if len(runes) <= n {
		return s
	}
	head := (n - 3) / 2
	return string(runes[:head]) + " … " + string(runes[len(runes)-(n-3-head):])
}

// cut makes a text clean and at most n characters long.
func cut(s string, n int) string {
	s = clean(s)
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

// age is how long ago t was, as kubectl puts it.
func age(now, t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return span(now.Sub(t))
}

// span is a duration in its one or two largest parts.
func span(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 10*time.Minute && int(d.Seconds())%60 != 0:
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 3*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

// wrap breaks text, made clean, at spaces into lines of at most width characters.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(clean(text)) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
