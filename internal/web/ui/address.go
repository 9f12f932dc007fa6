package ui

import (
	"net/url"
	"strconv"
	"strings"
)

// With is the address path with one value of the query changed; an empty value
// removes it. The sentence about an earlier action is never carried along.
func With(path string, params url.Values, name string, values ...string) string {
	next := url.Values{}
	for k, v := range params {
		if k != name && k != "done" {
			next[k] = v
		}
	}
	for _, v := range values {
		if v != "" {
			next.Add(name, v)
		}
	}
	if len(next) == 0 {
		return path
	}
	return path + "?" + next.Encode()
}

// Anchor is the part of an id that an address becomes: readable, and never the
// same for two addresses.
func Anchor(s string) string {
	const hex = "0123456789abcdef"
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-', c == '.':
			b.WriteByte(c)
		default:
			b.WriteString(":" + string(hex[c>>4]) + string(hex[c&15]))
		}
	}
	return b.String()
}

// PathOf builds a path of ours, each part escaped.
func PathOf(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString("/" + url.PathEscape(p))
	}
	return b.String()
}

// Without is a query with names left out.
func Without(query url.Values, names ...string) url.Values {
	next := url.Values{}
	for k, v := range query {
		next[k] = v
	}
	for _, n := range names {
		next.Del(n)
	}
	return next
}

// CountIn is a number in an address, 0 if the text is not one.
func CountIn(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0
	}
	return n
}
