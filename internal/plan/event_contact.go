package plan

import (
	"slices"
	"strings"
)

// noContact is how engines say that they cannot talk to a provider, in the
// words of their plugin library or their own.
var noContact = []string{
	"Reattachment process not found", "Unrecognized remote plugin message", "Plugin did not respond", "plugin crashed",
	"Failed to load plugin schemas", "Failed to obtain provider schema", "failed to instantiate provider",
	"no supported plugins for protocol", "Incompatible API version", "error reading from server", "transport is closing",
	"dial unix", "Request cancelled",
}

// LostContact reports whether the error is that a provider could not be talked
// to, or stopped answering. What was asked of it then may have been done.
func (d Diagnostic) LostContact() bool {
	text := d.Summary + "\n" + d.Detail
	return d.Severity == "error" && slices.ContainsFunc(noContact, func(s string) bool { return strings.Contains(text, s) })
}
