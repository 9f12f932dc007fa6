package engine

import (
	"bytes"
	"encoding/json"
	"errors"
)

// member is one name and value of a JSON object.
type member struct {
	name  string
	value json.RawMessage
}

// members lists those of an object, or of all objects in an array: in JSON a
// body and a block may be either, and a name may be there twice.
func members(raw []byte) ([]member, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	open, err := d.Token()
	if err != nil {
		return nil, err
	}
	if open != json.Delim('{') && open != json.Delim('[') {
		return nil, errors.New("neither an object nor a list of them")
	}
	var all []member
	for d.More() {
		if open == json.Delim('{') {
			name, err := d.Token()
			if err != nil {
				return nil, err
			}
			m := member{}
			m.name, _ = name.(string)
			if err := d.Decode(&m.value); err != nil {
				return nil, err
			}
			all = append(all, m)
			continue
		}
		var element json.RawMessage
		if err := d.Decode(&element); err != nil {
			return nil, err
		}
		if bytes.HasPrefix(element, []byte("[")) {
			return nil, errors.New("a list of lists")
		}
		inner, err := members(element)
		if err != nil {
			return nil, err
		}
		all = append(all, inner...)
	}
	return all, nil
}

// below lists the members of every member with this name.
func below(all []member, name string) ([]member, error) {
	var found []member
	for _, m := range all {
		if m.name != name {
			continue
		}
		inner, err := members(m.value)
		if err != nil {
			return nil, err
		}
		found = append(found, inner...)
	}
	return found, nil
}

func providersInJSON(src []byte) ([]providerBlock, error) {
	file, err := members(src)
	if err != nil {
		return nil, err
	}
	providers, err := below(file, "provider")
	if err != nil {
		return nil, err
	}
	var blocks []providerBlock
	for _, p := range providers {
		settings, err := members(p.value)
		if err != nil {
			return nil, err
		}
		// A list holds one block by element; several of them are several.
		b := providerBlock{local: p.name, several: bytes.HasPrefix(bytes.TrimSpace(p.value), []byte("["))}
		for _, s := range settings {
			b.several = b.several || s.name == "alias" || s.name == "for_each"
		}
		blocks = append(blocks, b)
	}
	return blocks, nil
}

func requiredInJSON(src []byte, sources map[string]string) error {
	file, err := members(src)
	if err != nil {
		return err
	}
	settings, err := below(file, "terraform")
	if err != nil {
		return err
	}
	entries, err := below(settings, "required_providers")
	if err != nil {
		return err
	}
	for _, e := range entries {
		var entry struct{ Source string }
		if json.Unmarshal(e.value, &entry) == nil && entry.Source != "" {
			sources[e.name] = withoutRegistry(entry.Source)
		}
	}
	return nil
}

func backendInJSON(src []byte) (string, error) {
	file, err := members(src)
	if err != nil {
		return "", err
	}
	settings, err := below(file, "terraform")
	if err != nil {
		return "", err
	}
	for _, s := range settings {
		if s.name == "cloud" {
			return s.name, nil
		}
	}
	backends, err := below(settings, "backend")
	if err != nil || len(backends) == 0 {
		return "", err
	}
	return backends[0].name, nil
}
