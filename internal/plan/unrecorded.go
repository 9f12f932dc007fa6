package plan

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/stack"
)

// eventLine bounds one line of an event stream.
const eventLine = 4 << 20

// Unrecorded compares the events of an apply that did not end by itself with
// the last state that was stored, and lists what was created and is not in it:
// objects whose creation finished, with their ids, and objects whose creation
// was under way, which may exist. What was changed or destroyed is not listed:
// the next plan sees it by itself.
func Unrecorded(events io.Reader, state []byte) ([]stack.Unrecorded, error) {
	known, err := addresses(state)
	if err != nil {
		return nil, err
	}
	open := map[string]stack.Unrecorded{}
	var order []string
	lines := bufio.NewScanner(events)
	lines.Buffer(nil, eventLine)
	for lines.Scan() {
		e, err := ParseEvent(lines.Bytes())
		if err != nil {
			continue // text between events
		}
		a, ok := e.(Applied)
		if !ok || a.Action != Create {
			continue
		}
		addr := a.Resource.Address
		switch a.Stage {
		case Started:
			open[addr] = stack.Unrecorded{Address: addr}
			order = append(order, addr)
		case Completed:
			open[addr] = stack.Unrecorded{Address: addr, ID: a.IDValue, Finished: true}
		case Errored:
			delete(open, addr) // the engine knows how it ended, and recorded it
		}
	}
	if err := lines.Err(); err != nil && !errors.Is(err, bufio.ErrTooLong) {
		return nil, fmt.Errorf("reading the events: %w", err)
	}
	var out []stack.Unrecorded
	for _, addr := range order {
		if u, ok := open[addr]; ok && !known[addr] {
			out = append(out, u)
			delete(open, addr)
		}
	}
	slices.SortFunc(out, func(a, b stack.Unrecorded) int { return strings.Compare(a.Address, b.Address) })
	return out, nil
}

// addresses lists the managed resource instances of a state.
func addresses(state []byte) (map[string]bool, error) {
	known := map[string]bool{}
	if len(state) == 0 {
		return known, nil
	}
	var s struct {
		Resources []struct {
			Module, Mode, Type, Name string
			Instances                []struct {
				IndexKey json.RawMessage `json:"index_key"`
			}
		}
	}
	if err := json.Unmarshal(state, &s); err != nil {
		return nil, fmt.Errorf("reading the state: %w", err)
	}
	for _, r := range s.Resources {
		if r.Mode != "managed" {
			continue
		}
		base := r.Type + "." + r.Name
		if r.Module != "" {
			base = r.Module + "." + base
		}
		for _, i := range r.Instances {
			addr := base
			if len(i.IndexKey) > 0 {
				addr += "[" + string(i.IndexKey) + "]"
			}
			known[addr] = true
		}
	}
	return known, nil
}
