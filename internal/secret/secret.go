// Package secret holds a text that does not show itself: printed, logged or
// marshalled it reads "•••". Code that needs the value calls Reveal, so that every
// such place can be found.
package secret

import "log/slog"

const mask = "•••"

// Text is a secret text. The zero value is empty.
type Text struct{ value string }

// New hides s.
func New(s string) Text { return Text{s} }

// Reveal returns the text in clear. Its callers are the places to review.
func (t Text) Reveal() string { return t.value }

// Empty reports whether there is nothing to hide.
func (t Text) Empty() bool { return t.value == "" }

func (t Text) String() string               { return mask }
func (t Text) GoString() string             { return mask }
func (t Text) LogValue() slog.Value         { return slog.StringValue(mask) }
func (t Text) MarshalText() ([]byte, error) { return []byte(mask), nil }
