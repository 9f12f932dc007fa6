package pages

import (
	"context"
	"time"
)

// Platform is what runs here, and how it was set up. Whoever wires the server
// fills it in; what is not known is left out of the page.
type Platform struct {
	Started   time.Time
	Isolation Isolation
	Engines   func(context.Context) []Engine // asked when somebody looks
	Mirror    Mirror
	Settings  []Setting
	Addresses []Address
	Checks    []Check
	MaxRuns   int           // runs at work at once
	Glass     time.Duration // how long people may work on a stack by hand; 0 if they may not at all
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
	return Setting{Name: name, Value: whole(d), Flag: flag}
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
