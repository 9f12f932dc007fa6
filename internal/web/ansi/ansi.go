// Package ansi turns what a program writes for a terminal into HTML: colours
// become classes, text is escaped, and everything else is left out. It emulates
// no terminal: no cursor moves. Start with Terminal.Line.
package ansi

import (
	"html"
	"html/template"
	"strings"
	"unicode/utf8"
)

// lineBytes bounds what is shown of one line of a log.
const lineBytes = 16 << 10

// Terminal turns lines that a program wrote for a terminal into HTML. Colours and
// the like become classes of spans and go on from line to line, as they do in a
// terminal; every other command is left out. The zero Terminal is ready.
type Terminal struct{ pen pen }

// Line returns one line, without its end, as text and spans. What a carriage
// return would have written over is left out, as in a terminal.
func (a *Terminal) Line(s string) template.HTML {
	s = strings.TrimRight(s, "\r\n")
	cut := len(s) > lineBytes
	if cut {
		s = s[:lineBytes]
	}
	if i := strings.LastIndexByte(s, '\r'); i >= 0 {
		a.write(nil, s[:i]) // its colours count
		s = s[i+1:]
	}
	var b strings.Builder
	a.write(&b, s)
	if cut {
		b.WriteString("…")
	}
	return template.HTML(b.String()) // written below: escaped text, and spans with classes of ours
}

// Skip takes over the colours of a line that is not shown.
func (a *Terminal) Skip(s string) {
	if strings.ContainsAny(s, "\x1b\u009b") {
		a.write(nil, s[:min(len(s), lineBytes)])
	}
}

// write adds s to b, or only takes over its colours if b is nil.
func (a *Terminal) write(b *strings.Builder, s string) {
	ends := endsOf(s)
	for s != "" {
		n := plainLength(s)
		if n > 0 && b != nil {
			a.span(b, s[:n])
		}
		s = s[n:]
		if s == "" {
			return
		}
		k, params, ok := escapeSequence(s, ends)
		if ok {
			a.pen.set(params)
		}
		s = s[k:]
	}
}

func (a *Terminal) span(b *strings.Builder, text string) {
	class := a.pen.class()
	if class == "" {
		escapeText(b, text)
		return
	}
	b.WriteString(`<span class="` + class + `">`)
	escapeText(b, text)
	b.WriteString("</span>")
}

// escapeText writes text as HTML shows it: what is no text, or turns the
// direction of what follows, becomes a mark that it was there.
func escapeText(b *strings.Builder, text string) {
	b.WriteString(html.EscapeString(strings.Map(func(r rune) rune {
		if turns(r) {
			return utf8.RuneError
		}
		return r
	}, strings.ToValidUTF8(text, string(utf8.RuneError)))))
}

// turns reports whether r makes what follows read in another direction.
func turns(r rune) bool {
	return r == 0x061c || r == 0x200e || r == 0x200f || 0x202a <= r && r <= 0x202e || 0x2066 <= r && r <= 0x2069
}

// plainLength is how much of s comes before the next control character.
func plainLength(s string) int {
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c < ' ' && c != '\t' || c == 0x7f {
				return i
			}
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if 0x80 <= r && r <= 0x9f {
			return i
		}
		i += n
	}
	return len(s)
}

// escapeSequence returns the length of the control character or sequence that s
// begins with, and the parameters of one that chooses colours. Of a sequence
// that does not end only the start is left out: nothing is hidden by it.
func escapeSequence(s string, ends ends) (n int, params string, ok bool) {
	intro, n := introducer(s)
	switch intro {
	case '[':
		return controlSequence(s, n)
	case ']', 'P', 'X', '^', '_':
		return n + ends.stringLength(s[n:], intro == ']'), "", false
	case 0:
		return n, "", false
	default:
		// ESC, intermediate bytes and one last byte: character sets and modes.
		for n-1 < len(s) && ' ' <= s[n-1] && s[n-1] <= '/' {
			n++
		}
		if n-1 < len(s) && '0' <= s[n-1] && s[n-1] <= '~' {
			return n, "", false
		}
		return n - 1, "", false
	}
}

// introducer reads an escape, or the single character that stands for one. It
// returns 0 for a control character that begins nothing.
func introducer(s string) (intro byte, n int) {
	if s[0] == 0x1b {
		if len(s) > 1 && ' ' <= s[1] && s[1] <= '~' {
			return s[1], 2
		}
		return 0, 1
	}
	r, n := utf8.DecodeRuneInString(s)
	switch r {
	case 0x90, 0x98, 0x9b, 0x9d, 0x9e, 0x9f:
		return byte(r - 0x40), n
	}
	return 0, n
}

func controlSequence(s string, start int) (n int, params string, ok bool) {
	i := start
	for i < len(s) && '0' <= s[i] && s[i] <= '?' {
		i++
	}
	params = s[start:i]
	plain := i
	for i < len(s) && ' ' <= s[i] && s[i] <= '/' {
		i++
	}
	if i == len(s) || s[i] < '@' || s[i] > '~' {
		return start, "", false
	}
	return i + 1, params, s[i] == 'm' && i == plain && !strings.ContainsAny(params, "<=>?")
}

// ends are where a string for the terminal can end for the last time in a line,
// counted from the line's end: it is not looked for again and again in vain.
type ends struct{ string, bell int }

func endsOf(s string) ends {
	return ends{len(s) - max(strings.LastIndex(s, "\x1b\\"), strings.LastIndex(s, "\u009c")), len(s) - strings.LastIndexByte(s, 0x07)}
}

// stringLength is how long a string for the terminal is, its end included, or 0
// if it has none.
func (e ends) stringLength(s string, bell bool) int {
	if len(s) < e.string && (!bell || len(s) < e.bell) {
		return 0
	}
	for i := range len(s) {
		switch {
		case s[i] == 0x07 && bell:
			return i + 1
		case strings.HasPrefix(s[i:], "\x1b\\"), strings.HasPrefix(s[i:], "\u009c"):
			return i + 2
		}
	}
	return 0
}
