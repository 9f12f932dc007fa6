package scan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// node is a value of a document, with its line.
type node struct {
	entries []entry // of an object
	items   []*node // of a list
	text    string  // of a text, a number or a boolean
	kind    nodeKind
	at      position
}

type entry struct {
	key   string
	value *node
}

type nodeKind int

const (
	nothing nodeKind = iota // null, an alias
	object
	list
	text
	number
	boolean
)

// get is the value of a key; nil if there is none.
func (n *node) get(key string) *node {
	if n == nil {
		return nil
	}
	for _, e := range n.entries {
		if e.key == key {
			return e.value
		}
	}
	return nil
}

// string is a text, and empty for anything else.
func (n *node) string() string {
	if n == nil || n.kind != text {
		return ""
	}
	return n.text
}

// isTrue reports whether it is the boolean true.
func (n *node) isTrue() bool { return n != nil && n.kind == boolean && n.text == "true" }

// maxDepth bounds how deeply a document is nested.
const maxDepth = 500

var errDepth = fmt.Errorf("it is nested more than %d levels deep", maxDepth)

// yaml scans the documents of a file of manifests.
func (s *scanner) yaml(content []byte) error {
	d := yaml.NewDecoder(bytes.NewReader(content))
	for {
		var doc yaml.Node
		switch err := d.Decode(&doc); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("it is no YAML: %w", quiet(err))
		}
		n, err := s.ofYAML(&doc, 0)
		if err != nil {
			return err
		}
		s.document(n)
	}
}

// quiet is an error of the parser without what it quotes, which may be a secret.
func quiet(err error) error {
	var line int
	if _, scanned := fmt.Sscanf(err.Error(), "yaml: line %d:", &line); scanned == nil {
		return fmt.Errorf("line %d cannot be parsed", line)
	}
	return errors.New("it cannot be parsed")
}

func (s *scanner) ofYAML(y *yaml.Node, depth int) (*node, error) {
	if depth > maxDepth {
		return nil, errDepth
	}
	n := &node{at: position{line: y.Line, block: y.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0}}
	switch y.Kind {
	case yaml.DocumentNode:
		if len(y.Content) == 1 {
			return s.ofYAML(y.Content[0], depth)
		}
	case yaml.MappingNode:
		n.kind = object
		s.maps++
		for i := 0; i+1 < len(y.Content); i += 2 {
			v, err := s.ofYAML(y.Content[i+1], depth+1)
			if err != nil {
				return nil, err
			}
			n.entries = append(n.entries, entry{y.Content[i].Value, v})
		}
	case yaml.SequenceNode:
		n.kind = list
		for _, item := range y.Content {
			v, err := s.ofYAML(item, depth+1)
			if err != nil {
				return nil, err
			}
			n.items = append(n.items, v)
		}
	case yaml.ScalarNode:
		n.text = y.Value
		switch y.ShortTag() {
		case "!!str", "!!binary", "!!timestamp":
			n.kind = text
		case "!!int", "!!float":
			n.kind = number
		case "!!bool":
			n.kind = boolean
		}
	}
	return n, nil // an alias holds what is scanned where its anchor is
}

// jsonReader reads a document of JSON with the lines of its values.
type jsonReader struct {
	*json.Decoder
	content []byte
	offset  int64
	line    int
}

// json scans a file of JSON: manifests, or a state.
func (s *scanner) json(content []byte) error {
	return eachJSON(content, func(n *node) {
		if isState(n) {
			stateScanner{s}.state(n)
		} else {
			s.document(n)
		}
	})
}

// eachJSON reads the documents of a file of JSON.
func eachJSON(content []byte, do func(*node)) error {
	r := &jsonReader{json.NewDecoder(bytes.NewReader(content)), content, 0, 1}
	r.UseNumber()
	for {
		n, err := r.value(0)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("it is no JSON: line %d cannot be parsed", r.line)
		}
		do(n)
	}
}

// next is the next token. It moves the line to the end of it.
func (r *jsonReader) next() (json.Token, error) {
	t, err := r.Token()
	if err == nil {
		end := r.InputOffset()
		r.line += bytes.Count(r.content[r.offset:end], []byte("\n"))
		r.offset = end
	}
	return t, err
}

func (r *jsonReader) value(depth int) (*node, error) {
	t, err := r.next()
	if err != nil {
		return nil, err
	}
	if depth > maxDepth {
		return nil, errDepth
	}
	n := &node{at: position{line: r.line}}
	switch t := t.(type) {
	case string:
		n.kind, n.text = text, t
	case json.Number:
		n.kind, n.text = number, t.String()
	case bool:
		n.kind, n.text = boolean, strconv.FormatBool(t)
	case json.Delim:
		n.kind = list
		if t == '{' {
			n.kind = object
		}
		for r.More() {
			var e entry
			if n.kind == object {
				key, err := r.next()
				if err != nil {
					return nil, cut(err)
				}
				e.key = fmt.Sprint(key)
			}
			if e.value, err = r.value(depth + 1); err != nil {
				return nil, cut(err)
			}
			if n.kind == object {
				n.entries = append(n.entries, e)
			} else {
				n.items = append(n.items, e.value)
			}
		}
		if _, err := r.next(); err != nil { // the bracket that closes it
			return nil, cut(err)
		}
	}
	return n, nil
}

// cut is the error of a document that ends in the middle.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
