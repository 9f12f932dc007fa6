package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// Addresses hashes what the plan changes and how, but not into what: plans that
// do the same to the same places again and again have the same. It is empty if
// nothing changes. The example names one of the places and an attribute of it,
// and holds no value.
func (d *Document) Addresses() (digest, example string) {
	h := sha256.New()
	any := false
	for _, c := range d.Items() {
		if c.Action == Read {
			continue
		}
		fmt.Fprintf(h, "%q %q %q\n", c.Address, c.Deposed, c.Action)
		any = true
		if example == "" {
			example = c.Address + ": " + c.attribute()
		}
	}
	for _, o := range d.Outputs() {
		fmt.Fprintf(h, "output %q %q\n", o.Name, o.Action)
		any = true
		if example == "" {
			example = "output." + o.Name + ": value"
		}
	}
	if !any {
		return "", ""
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), example
}

// attribute is what of c changes, best the one that forces a replacement, next
// best one that the configuration sets.
func (c Change) attribute() string {
	best := ""
	for _, d := range c.Diffs {
		switch {
		case d.ForcesReplacement:
			return d.Path
		case best == "" || best == "id":
			best = d.Path
		}
	}
	if best == "" {
		return string(c.Action)
	}
	return best
}
