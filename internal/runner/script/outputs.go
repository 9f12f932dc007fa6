package script

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// MaxOutputs bounds the outputs that a script prints, in bytes: they become a part of an
// object of the cluster.
const MaxOutputs = 64 << 10

const (
	maxDocument = 4 * MaxOutputs // of several lines, with their indentation
	maxDepth    = 64
)

// Outputs finds the outputs in what a script prints. They are the object "outputs" of the
// last line that is a JSON object with one, or of everything it prints, if that is one
// JSON object over several lines. The zero Outputs has seen nothing.
type Outputs struct {
	all  []byte // what was printed so far
	over bool   // that is more than a document may have
	last []byte // what the last such line has
}

// Line takes a line without its end. It keeps no part of it.
func (o *Outputs) Line(line []byte) {
	if !o.over {
		o.all = append(append(o.all, line...), '\n')
	}
	if len(o.all) > maxDocument {
		o.all, o.over = nil, true
	}
	if trimmed := bytes.TrimSpace(line); len(trimmed) > 0 && trimmed[0] == '{' && bytes.Contains(trimmed, []byte(`"outputs"`)) {
		if found := outputsOf(trimmed); found != nil {
			o.last = found
		}
	}
}

// Found returns the outputs as TidyOutputs does; nil if there are none.
func (o *Outputs) Found() (json.RawMessage, error) {
	found := o.last
	if whole := outputsOf(o.all); whole != nil {
		found = whole
	}
	if found == nil {
		return nil, nil
	}
	return TidyOutputs(found)
}

// outputsOf returns the outputs of a document; nil if it has none.
func outputsOf(document []byte) []byte {
	var has struct {
		Outputs json.RawMessage `json:"outputs"`
	}
	if json.Unmarshal(document, &has) != nil || !bytes.HasPrefix(has.Outputs, []byte("{")) {
		return nil
	}
	return has.Outputs
}

// TidyOutputs returns outputs in the one form that an API server stores as it is. It
// refuses what cannot be stored.
func TidyOutputs(raw []byte) (json.RawMessage, error) {
	if len(raw) > maxLine {
		return nil, tooLarge(len(raw))
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var outputs map[string]any
	if err := dec.Decode(&outputs); err != nil {
		return nil, fmt.Errorf("reading the outputs: %w", err)
	}
	if outputs == nil || dec.More() {
		return nil, errors.New("the outputs are not one JSON object")
	}
	if err := storable(outputs, 0); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(outputs); err != nil {
		return nil, fmt.Errorf("encoding the outputs: %w", err)
	}
	if out.Len() > MaxOutputs {
		return nil, tooLarge(out.Len())
	}
	return bytes.TrimSpace(out.Bytes()), nil
}

// maxLine is the longest line that a supervisor hands on.
const maxLine = 1 << 20

func tooLarge(size int) error {
	return fmt.Errorf("the outputs have %d bytes, and at most %d are stored: print fewer", size, MaxOutputs)
}

// storable refuses numbers and depths that an API server does not read.
func storable(v any, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("the outputs are nested more than %d levels deep: print them flatter", maxDepth)
	}
	switch v := v.(type) {
	case map[string]any:
		for _, each := range v {
			if err := storable(each, depth+1); err != nil {
				return err
			}
		}
	case []any:
		for _, each := range v {
			if err := storable(each, depth+1); err != nil {
				return err
			}
		}
	case json.Number:
		if _, err := strconv.ParseFloat(v.String(), 64); err != nil {
			return fmt.Errorf("the outputs have the number %.40s, which is too large to be stored: print it as a text", v)
		}
	}
	return nil
}
