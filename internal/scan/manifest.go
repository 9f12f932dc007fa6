package scan

import (
	"encoding/base64"
	"fmt"
	"path"
	"strings"
)

// document scans one document of YAML or JSON.
func (s *scanner) document(n *node) {
	if n == nil {
		return
	}
	manifestScanner{s}.walk(place{kind: Manifest}, n)
}

// manifestScanner scans what a document of YAML or JSON holds.
type manifestScanner struct{ *scanner }

// title names an object in the path of what it holds.
func title(n *node) string {
	kind, name := n.get("kind").string(), n.get("metadata").get("name").string()
	switch {
	case kind == "" || n.get("apiVersion") == nil:
		return ""
	case name == "":
		return kind
	}
	return kind + "/" + name
}

// walk scans a value and all that it holds.
func (s manifestScanner) walk(p place, n *node) {
	switch n.kind {
	case object:
		s.object(p, n)
	case list:
		for i, item := range n.items {
			s.walk(p.below(fmt.Sprintf("[%d]", i)), item)
		}
	case text:
		s.item(p, n)
	}
}

// item scans a text in a list, which may be an argument of a program: --password=…
func (s manifestScanner) item(p place, n *node) {
	name, value, ok := strings.Cut(strings.TrimLeft(n.text, "-"), "=")
	if ok && isArgument(n.text) {
		s.check(p.below("["+name+"]"), name, unquoted(value), n.at)
		return
	}
	s.check(p, lastName(p.path), n.text, n.at)
}

// isArgument reports whether a text is NAME=VALUE, perhaps with dashes before it.
func isArgument(text string) bool {
	name, _, _ := strings.Cut(strings.TrimLeft(text, "-"), "=")
	return name != "" && !strings.ContainsAny(name, " \t\n\"'/:?&")
}

// lastName is the last name of a path, without the places in lists.
func lastName(at string) string {
	for strings.HasSuffix(at, "]") {
		at = at[:strings.LastIndexByte(at, '[')]
	}
	return at[strings.LastIndexByte(at, '.')+1:]
}

// object scans an object by its kind, and each of its fields.
func (s manifestScanner) object(p place, n *node) {
	if t := title(n); t != "" && !p.fixed {
		if p.path != "" {
			t = p.path + " " + t
		}
		p.path, p.kind = t+" ", Manifest
	}
	switch kind := n.get("kind").string(); {
	case p.fixed:
	case kind == "CustomResourceDefinition":
		return // schemas hold no values; tokens are found line by line
	case kind == "ConfigMap":
		p.kind = ConfigMap
	case kind == "Kustomization":
		s.generators(p, n)
	}
	if s.pair(p, n) {
		return
	}
	for _, e := range n.entries {
		below, name := p.below(e.key), e.key
		if name == "default" || name == "value" {
			name = lastName(p.path)
			if n.get("sensitive").isTrue() { // a variable or an output of a module
				below.all = RuleSensitive
			}
		}
		switch {
		case isSecretData(n, e):
			s.secret(below, e.value, e.key == "data")
		case e.key == "encryptedData": // of a SealedSecret
		case p.fixed && e.value.kind != text && e.value.kind != number:
			s.walk(below, e.value)
		case e.key == "env" || e.key == "envVars" || e.key == "environment":
			below.kind = Environment
			s.walk(below, e.value)
		case e.key == "vars" || e.key == "variables":
			below.kind = Variable
			s.walk(below, e.value)
		case p.kind == ConfigMap && e.key == "data":
			s.config(below, e.value)
		case e.value.kind == text || e.value.kind == number && strengthOf(name) == strong && len(e.value.text) > 3:
			s.check(below, name, e.value.text, e.value.at)
		default:
			s.walk(below, e.value)
		}
	}
}

// pair scans {name: PASSWORD, value: …}, as variables are written, and the replacements of
// JSON patches.
func (s manifestScanner) pair(p place, n *node) bool {
	value := n.get("value")
	if value == nil {
		return false
	}
	name := ""
	for _, key := range []string{"name", "key", "path"} {
		if name = n.get(key).string(); name != "" {
			break
		}
	}
	if name == "" {
		return false
	}
	p = p.below("[" + name + "]")
	switch value.kind {
	case text, number:
		if value.kind == text || strengthOf(path.Base(name)) == strong && len(value.text) > 3 {
			s.check(p, path.Base(name), value.text, value.at)
		}
	default:
		s.walk(p, value)
	}
	for _, e := range n.entries {
		if e.key != "value" && e.value.kind != text {
			s.walk(p.below(e.key), e.value)
		}
	}
	return true
}

// isSecretData reports whether a field holds the data of a Secret.
func isSecretData(n *node, e entry) bool {
	return e.value.kind == object && (e.key == "stringData" || e.key == "data" && n.get("kind").string() == "Secret")
}

// secret scans the data of a Secret: every literal counts.
func (s manifestScanner) secret(p place, n *node, encoded bool) {
	p.kind, p.all = Secret, RuleSecret
	for _, e := range n.entries {
		value := e.value.text
		if encoded {
			if decoded, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(value), "")); err == nil {
				value = string(decoded)
			}
		}
		if e.value.kind == text || e.value.kind == number {
			at := e.value.at
			at.block = at.block && !encoded
			s.check(p.below("["+e.key+"]"), e.key, value, at)
		}
	}
}

// config scans the data of a ConfigMap. Its keys may be names of files.
func (s manifestScanner) config(p place, n *node) {
	for _, e := range n.entries {
		if e.value.kind != text && e.value.kind != number {
			continue
		}
		below := p.below("[" + e.key + "]")
		if f := formOf(path.Base(e.key), nil); e.value.at.block && f != formNone && f != formText && f != formMarkdown {
			s.nested(below, f, e.value)
			continue
		}
		s.check(below, e.key, e.value.text, e.value.at)
	}
}

// nested scans a file inside a text of several lines.
func (s manifestScanner) nested(p place, f form, n *node) {
	in := &scanner{file: s.file, lines: strings.Split(n.text, "\n")}
	if err := in.scan(f, []byte(n.text)); err != nil {
		in.found = nil
		in.text(place{kind: p.kind}, n.text, 1)
	}
	for _, found := range in.found {
		found.Line += n.at.line
		found.begin = n.at.line
		if found.Kind == Manifest || found.Kind == Text {
			found.Kind = p.kind
		}
		found.At = p.path + " " + found.At
		s.found = append(s.found, found)
	}
}

// generators scans the literals from which a Kustomization makes Secrets and ConfigMaps.
func (s manifestScanner) generators(p place, n *node) {
	for _, field := range []string{"secretGenerator", "configMapGenerator"} {
		of := n.get(field)
		if of == nil {
			continue
		}
		for _, g := range of.items {
			below := p.below(field).below("[" + g.get("name").string() + "]")
			below.kind = ConfigMap
			if field == "secretGenerator" {
				below.kind, below.all = Secret, RuleSecret
			}
			literals := g.get("literals")
			if literals == nil {
				continue
			}
			for _, literal := range literals.items {
				name, value, _ := strings.Cut(literal.text, "=")
				s.check(below.below("["+name+"]"), name, unquoted(value), literal.at)
			}
			literals.items = nil // they are scanned
		}
	}
}

// unquoted is a value without the quotes around it.
func unquoted(value string) string {
	if n := len(value); n > 1 && value[0] == value[n-1] && (value[0] == '"' || value[0] == '\'') {
		return value[1 : n-1]
	}
	return value
}
