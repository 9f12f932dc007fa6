// Package ui has the small parts that every page is built of: pills, tabs,
// buttons, pagers, and the texts of times, numbers and addresses.
//
// It knows no stack, no tenant and no template: it turns plain values into
// plain values, and a page passes them to the templates in pages/parts. Start
// with Pill and Button.
package ui

// Tone is the severity of a pill, a note or a button. It only colours what
// a word and a glyph say already.
type Tone string

const (
	ToneOK    Tone = "ok"
	ToneBad   Tone = "bad"
	ToneWarn  Tone = "warn"
	ToneBusy  Tone = "busy"
	ToneDrift Tone = "drift"
	ToneIdle  Tone = "idle"
)

// Pill is a status in one word.
type Pill struct {
	Tone Tone
	Icon string // a name of the part "icon"
	Word string
}

// icons are the glyphs of tones that name none themselves.
var icons = map[Tone]string{ToneOK: "check", ToneBad: "cross", ToneWarn: "alert", ToneBusy: "turn", ToneDrift: "differs", ToneIdle: "dot"}

// NewPill is a pill with a glyph of its own.
func NewPill(tone Tone, icon, word string) Pill { return Pill{Tone: tone, Icon: icon, Word: word} }

// PillOf is a pill with the glyph of its tone.
func PillOf(tone Tone, word string) Pill { return Pill{Tone: tone, Icon: icons[tone], Word: word} }
