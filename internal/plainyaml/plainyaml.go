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
	maxRepeated   = 8 << 20 // that the aliases of a file repeat
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

// File converts a file of a repository to JSON. What its aliases repeat is bounded.
func File(text []byte) ([]byte, error) { return Within(text, MaxFile) }

// Within is File for a text that may have as many bytes as the caller says.
func Within(text []byte, most int) ([]byte, error) {
	if err := checkFile(text, most); err != nil {
		return nil, err
	}
	return objectyaml.YAMLToJSON(text)
}

// DecodeFile reads a file into a value within the bounds of File. Numbers become texts where the
// value wants those.
func DecodeFile(text []byte, into any) error {
	if err := checkFile(text, MaxFile); err != nil {
		return err
	}
	return objectyaml.Unmarshal(text, into)
}

func checkFile(text []byte, most int) error {
	if len(text) > most {
		return fmt.Errorf("it has %d bytes, and may have %d", len(text), most)
	}
	doc, err := marked(text)
	if err != nil || doc == nil {
		return err
	}
	if bound := own(doc) + maxRepeated; weight(doc, bound, map[*yaml.Node]int{}) > bound {
		return fmt.Errorf("its aliases repeat more than %d bytes: write fewer of them", maxRepeated)
	}
	return nil
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

// own is about how many bytes a value has without what its aliases repeat.
func own(n *yaml.Node) int {
	w := size(n)
	for _, each := range n.Content {
		w += own(each)
	}
	return w
}

func size(n *yaml.Node) int { return len(n.Value) + len(n.Tag) + 8 }

// weight is about how many bytes a value has with that, or more than bound. known holds what
// was weighed; a value that contains itself weighs too much.
func weight(n *yaml.Node, bound int, known map[*yaml.Node]int) int {
	if w, ok := known[n]; ok {
		return w
	}
	known[n] = bound + 1
	w := size(n)
	if n.Kind == yaml.AliasNode {
		w = weight(n.Alias, bound, known)
	}
	for _, each := range n.Content {
		w = min(w+weight(each, bound, known), bound+1)
	}
	known[n] = w
	return w
}
