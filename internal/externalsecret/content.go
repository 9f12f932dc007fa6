package externalsecret

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/tenant/rendering"
)

// Read is one secret that has to be read, whatever is taken of it.
type Read struct {
	Path    string // mount and path, as the command line of Vault has it
	Version int    // 0 is the newest
}

func (r Read) String() string {
	if r.Version == 0 {
		return r.Path
	}
	return fmt.Sprintf("%s@%d", r.Path, r.Version)
}

// Value is what a secret of Vault holds. The zero Value is one that is not there.
type Value struct {
	Whole json.RawMessage // the object
}

// read is the secret that a reference is about. Mount is that of the store, and may be
// empty: the first part of the key is the mount then. Keys may have it, and the part data
// of a store with versions, in them, as External Secrets Operator accepts.
func (r RemoteRef) read(mount string) Read {
	mount = strings.Trim(mount, "/")
	parts := strings.Split(strings.Trim(r.Key, "/"), "/")
	var path []string
	if mount != "" && parts[0] != mount {
		path = append(path, mount)
	} else {
		path, parts = parts[:1:1], parts[1:]
		if len(parts) > 1 && parts[0] == "data" {
			parts = parts[1:]
		}
	}
	n, _ := r.version() // checked
	return Read{strings.Join(append(path, parts...), "/"), n}
}

// Reads are the secrets that have to be read, each once.
func (s Spec) Reads(mount string) []Read {
	var all []Read
	add := func(r RemoteRef) {
		if read := r.read(mount); !slices.Contains(all, read) {
			all = append(all, read)
		}
	}
	for _, d := range s.DataFrom {
		add(*d.Extract)
	}
	for _, d := range s.Data {
		add(d.RemoteRef)
	}
	return all
}

// Content is what the Secret is to hold.
type Content struct {
	Data map[string][]byte
	Gone []string // what is not in Vault, in words
	Left bool     // something of it is in Vault
}

// Assemble makes the content of what was read. Errors hold no values.
func (s Spec) Assemble(mount string, values map[Read]Value) (Content, error) {
	out := Content{Data: map[string][]byte{}}
	take := func(r RemoteRef) (json.RawMessage, bool, error) {
		read := r.read(mount)
		whole := values[read].Whole
		if len(whole) == 0 {
			out.Gone = append(out.Gone, "the secret "+read.String())
			return nil, false, nil
		}
		part, ok, err := property(whole, r.Property)
		if err != nil {
			return nil, false, fault.New(fault.Broken, "", fmt.Errorf("the secret %s: %w", read, err))
		}
		if !ok {
			out.Gone = append(out.Gone, fmt.Sprintf("the key %.80q of the secret %s", r.Property, read))
			return nil, false, nil
		}
		out.Left = true
		return part, true, nil
	}
	for _, d := range s.DataFrom {
		part, ok, err := take(*d.Extract)
		if err != nil {
			return Content{}, err
		}
		if !ok {
			continue
		}
		var all map[string]json.RawMessage
		if json.Unmarshal(text(part), &all) != nil {
			return Content{}, invalid("the key %.80q of the secret %s is no object: remove the property, or use spec.data", d.Extract.Property, d.Extract.read(mount))
		}
		for _, key := range slices.Sorted(maps.Keys(all)) {
			if bytes.Equal(all[key], []byte("null")) {
				continue
			}
			if err := out.put(converted(key, d.Extract.ConversionStrategy), all[key], *d.Extract); err != nil {
				return Content{}, err
			}
		}
	}
	for _, d := range s.Data {
		part, ok, err := take(d.RemoteRef)
		if err == nil && ok {
			err = out.put(d.SecretKey, part, d.RemoteRef)
		}
		if err != nil {
			return Content{}, err
		}
	}
	if !out.Left || len(out.Gone) > 0 && s.Target.DeletionPolicy == Retain {
		return out, nil // it is not written
	}
	return out, s.Target.Template.render(&out)
}

func (c *Content) put(key string, value json.RawMessage, r RemoteRef) error {
	if !isKey(key) {
		return invalid("the secret %.80q has the key %.80q, which no Secret can have: rename it there, or name each key in spec.data", r.Key, key)
	}
	decoded, err := decode(text(value), r.DecodingStrategy)
	if err != nil {
		return invalid("the key %.80q of %.80q is not what decodingStrategy %s says", key, r.Key, r.DecodingStrategy)
	}
	c.Data[key] = decoded
	return nil
}

// text is a text of JSON as it is, and everything else as JSON.
func text(value json.RawMessage) []byte {
	var s string
	if json.Unmarshal(value, &s) == nil && !bytes.Equal(value, []byte("null")) {
		return []byte(s)
	}
	return value
}

// property finds a part of an object: a key, or, if there is none of that name, a path of
// keys and indexes with dots between them. An empty name is the whole of it.
func property(whole json.RawMessage, name string) (json.RawMessage, bool, error) {
	if name == "" {
		out, err := sorted(whole)
		return out, true, err
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(whole, &object) != nil {
		return nil, false, errors.New("it is no object")
	}
	if value, ok := object[name]; ok {
		return value, !bytes.Equal(value, []byte("null")), nil
	}
	value := whole
	for part := range strings.SplitSeq(name, ".") {
		var list []json.RawMessage
		object = nil
		n, notIndex := strconv.Atoi(part)
		switch content := text(value); { // a text may hold JSON
		case json.Unmarshal(content, &object) == nil && object[part] != nil:
			value = object[part]
		case json.Unmarshal(content, &list) == nil && notIndex == nil && n >= 0 && n < len(list):
			value = list[n]
		default:
			return nil, false, nil
		}
	}
	return value, !bytes.Equal(value, []byte("null")), nil
}

// sorted is an object without spaces, its keys in order.
func sorted(whole json.RawMessage) (json.RawMessage, error) {
	var object map[string]json.RawMessage
	if json.Unmarshal(whole, &object) != nil {
		return nil, errors.New("it is no object")
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(object); err != nil {
		return nil, errors.New("it cannot be written as JSON")
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// converted is a key with what no key of a Secret can have replaced.
func converted(key, strategy string) string {
	var out strings.Builder
	for _, r := range key {
		switch {
		case keyRune(r):
			out.WriteRune(r)
		case strategy == "Unicode":
			fmt.Fprintf(&out, "_U%04x_", r)
		default:
			out.WriteByte('_')
		}
	}
	return out.String()
}

func decode(value []byte, strategy string) ([]byte, error) {
	in := strings.TrimFunc(string(value), unicode.IsSpace)
	switch strategy {
	case "Base64":
		return base64.StdEncoding.DecodeString(in)
	case "Base64URL":
		return base64.URLEncoding.DecodeString(in)
	case "Auto":
		for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
			if out, err := encoding.DecodeString(in); err == nil {
				return out, nil
			}
		}
	}
	return value, nil
}

// holds reports whether a message has one of the values in it.
func holds(message string, values map[string]string) bool {
	for _, value := range values {
		if value != "" && strings.Contains(message, value) {
			return true
		}
	}
	return false
}

// render replaces the data by what a template makes of them. Functions quote what they are
// given in their errors, so that only errors about names are told.
func (t *Template) render(c *Content) error {
	if t == nil || len(t.Data) == 0 {
		return nil
	}
	values := make(map[string]string, len(c.Data))
	for key, value := range c.Data {
		values[key] = string(value)
	}
	run := rendering.NewRun(values)
	out := map[string][]byte{}
	if t.MergePolicy == "Merge" {
		out = c.Data
	}
	for _, key := range slices.Sorted(maps.Keys(t.Data)) {
		parsed, err := rendering.Parse(t.Data[key])
		var made any
		if err == nil {
			made, err = parsed.Render(run)
		}
		if err != nil {
			said := "a function of it fails with the values that were read: check their form"
			if text := err.Error(); (strings.HasPrefix(text, "there is no variable ") || strings.HasPrefix(text, "there is no field ")) && !holds(text, values) {
				said = text
			}
			return fault.New(fault.Invalid, ReasonTemplate, fmt.Errorf("spec.target.template.data[%s]: %s", key, said))
		}
		out[key] = fmt.Append(nil, made)
	}
	c.Data = out
	return nil
}
