package ui

import (
	"fmt"
	"net/url"
)

// Pager says which part of a list is shown and leads to the others.
type Pager struct {
	From, To, Total int
	Noun            string
	Prev, Next      string // addresses; empty if there is none
}

// NewPager is for a list whose address is path with query; rows are counted from 0.
func NewPager(path string, params url.Values, offset, shown, limit, total int, noun string) Pager {
	p := Pager{From: offset + 1, To: offset + shown, Total: total, Noun: noun}
	if shown == 0 {
		p.From = 0
	}
	if offset > 0 {
		p.Prev = With(path, params, "offset", OffsetText(max(0, offset-limit)))
	}
	if offset+shown < total && shown > 0 {
		p.Next = With(path, params, "offset", OffsetText(offset+limit))
	}
	return p
}

// OffsetText is an offset in an address: empty for the first page.
func OffsetText(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}
