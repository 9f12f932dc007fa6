package plan

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/stack"
)

// eventLine bounds one line of an event stream.
const eventLine = 4 << 20

// Unrecorded compares the events of an apply that did not end by itself with
// the last state that was stored, and lists what was created and is not in it:
// objects whose creation finished, with their ids, and objects whose creation
// was under way, or failed because its end was not reported: they may exist.
// Changes and deletions are not listed: the next plan finds them by itself.
func Unrecorded(events io.Reader, state []byte) ([]stack.UntrackedResource, error) {
	held, err := objects(state)
	if err != nil {
		return nil, err
	}
	c, err := readCreations(events)
	if err != nil {
		return nil, err
	}
	return c.except(func(addr string) bool { return c.recorded(addr, held) }), nil
}

// Unheard lists what an engine that ended by itself, and wrote a state that we
// cannot see, does not know the end of: its provider went silent while it was
// created. It may exist, and the state does not hold it.
func Unheard(events io.Reader) ([]stack.UntrackedResource, error) {
	c, err := readCreations(events)
	if err != nil {
		return nil, err
	}
	return c.except(func(addr string) bool { return c.open[addr].Finished || c.failedForSure(addr) }), nil
}

func readCreations(events io.Reader) (*creations, error) {
	c := &creations{before: map[string]bool{}, open: map[string]*creation{}}
	err := eachLine(events, func(line []byte) {
		if e, err := ParseEvent(line); err == nil { // else it is text between events
			c.see(e)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("reading the events: %w", err)
	}
	return c, nil
}

// eachLine hands on the lines of a stream, less those that are longer than an event may be. What
// follows such a line is read all the same: it may be the only trace of a resource.
func eachLine(r io.Reader, do func(line []byte)) error {
	in := bufio.NewReader(r)
	var line []byte
	for long := false; ; {
		part, err := in.ReadSlice('\n')
		if long = long || len(line)+len(part) > eventLine; !long {
			line = append(line, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if !long && len(line) > 0 {
			do(line)
		}
		if err != nil {
			return nil
		}
		line, long = line[:0], false
	}
}

// except lists what was created, or may have been, less what is known of, by
// address.
func (c *creations) except(known func(addr string) bool) []stack.UntrackedResource {
	var out []stack.UntrackedResource
	for _, addr := range slices.Sorted(maps.Keys(c.open)) {
		if !known(addr) {
			out = append(out, c.open[addr].UntrackedResource)
		}
	}
	return out
}

// StillUnrecorded returns those of missing that a state does not hold, by their
// ids. One without an id stays: what stands at its address may be another.
func StillUnrecorded(missing []stack.UntrackedResource, state []byte) ([]stack.UntrackedResource, error) {
	held, err := objects(state)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(missing), func(u stack.UntrackedResource) bool {
		now, known := held[u.Address]
		return known && u.ID != "" && now.id == u.ID
	}), nil
}

// creations are what the events of an apply say of new objects.
type creations struct {
	before map[string]bool // what the state held ahead
	open   map[string]*creation
	silent bool // a provider did not answer, and it was not said about what
}

type creation struct {
	stack.UntrackedResource
	idKey  string
	failed bool // the engine heard an error
	over   bool // the engine has told its errors, and so had written its state
	told   bool // the error is the provider's own
	silent bool // the error is that the provider did not answer
}

func (c *creations) see(e Event) {
	switch e := e.(type) {
	case Before:
		maps.Copy(c.before, e.Objects)
	case Applied:
		c.applied(e)
	case Diagnosed:
		c.diagnosed(e.Diagnostic)
	}
}

// diagnosed takes an error. An engine tells its errors when all operations are
// over and the state is written, and those of a provider that went silent often
// without an address.
func (c *creations) diagnosed(d Diagnostic) {
	if d.Severity != "error" {
		return
	}
	lost := d.LostContact()
	c.silent = c.silent || lost && d.Address == ""
	for addr, o := range c.open {
		o.over = o.over || o.failed
		if addr == d.Address {
			o.silent, o.told = o.silent || lost, o.told || !lost
		}
	}
}

func (c *creations) applied(a Applied) {
	addr := a.Resource.Address
	if a.Action != Create {
		return
	}
	switch a.Stage {
	case Started:
		c.open[addr] = &creation{UntrackedResource: stack.UntrackedResource{Address: addr}}
	case Completed:
		c.open[addr] = &creation{UntrackedResource: stack.UntrackedResource{Address: addr, ID: a.IDValue, Finished: true}, idKey: a.IDKey}
	case Errored:
		c.open[addr] = &creation{UntrackedResource: stack.UntrackedResource{Address: addr}, failed: true}
	}
}

// failedForSure reports whether the provider itself said that it could not
// create what is at an address, and the engine had written its state by then.
func (c *creations) failedForSure(addr string) bool {
	o := c.open[addr]
	return o.failed && o.over && !o.silent && (o.told || !c.silent)
}

// recorded reports whether nothing is missing at an address: the state holds
// what was created there, or it is certain that there is no more than it holds.
func (c *creations) recorded(addr string, held map[string]object) bool {
	if c.failedForSure(addr) {
		return true
	}
	o := c.open[addr]
	now, known := held[addr]
	if !known {
		return false
	}
	if id := now.attribute(o.idKey); o.Finished && id != "" && o.ID != "" && !strings.Contains(o.ID, Mask) {
		return id == o.ID
	}
	// What stands there may be what is to be replaced.
	return !c.before[objectName(now.kind, now.id)]
}

// object is the current object of a resource instance in a state.
type object struct {
	kind       string
	id         string
	attributes map[string]json.RawMessage
}

// attribute returns the text of a top-level attribute, or nothing.
func (o object) attribute(name string) string {
	var text string
	if json.Unmarshal(o.attributes[name], &text) != nil {
		return ""
	}
	return text
}

// objects lists the managed resource instances of a state by address. One that
// is deposed is not the one that its address means.
func objects(state []byte) (map[string]object, error) {
	held := map[string]object{}
	if len(state) == 0 {
		return held, nil
	}
	var s struct {
		Resources []struct {
			Module, Mode, Type, Name string
			Instances                []struct {
				IndexKey   json.RawMessage            `json:"index_key"`
				Deposed    string                     `json:"deposed"`
				Attributes map[string]json.RawMessage `json:"attributes"`
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
			if i.Deposed != "" {
				continue
			}
			addr := base
			if len(i.IndexKey) > 0 {
				addr += "[" + string(i.IndexKey) + "]"
			}
			o := object{kind: r.Type, attributes: i.Attributes}
			o.id = o.attribute("id")
			held[addr] = o
		}
	}
	return held, nil
}
