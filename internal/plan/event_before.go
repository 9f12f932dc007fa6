package plan

import (
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"time"
)

// Before is the one event that no engine prints: the supervisor puts it ahead of
// an apply. It names the objects that the state held then, which
// tells an object that was replaced from its replacement.
type Before struct {
	Head
	Objects map[string]bool // see objectName
}

const (
	beforeType = "terrier_before"
	beforeMost = 5000 // objects in one event

	beforeBytes = eventLine - 1<<20 // of their names as JSON, where a character may take six bytes
)

// BeforeApply returns the lines of Before events for this state; none if it
// holds nothing.
func BeforeApply(state []byte, at time.Time) ([][]byte, error) {
	held, err := objects(state)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, o := range held {
		if o.id != "" {
			names = append(names, objectName(o.kind, o.id))
		}
	}
	slices.Sort(names)
	var lines [][]byte
	for some := range batches(names) {
		line, err := json.Marshal(map[string]any{
			"@level": "debug", "@message": fmt.Sprintf("%d objects are in the state", len(held)), "@timestamp": at.UTC(),
			"type": beforeType, "objects": some,
		})
		if err != nil {
			return nil, err
		}
		lines = append(lines, line)
	}
	return lines, nil
}

// batches divides names among events, none of which is longer than readers of events read.
func batches(names []string) iter.Seq[[]string] {
	return func(yield func([]string) bool) {
		from, bytes := 0, 0
		for i, name := range names {
			size := 6 * len(name)
			if i > from && (i-from == beforeMost || bytes+size > beforeBytes) {
				if !yield(names[from:i]) {
					return
				}
				from, bytes = i, 0
			}
			bytes += size
		}
		if from < len(names) {
			yield(names[from:])
		}
	}
}

func (e wireEvent) before(line []byte, h Head) (Event, error) {
	var payload struct {
		Objects []string `json:"objects"`
	}
	if err := json.Unmarshal(line, &payload); err != nil {
		return nil, fmt.Errorf("parsing event: %w", err)
	}
	b := Before{Head: h, Objects: map[string]bool{}}
	for _, name := range payload.Objects {
		b.Objects[name] = true
	}
	return b, nil
}

// objectName names an object wherever it moves in the state.
func objectName(kind, id string) string { return kind + " " + id }
