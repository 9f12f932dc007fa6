// Package plainyaml reads YAML of users within bounds. A small text can stand for
// gigabytes: each alias repeats what its anchor marks, and JSON has no aliases. So a text
// is checked before it becomes JSON.
package plainyaml

import (
	"bytes"
	"errors"
	"fmt"

	"go.yaml.in/yaml/v3"
	objectyaml "sigs.k8s.io/yaml"
)

// Bounds in bytes.
const (
	MaxAnnotation = 32 << 10
	MaxFile       = 1 << 20
	maxExpanded   = 8 << 20 // of a file, what its aliases repeat included
)

// Annotation converts the text of an annotation to JSON. A key that is there twice is an
// error, and so is an anchor or an alias.
func Annotation(text string) ([]byte, error) {
	if err := checkAnnotation(text); err != nil {
		return nil, err
	}
	return objectyaml.YAMLToJSONStrict([]byte(text))
}

// Decode reads the text of an annotation, as Annotation does, into a value. A field that
// the value does not have is an error.
func Decode(text string, into any) error {
	if err := checkAnnotation(text); err != nil {
		return err
	}
	return objectyaml.UnmarshalStrict([]byte(text), into)
}

// File converts a file of a repository to JSON. Its aliases count with all that they repeat.
func File(text []byte) ([]byte, error) {
	if len(text) > MaxFile {
		return nil, fmt.Errorf("it has %d bytes, and may have %d", len(text), MaxFile)
	}
	doc, err := marked(text)
	if err != nil {
		return nil, err
	}
	if doc != nil && weight(doc, map[*yaml.Node]int{}) > maxExpanded {
		return nil, fmt.Errorf("with what its aliases repeat it has more than %d bytes: write fewer of them", maxExpanded)
	}
	return objectyaml.YAMLToJSON(text)
}

func checkAnnotation(text string) error {
	if len(text) > MaxAnnotation {
		return fmt.Errorf("it has %d bytes, and may have %d", len(text), MaxAnnotation)
	}
	doc, err := marked([]byte(text))
	if err != nil || doc == nil {
		return err
	}
	return refuseAnchors(doc)
}

// marked parses a text that may have anchors. It is nil for one that has none: only an
// ampersand begins an anchor, and an alias without its anchor is an error of each parser.
func marked(text []byte) (*yaml.Node, error) {
	if !bytes.ContainsRune(text, '&') {
		return nil, nil
	}
	doc := &yaml.Node{}
	if err := yaml.Unmarshal(text, doc); err != nil {
		return nil, err
	}
	return doc, nil
}

func refuseAnchors(n *yaml.Node) error {
	if n.Anchor != "" || n.Kind == yaml.AliasNode {
		return errors.New("it has an anchor or an alias (& or *): write the value out, or put the text in quotes")
	}
	for _, each := range n.Content {
		if err := refuseAnchors(each); err != nil {
			return err
		}
	}
	return nil
}

// weight is about how many bytes a value has, or more than maxExpanded. known holds what
// was weighed; a value that contains itself weighs too much.
func weight(n *yaml.Node, known map[*yaml.Node]int) int {
	if w, ok := known[n]; ok {
		return w
	}
	known[n] = maxExpanded + 1
	w := len(n.Value) + len(n.Tag) + 8
	if n.Kind == yaml.AliasNode {
		w = weight(n.Alias, known)
	}
	for _, each := range n.Content {
		w = min(w+weight(each, known), maxExpanded+1)
	}
	known[n] = w
	return w
}
