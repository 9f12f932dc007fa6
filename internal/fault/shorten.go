package fault

import "unicode/utf8"

// cutOut stands for the middle of a text that is too long.
const cutOut = " … "

// Shorten returns a text of at most this many bytes, in whole characters. It leaves
// out the middle: the beginning says what was done, and the end what went wrong.
func Shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	head := max(0, (most-len(cutOut))/2)
	tail := min(len(text), len(text)-(most-len(cutOut)-head))
	for head > 0 && !utf8.RuneStart(text[head]) {
		head--
	}
	for tail < len(text) && !utf8.RuneStart(text[tail]) {
		tail++
	}
	return text[:head] + cutOut + text[tail:]
}
