package plan

import (
	"io"

	"github.com/terrier-iac/terrier/internal/stack"
)

// Unseen lists what an apply of this plan may have created without an event that says so:
// the machine that it ran on is lost, and with it the newest events. What the events tell
// of is for Unrecorded. What stands in the state at the address of a replacement may be
// what is to be replaced.
func (d *Document) Unseen(events io.Reader, state []byte) ([]stack.UntrackedResource, error) {
	held, err := objects(state)
	if err != nil {
		return nil, err
	}
	told, err := readCreations(events)
	if err != nil {
		return nil, err
	}
	var out []stack.UntrackedResource
	for _, r := range d.wire.Changes {
		if r.Mode != "managed" || r.Deposed != "" || told.open[r.Address] != nil {
			continue
		}
		switch r.action() {
		case Create:
			if _, there := held[r.Address]; there {
				continue
			}
		case Replace, ForgetCreate:
		default:
			continue
		}
		out = append(out, stack.UntrackedResource{Address: r.Address})
	}
	return out, nil
}
