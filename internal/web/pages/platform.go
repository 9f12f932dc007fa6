package pages

import (
	"context"
	"time"

	"github.com/terrier-iac/terrier/internal/web/ui"
)

// Platform describes the server and its settings. The wiring of the server
// fills it in; the page leaves out what is not known.
type Platform struct {
	Started   time.Time
	Isolation Isolation
	Engines   func(context.Context) []Engine // asked for each visit
	Mirror    Mirror
	Settings  []Setting
	Addresses []Address
	Checks    []Check
	MaxRuns   int           // runs at once
	Glass     time.Duration // the longest break-glass session; 0 if none is allowed
}

// Isolation is how well a run is confined on this machine.
type Isolation struct {
	Level   string // full, kernel or basic
	Least   string // at which runs are allowed
	Reasons []string
}

// Engine is a program that runs drive.
type Engine struct {
	Name    string // as stacks choose it; empty for the one they get by themselves
	Version string
	Trouble string // why it cannot be used
	Advice  string // about its version
}

// Mirror is where providers come from; the zero Mirror is their registries.
type Mirror struct {
	Dir       string
	Providers int
}

// Setting is one limit or switch, and the flag that sets it.
type Setting struct {
	Name, Value, Flag string
}

// DurationSetting is the Setting of a duration.
func DurationSetting(name string, d time.Duration, flag string) Setting {
	return Setting{Name: name, Value: ui.Whole(d), Flag: flag}
}

// Address is where something of this server answers.
type Address struct {
	Name, URL string
}

// Check asks a part of the server whether it works.
type Check struct {
	Name string
	Ask  func(context.Context) error
}
