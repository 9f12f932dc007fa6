package ui

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Revision shortens the name of a revision: what it is called by, and as much of
// the digest as people compare.
func Revision(s string) string {
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

// Cut shortens a text to n characters and says so with an ellipsis.
func Cut(n int, s string) string {
	runes := 0
	for i := range s {
		if runes == n {
			return strings.TrimRight(s[:i], " ") + "…"
		}
		runes++
	}
	return s
}

// Ends shortens a message to n characters by leaving out its middle: the error is
// mostly at its end.
func Ends(n int, s string) string {
	runes := []rune(s)
	if len(runes) <= n {
		return s
	}
	head := n / 2
	return strings.TrimRight(string(runes[:head]), " ") + " … " + strings.TrimLeft(string(runes[len(runes)-(n-head):]), " ")
}

// Thousands is a number in groups of three.
func Thousands(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Joined puts texts into one list.
func Joined(list, more string) string {
	if list == "" {
		return more
	}
	return list + ", " + more
}

// Capital is a text with a capital at its beginning.
func Capital(text string) string {
	r, n := utf8.DecodeRuneInString(text)
	if n == 0 {
		return text
	}
	return string(unicode.ToUpper(r)) + text[n:]
}

// begins reports whether errors begin with a word. Any other first word may be a name, such
// as that of a user, and stays as it is.
func begins(word string) bool {
	switch word {
	case "a", "an", "another", "each", "every", "it", "no", "nothing", "only", "stack", "the", "there", "this", "to", "you", "your":
		return true
	}
	return false
}

// Sentence is the text of an error with a capital at its beginning, unless it begins
// with a name, such as apps/net, spec.path or ann.
func Sentence(text string) string {
	if word, _, _ := strings.Cut(text, " "); !begins(word) {
		return text
	}
	return Capital(text)
}

// Quoted is a text in quotes, with escapes for what does not print.
func Quoted(s string) string { return strconv.Quote(s) }

// Visible is a text with escapes for what does not print: no mark in it turns
// the direction of what follows, or hides.
func Visible(s string) string {
	if !strings.ContainsFunc(s, hides) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if hides(r) {
			q := strconv.QuoteRune(r)
			b.WriteString(q[1 : len(q)-1])
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func hides(r rune) bool { return r != '\t' && (!unicode.IsPrint(r) || r == unicode.ReplacementChar) }
