package plan

import (
	"encoding/json"
	"fmt"
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
	for some := range slices.Chunk(names, beforeMost) {
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
