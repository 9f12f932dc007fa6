package ui

import (
	"time"
)

// Moment is a time as seen from now.
type Moment struct {
	Now, At time.Time
}

// Tabs are links between the parts of one thing.
type Tabs struct {
	Label string // what they are of, for those who hear the page
	Items []Tab
}

// Tab is one of them.
type Tab struct {
	Name    string
	Href    string
	Count   int // shown if not zero
	Current bool
	Why     string // why the visitor may not open it; the tab is marked, and shows this
}

// Button is a form of one button.
type Button struct {
	Label  string
	To     string            // the address that it posts to
	Href   string            // the address that it leads to: then it is a link, and posts nothing
	Fields map[string]string // what it carries along
	Look   string            // primary, danger or empty
	Why    string            // why it cannot be used now; it is shown, disabled, with this reason
	Name   string            // says what it acts on, for those who hear the page; empty if that is plain
}

// Empty is shown in place of an empty list.
type Empty struct {
	Title   string
	Text    string
	Command string // to copy
	Href    string // of a link, named Link
	Link    string
}
