package command

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
)

// ApproveInManifest sets approvePlan of the stack key to plan wherever the manifest
// defines that stack. No other byte changes, so that a review shows exactly the
// approval. A document without a namespace matches any.
func ApproveInManifest(content []byte, kinds query.Kinds, key query.Key, plan string) ([]byte, error) {
	if key.Kind != "" {
		return nil, fault.New(fault.Invalid, query.ReasonManifest, fmt.Errorf("a manifest of the kind %s has no approvePlan: approve the plan without -f", key.Kind))
	}
	docs, err := query.ReadManifest(content)
	if err != nil {
		return nil, err
	}
	found := false
	// From the end, so that what is before keeps its place.
	out := content
	for i := len(docs) - 1; i >= 0; i-- {
		d := docs[i]
		if !defines(d, kinds, key) {
			continue
		}
		if out, err = setApproval(out, d, plan); err != nil {
			return nil, err
		}
		found = true
	}
	if !found {
		return nil, fault.New(fault.Invalid, query.ReasonManifest, fmt.Errorf("the manifest does not define the stack %s", key))
	}
	if err := sameBut(content, out, kinds, key, plan); err != nil {
		return nil, err
	}
	return out, nil
}

// defines reports whether a document defines the stack key.
func defines(d query.ManifestDocument, kinds query.Kinds, key query.Key) bool {
	ns, of := d.Text("metadata", "namespace"), d.Dialect(kinds)
	return of != nil && kinds.Word(of) == key.Kind && d.Text("metadata", "name") == key.Name && (ns == "" || ns == key.Namespace)
}

// setApproval edits the text of one document.
func setApproval(content []byte, d query.ManifestDocument, plan string) ([]byte, error) {
	refuse := func(why string) error {
		return fault.New(fault.Invalid, query.ReasonManifest, fmt.Errorf("approvePlan cannot be set at line %d: %s", d.Line(), why))
	}
	specKey, spec := query.Entry(d.Root, "spec")
	if spec == nil || spec.Kind != yaml.MappingNode {
		return nil, refuse("the spec is not written out in the document")
	}
	value := quoteYAML(plan)
	if k, v := query.Entry(spec, "approvePlan"); v != nil {
		switch {
		case v.Kind != yaml.ScalarNode || v.Anchor != "" || v.Style&(yaml.LiteralStyle|yaml.FoldedStyle|yaml.TaggedStyle) != 0:
			return nil, refuse("its value is not a plain text")
		case v.Value == "" && v.Style == 0:
			at := offset(content, k.Line, k.Column) + len("approvePlan") // approvePlan: with nothing after it
			colon := bytes.IndexByte(content[at:], ':')
			if colon < 0 {
				return nil, refuse("its value is not a plain text")
			}
			return splice(content, at+colon+1, 0, " "+value), nil
		}
		at := offset(content, v.Line, v.Column)
		n := scalarLength(content[at:], v)
		if n < 0 {
			return nil, refuse("its value is not a plain text")
		}
		return splice(content, at, n, value), nil
	}
	if spec.Style&yaml.FlowStyle != 0 {
		sep := ", "
		if len(spec.Content) == 0 {
			sep = ""
		}
		return splice(content, offset(content, spec.Line, spec.Column)+1, 0, "approvePlan: "+value+sep), nil
	}
	// A line of its own before the first field of the spec, indented as that is.
	first := spec.Content[0]
	if first.Line == specKey.Line {
		return nil, refuse("the spec does not begin on a line of its own")
	}
	at := offset(content, first.Line, first.Column)
	indent := strings.Repeat(" ", first.Column-1)
	return splice(content, at, 0, "approvePlan: "+value+"\n"+indent), nil
}

// scalarLength is how many bytes of text a scalar on one line takes, -1 if that
// cannot be told.
func scalarLength(text []byte, v *yaml.Node) int {
	switch {
	case v.Style&yaml.DoubleQuotedStyle != 0:
		for i := 1; i < len(text) && text[i] != '\n'; i++ {
			switch text[i] {
			case '\\':
				i++
			case '"':
				return i + 1
			}
		}
	case v.Style&yaml.SingleQuotedStyle != 0:
		for i := 1; i < len(text) && text[i] != '\n'; i++ {
			if text[i] == '\'' {
				if i+1 < len(text) && text[i+1] == '\'' {
					i++
					continue
				}
				return i + 1
			}
		}
	case bytes.HasPrefix(text, []byte(v.Value)):
		return len(v.Value)
	}
	return -1
}

// quoteYAML writes s as a scalar that is a text to every reader.
func quoteYAML(s string) string {
	b, err := yaml.Marshal(s)
	if err != nil {
		panic("command: quoting " + err.Error()) // a text always marshals
	}
	return strings.TrimSuffix(string(b), "\n")
}

// offset is where a line and column, counted in characters from 1, are.
func offset(content []byte, line, column int) int {
	at := 0
	for range line - 1 {
		at += bytes.IndexByte(content[at:], '\n') + 1
	}
	for range column - 1 {
		_, n := utf8.DecodeRune(content[at:])
		at += n
	}
	return at
}

func splice(content []byte, at, remove int, insert string) []byte {
	out := append([]byte(nil), content[:at]...)
	out = append(out, insert...)
	return append(out, content[at+remove:]...)
}

// sameBut checks that the edited manifest differs from the old one only in the
// approval.
func sameBut(before, after []byte, kinds query.Kinds, key query.Key, plan string) error {
	broken := fault.New(fault.Invalid, query.ReasonManifest, errors.New("approvePlan cannot be set without changing something else"))
	was, err := query.ReadManifest(before)
	if err != nil {
		return err
	}
	is, err := query.ReadManifest(after)
	if err != nil || len(is) != len(was) {
		return broken
	}
	for i := range is {
		var a, b map[string]any
		if was[i].Root.Decode(&a) != nil || is[i].Root.Decode(&b) != nil {
			if reflect.DeepEqual(was[i].Text(), is[i].Text()) {
				continue // not a mapping, so not a stack
			}
			return broken
		}
		if defines(was[i], kinds, key) {
			spec, ok := a["spec"].(map[string]any)
			if !ok {
				return broken
			}
			spec["approvePlan"] = plan
		}
		if !reflect.DeepEqual(a, b) {
			return broken
		}
	}
	return nil
}
