// Package prerequisite says what a stack waits for before it is planned: objects of the
// cluster, outputs of other stacks, values in files of sources, answers over HTTP and TCP.
// It reads the annotation in which users say it, judges what was found, and puts the
// judgement into words. It looks for nothing itself: the controller does, with the rights
// and the bounds of the platform.
//
// Start reading at Parse, then at Prerequisite.Judge.
package prerequisite

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Annotation is where a stack says what it waits for: a list in YAML.
const Annotation = "terrier.dev/prerequisites"

// ConditionPrefix begins the type of the condition of each prerequisite; its name follows.
const ConditionPrefix = "Prerequisite-"

// Bounds of one annotation.
const (
	maxText  = 32 << 10 // bytes
	maxItems = 32
	maxField = 1024 // bytes of one text in it
)

// Prerequisite is one thing that has to be there. Exactly one of the pointers is set.
type Prerequisite struct {
	Name   string
	Object *Object
	Output *Output
	File   *File
	HTTP   *HTTP
	TCP    *TCP
}

// Object is an object of the cluster that has to exist. With Condition, this condition of it
// has to be True; with Field, that value of it has to be Equals, or only be there.
type Object struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"` // that of the stack if empty
	Name       string `json:"name"`
	Condition  string `json:"condition,omitempty"`
	Field      string `json:"field,omitempty"` // a path: see CheckPath
	Equals     *Value `json:"equals,omitempty"`
}

// Output is an output of another stack.
type Output struct {
	Kind      string `json:"kind,omitempty"`      // of the stack; that of the own one if empty
	Namespace string `json:"namespace,omitempty"` // that of the own stack if empty
	Name      string `json:"name"`
	Key       string `json:"key"`
	Equals    *Value `json:"equals,omitempty"`
}

// File is a value in a file, YAML or JSON, of a source.
type File struct {
	Source  *Source `json:"sourceRef,omitempty"` // that of the stack if nil
	Path    string  `json:"path"`                // below the root of the source, with slashes
	Pointer string  `json:"pointer,omitempty"`   // a path: see CheckPath; empty asks for the file only
	Equals  *Value  `json:"equals,omitempty"`
	Exists  *bool   `json:"exists,omitempty"` // false: nothing may be there
}

// Source names a source.
type Source struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"` // that of the stack if empty
	Name      string `json:"name"`
}

// HTTP is an answer to a request. Redirects are not followed: the first answer counts.
type HTTP struct {
	URL          string `json:"url"`
	Method       string `json:"method,omitempty"`       // GET if empty, or HEAD
	Status       int    `json:"status,omitempty"`       // 200 if zero
	BodyContains string `json:"bodyContains,omitempty"` // in the first MiB of the answer
}

// TCP is a port that takes connections.
type TCP struct {
	Host string `json:"host"`
	Port int    `json:"port"`
}

// dnsLabel is the form of the name of a prerequisite: the type of its condition has it.
var dnsLabel = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`) })

// Parse reads a list of prerequisites in JSON. Its error begins with the place in the list,
// as in [1].tcp.port. Paths are CheckPath's to judge; nil takes every path.
func Parse(text []byte, checkPath func(string) error) ([]Prerequisite, error) {
	if len(text) > maxText {
		return nil, fmt.Errorf("has %d bytes, more than %d", len(text), maxText)
	}
	var items []json.RawMessage
	if err := json.Unmarshal(text, &items); err != nil {
		return nil, errors.New("is not a list: each item has a name, and one of object, output, file, http and tcp")
	}
	if len(items) > maxItems {
		return nil, fmt.Errorf("has %d items, more than %d", len(items), maxItems)
	}
	var all []Prerequisite
	for i, item := range items {
		p, err := parse(item, checkPath)
		if err != nil {
			return nil, fmt.Errorf("[%d]%w", i, err)
		}
		if slices.ContainsFunc(all, func(q Prerequisite) bool { return q.Name == p.Name }) {
			return nil, fmt.Errorf("[%d].name: %q is the name of another prerequisite, too", i, p.Name)
		}
		all = append(all, p)
	}
	return all, nil
}

// parse reads one item. Its error begins with the place in the item.
func parse(item json.RawMessage, checkPath func(string) error) (Prerequisite, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(item, &fields); err != nil {
		return Prerequisite{}, errors.New(": is not an object with a name, and one of object, output, file, http and tcp")
	}
	var p Prerequisite
	var kinds []string
	for _, kind := range []struct {
		name string
		into func() any
	}{
		{"object", func() any { p.Object = &Object{}; return p.Object }},
		{"output", func() any { p.Output = &Output{}; return p.Output }},
		{"file", func() any { p.File = &File{}; return p.File }},
		{"http", func() any { p.HTTP = &HTTP{}; return p.HTTP }},
		{"tcp", func() any { p.TCP = &TCP{}; return p.TCP }},
	} {
		body, there := fields[kind.name]
		if !there {
			continue
		}
		kinds = append(kinds, kind.name)
		if err := strictly(body, kind.into()); err != nil {
			return p, fmt.Errorf(".%s%w", kind.name, err)
		}
	}
	for name := range fields {
		if name != "name" && !slices.Contains(kinds, name) {
			return p, fmt.Errorf(".%.40s: there is no such field: an item has a name, and one of object, output, file, http and tcp", name)
		}
	}
	if err := json.Unmarshal(fields["name"], &p.Name); err != nil || !dnsLabel().MatchString(p.Name) {
		return p, fmt.Errorf(".name: %.80s is no name: it has at most 63 small letters, digits and dashes", shown(fields["name"]))
	}
	if len(kinds) != 1 {
		return p, fmt.Errorf(": has %d of object, output, file, http and tcp, and must have exactly one", len(kinds))
	}
	if err := p.check(checkPath); err != nil {
		return p, fmt.Errorf(".%s%w", kinds[0], err)
	}
	return p, nil
}

// shown is a value of JSON for a message.
func shown(raw json.RawMessage) string {
	if raw == nil {
		return "nothing"
	}
	return string(raw)
}

// strictly reads an object that has no other fields. Its error begins with the place in it.
func strictly(raw json.RawMessage, into any) error {
	in := json.NewDecoder(bytes.NewReader(raw))
	in.DisallowUnknownFields()
	err := in.Decode(into)
	if err == nil {
		return nil
	}
	text := strings.TrimPrefix(err.Error(), "json: ")
	if field, ok := strings.CutPrefix(text, "unknown field "); ok {
		return fmt.Errorf(".%.40s: there is no such field", strings.Trim(field, `"`))
	}
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return fmt.Errorf(": %s", text)
	}
	want := map[string]string{"string": "text", "int": "whole number", "bool": "true or a false"}[wrong.Type.String()]
	if wrong.Field == "" || want == "" {
		return fmt.Errorf(": is a %s, and must be an object", wrong.Value)
	}
	return fmt.Errorf(".%s: is a %s, and must be a %s", wrong.Field, wrong.Value, want)
}

// check reports the first field that means nothing, with its place.
func (p Prerequisite) check(checkPath func(string) error) error {
	switch {
	case p.Object != nil:
		return p.Object.check(checkPath)
	case p.Output != nil:
		return first(needs(".name", p.Output.Name), needs(".key", p.Output.Key), bounded(".namespace", p.Output.Namespace))
	case p.File != nil:
		return p.File.check(checkPath)
	case p.HTTP != nil:
		return p.HTTP.check()
	default:
		return p.TCP.check()
	}
}

func (o Object) check(checkPath func(string) error) error {
	switch {
	case o.Condition != "" && o.Field != "":
		return errors.New(": has a condition and a field, and may have one of them")
	case o.Equals != nil && o.Field == "":
		return errors.New(".field: is missing, and equals needs it")
	case strings.Contains(o.Field, "?"):
		return errors.New(".field: has a filter, by which values could be guessed: name the place of the value")
	case o.Field != "" && o.Kind == "Secret" && strings.TrimPrefix(o.APIVersion, "/") == "v1":
		return errors.New(".field: values of a Secret are not compared. Leave field and equals out to wait for the Secret")
	}
	return first(needs(".apiVersion", o.APIVersion), needs(".kind", o.Kind), needs(".name", o.Name),
		bounded(".namespace", o.Namespace), bounded(".condition", o.Condition), pathAt(".field", o.Field, checkPath))
}

func (f File) check(checkPath func(string) error) error {
	absent := f.Exists != nil && !*f.Exists
	switch {
	case f.Source != nil && (f.Source.Kind == "" || f.Source.Name == ""):
		return errors.New(".sourceRef: needs a kind and a name")
	case f.Path == "" || len(f.Path) > maxField:
		return errors.New(".path: is missing, or too long")
	case path.IsAbs(f.Path) || path.Clean(f.Path) != f.Path || f.Path == ".." || strings.HasPrefix(f.Path, "../"):
		return fmt.Errorf(".path: %.80q is no path below the root of the source, as in inventory/vlans.yaml", f.Path)
	case f.Equals != nil && f.Exists != nil:
		return errors.New(": has equals and exists, and may have one of them")
	case f.Pointer == "" && (f.Equals != nil || absent):
		return errors.New(".pointer: is missing, and equals and exists need it")
	}
	return pathAt(".pointer", f.Pointer, checkPath)
}

func (h HTTP) check() error {
	u, err := url.Parse(h.URL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || len(h.URL) > maxField:
		return fmt.Errorf(".url: %.80q is no address that begins with https://", h.URL)
	case u.User != nil:
		return errors.New(".url: has a user or a password, and an annotation must not hold one")
	case h.Method != "" && h.Method != "GET" && h.Method != head:
		return fmt.Errorf(".method: %.20q is neither GET nor HEAD", h.Method)
	case h.Status != 0 && (h.Status < 200 || h.Status > 599):
		return fmt.Errorf(".status: %d is no status of an answer, as 200 or 404", h.Status)
	case h.BodyContains != "" && h.Method == head:
		return errors.New(".bodyContains: an answer to HEAD has no body: use GET")
	}
	return bounded(".bodyContains", h.BodyContains)
}

func (t TCP) check() error {
	switch {
	case t.Host == "" || len(t.Host) > 253 || !isAddress(t.Host) && strings.ContainsAny(t.Host, "/:@ "):
		return fmt.Errorf(".host: %.80q is no name or address of a host", t.Host)
	case t.Port < 1 || t.Port > 65535:
		return fmt.Errorf(".port: %d is no port: it may be 1 to 65535", t.Port)
	}
	return nil
}

// head is the one method beside GET.
const head = "HEAD"

func isAddress(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func needs(field, value string) error {
	if value == "" {
		return fmt.Errorf("%s: is missing", field)
	}
	return bounded(field, value)
}

func bounded(field, value string) error {
	if len(value) > maxField {
		return fmt.Errorf("%s: has %d bytes, more than %d", field, len(value), maxField)
	}
	return nil
}

func pathAt(field, value string, check func(string) error) error {
	if value == "" || check == nil {
		return bounded(field, value)
	}
	if err := check(value); err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	return bounded(field, value)
}
