package pages

import (
	"net/url"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// offsetOf is from which row on a list of total rows is shown: what the visitor
// asks for, as far as there are rows.
func offsetOf(v *Visit, total, limit int) int {
	n, err := strconv.Atoi(v.Query.Get("offset"))
	if err != nil || n < 0 || total == 0 {
		return 0
	}
	return min(n, (total-1)/limit*limit)
}

// without is a query with names left out.
func without(query url.Values, names ...string) url.Values {
	next := url.Values{}
	for k, v := range query {
		next[k] = v
	}
	for _, n := range names {
		next.Del(n)
	}
	return next
}

// joined puts texts into one list.
func joined(list, more string) string {
	if list == "" {
		return more
	}
	return list + ", " + more
}

// capital is a text with a capital at its beginning.
func capital(text string) string {
	r, n := utf8.DecodeRuneInString(text)
	if n == 0 {
		return text
	}
	return string(unicode.ToUpper(r)) + text[n:]
}

// countIn is a number in an address, 0 if the text is not one.
func countIn(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0
	}
	return n
}
