package inventory

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Value is the value of a variable, and where it is written.
type Value struct {
	// Data is nil, a bool, a string, a json.Number with all its digits, a []any or a
	// map[string]any.
	Data any
	File string // below the directory of the tenant
	Line int

	Vaulted bool // it is encrypted, or a part of it is; the encrypted part is nil in Data
	Jinja   bool // a text in it has to be evaluated by Ansible
	unfit   string
}

// parse reads the value of the one document of a file; nil for an empty one.
func parse(file string, content []byte) (*yaml.Node, error) {
	doc, err := parseDocument(file, content)
	if err != nil || doc == nil {
		return nil, err
	}
	return doc.Content[0], nil
}

// parseDocument reads the one document of a file, comments included; nil for an empty one.
func parseDocument(file string, content []byte) (*yaml.Node, error) {
	d := yaml.NewDecoder(bytes.NewReader(content))
	var doc yaml.Node
	switch err := d.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, unreadable(file, err)
	}
	var more yaml.Node
	switch err := d.Decode(&more); {
	case errors.Is(err, io.EOF):
	case err != nil:
		return nil, unreadable(file, err)
	default:
		return nil, problem(file, more.Line, "a second document begins here; Ansible reads files with one")
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		return nil, nil
	}
	return &doc, nil
}

var lineOfError = regexp.MustCompile(`^yaml: line (\d+): `)

// unreadable puts the line of the parser's error in its place.
func unreadable(file string, err error) error {
	text := err.Error()
	if m := lineOfError.FindStringSubmatch(text); m != nil {
		if line, err := strconv.Atoi(m[1]); err == nil {
			return problem(file, line, "it is no YAML: %s", strings.TrimPrefix(text, m[0]))
		}
	}
	return problem(file, 0, "it is no YAML: %s", strings.TrimPrefix(text, "yaml: "))
}

// walk converts nodes within bounds: an alias counts with all that it stands for.
type walk struct {
	file  string
	left  int
	bytes *int                // that values have so far, those of other files of the tenant included
	open  map[*yaml.Node]bool // aliases that are being followed
	value *Value              // that what is found belongs to
}

func newWalk(file string) *walk {
	return &walk{file: file, left: maxNodes, bytes: new(int), open: map[*yaml.Node]bool{}}
}

func (w *walk) fail(n *yaml.Node, format string, args ...any) error {
	return problem(w.file, n.Line, format, args...)
}

// enter counts a node, and follows an alias; leave is called when it was read.
func (w *walk) enter(n *yaml.Node, depth int) (target *yaml.Node, leave func(), err error) {
	leave = func() {}
	if w.left--; w.left < 0 {
		return nil, leave, w.fail(n, "the file has more than %d values, those that aliases repeat included", maxNodes)
	}
	if depth > maxDepth {
		return nil, leave, w.fail(n, "values are nested deeper than %d levels", maxDepth)
	}
	if n.Kind != yaml.AliasNode {
		if *w.bytes += len(n.Value); *w.bytes > maxExpanded {
			return nil, leave, w.fail(n, "the values of this tenant have more than %d bytes, those that aliases repeat included", maxExpanded)
		}
		return n, leave, nil
	}
	if n.Alias == nil || w.open[n.Alias] {
		return nil, leave, w.fail(n, "the alias *%s stands for a value that contains it", n.Value)
	}
	to := n.Alias
	if *w.bytes += len(to.Value); *w.bytes > maxExpanded {
		return nil, leave, w.fail(n, "the values of this tenant have more than %d bytes, those that aliases repeat included", maxExpanded)
	}
	w.open[to] = true
	return to, func() { delete(w.open, to) }, nil
}

// entry is one entry of a mapping, merged ones included.
type entry struct {
	name       string
	key, value *yaml.Node
}

// entries are those of a mapping, in the order of the file, with what << merges behind.
// A key that occurs twice is an error.
func (w *walk) entries(n *yaml.Node, depth int) ([]entry, error) {
	n, leave, err := w.enter(n, depth)
	defer leave()
	if err != nil {
		return nil, err
	}
	if isNull(n) {
		return nil, nil
	}
	if n.Kind != yaml.MappingNode {
		return nil, w.fail(n, "this has to be a mapping, and is %s", kindOf(n))
	}
	var out, merged []entry
	lines := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind == yaml.ScalarNode && key.Value == "<<" && key.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) == 0 {
			more, err := w.merged(value, depth+1)
			if err != nil {
				return nil, err
			}
			merged = append(merged, more...)
			continue
		}
		name, err := w.key(key, depth+1)
		if err != nil {
			return nil, err
		}
		if first, twice := lines[name]; twice {
			return nil, w.fail(key, "the key %s is there twice; the first is in line %d", quoted(name), first)
		}
		lines[name] = key.Line
		out = append(out, entry{name, key, value})
	}
	for _, e := range merged { // an own key wins, then the first that is merged
		if _, own := lines[e.name]; !own {
			lines[e.name] = e.key.Line
			out = append(out, e)
		}
	}
	return out, nil
}

// merged are the entries that a key << brings: those of a mapping, or of a list of them.
func (w *walk) merged(n *yaml.Node, depth int) ([]entry, error) {
	target, leave, err := w.enter(n, depth)
	defer leave()
	if err != nil {
		return nil, err
	}
	if target.Kind != yaml.SequenceNode {
		return w.entries(target, depth)
	}
	var out []entry
	for _, each := range target.Content {
		more, err := w.entries(each, depth+1)
		if err != nil {
			return nil, err
		}
		out = append(out, more...)
	}
	return out, nil
}

// key is the text of a key. One that YAML 1.1 takes for a truth value is refused: JSON and
// Ansible would not agree about its name.
func (w *walk) key(n *yaml.Node, depth int) (string, error) {
	n, leave, err := w.enter(n, depth)
	defer leave()
	if err != nil {
		return "", err
	}
	if n.Kind != yaml.ScalarNode {
		return "", w.fail(n, "a key has to be a text, and is %s", kindOf(n))
	}
	if isPlain(n) {
		switch plain(n.Value).(type) {
		case nil, bool, unfit:
			return "", w.fail(n, "the key %s is no text for Ansible: put it in quotes", quoted(n.Value))
		}
	}
	return n.Value, nil
}

// valueOf reads the value of one variable.
func (w *walk) valueOf(n *yaml.Node, depth int) (Value, error) {
	v := Value{File: w.file, Line: n.Line}
	w.value = &v
	defer func() { w.value = nil }()
	data, err := w.data(n, depth)
	v.Data = data
	return v, err
}

// short refuses a variable that every template and message would repeat, if it is long.
func (w *walk) short(name string, v Value) error {
	if name == addressVar || name == userVar || name == portVar || slices.Contains(macVars, name) {
		if n := len(v.text()); n > maxName {
			return problem(w.file, v.Line, "the variable %s has %d bytes, and may have %d", name, n, maxName)
		}
	}
	return nil
}

// data converts one node.
func (w *walk) data(n *yaml.Node, depth int) (any, error) {
	n, leave, err := w.enter(n, depth)
	defer leave()
	if err != nil {
		return nil, err
	}
	switch n.Kind {
	case yaml.ScalarNode:
		return w.scalar(n)
	case yaml.SequenceNode:
		if n.Style&yaml.TaggedStyle != 0 && n.Tag != "!!seq" {
			return nil, w.fail(n, "the tag %s is not known; a list has none", n.Tag)
		}
		list := make([]any, 0, len(n.Content))
		for _, each := range n.Content {
			one, err := w.data(each, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, one)
		}
		return list, nil
	case yaml.MappingNode:
		if n.Style&yaml.TaggedStyle != 0 && n.Tag != "!!map" {
			return nil, w.fail(n, "the tag %s is not known; a mapping has none", n.Tag)
		}
		entries, err := w.entries(n, depth)
		if err != nil {
			return nil, err
		}
		out := make(map[string]any, len(entries))
		for _, e := range entries {
			if out[e.name], err = w.data(e.value, depth+1); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return nil, w.fail(n, "this is no value")
}

// scalar converts a scalar by its tag, or by what its text is like.
func (w *walk) scalar(n *yaml.Node) (any, error) {
	if n.Style&yaml.TaggedStyle != 0 {
		switch n.Tag {
		case "!vault", "!vault-encrypted":
			w.value.Vaulted = true
			return nil, nil
		case "!unsafe":
			return n.Value, nil // Ansible evaluates no Jinja in it
		case "!!str":
			return w.jinja(n.Value), nil
		case "!!int", "!!float", "!!bool", "!!null":
			return w.fit(plain(n.Value)), nil
		default:
			return nil, w.fail(n, "the tag %s is not known; Terrier reads !vault and !unsafe", n.Tag)
		}
	}
	if !isPlain(n) {
		return w.jinja(n.Value), nil
	}
	return w.fit(plain(n.Value)), nil
}

func (w *walk) fit(v any) any {
	switch v := v.(type) {
	case unfit:
		if w.value.unfit == "" {
			w.value.unfit = v.why
		}
		return nil
	case string:
		return w.jinja(v)
	}
	return v
}

// jinja notes that Ansible would evaluate a text.
func (w *walk) jinja(text string) string {
	if strings.Contains(text, "{{") || strings.Contains(text, "{%") {
		w.value.Jinja = true
	}
	return text
}

func isPlain(n *yaml.Node) bool {
	return n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) == 0
}

func isNull(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && isPlain(n) && n.Style&yaml.TaggedStyle == 0 && nullPattern.MatchString(n.Value)
}

func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.ScalarNode:
		return "the value " + quoted(n.Value)
	case yaml.AliasNode:
		return "an alias"
	}
	return "something else"
}

// quoted shows a text of a file: cut, and with nothing that moves a cursor.
func quoted(s string) string {
	const most = 80
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return fmt.Sprintf("%q", s)
}
