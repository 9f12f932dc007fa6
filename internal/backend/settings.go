package backend

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// setting is one that a backend knows.
type setting struct {
	name     string
	also     string // another name of it
	required bool
	boolean  bool
}

// values are the settings of a request, each under its own name.
type values struct {
	given map[string]string
	known []setting
}

// read finds the settings, and refuses what the backend does not know.
func read(r Request, known []setting, credentials string) (values, error) {
	v := values{map[string]string{}, known}
	for _, name := range slices.Sorted(maps.Keys(r.Settings)) {
		i := slices.IndexFunc(known, func(s setting) bool { return name == s.name || name == s.also })
		if i < 0 {
			return v, wrong(name, "is not one of %s. %s", strings.Join(v.names(), ", "), credentials)
		}
		s, value := known[i], r.Settings[name]
		if _, twice := v.given[s.name]; twice {
			return v, wrong(name, "is another name of %s, which is set as well: remove one of them", v.other(s, name))
		}
		if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return v, wrong(name, "holds a control character")
		}
		if value == "" {
			continue
		}
		if _, err := strconv.ParseBool(value); s.boolean && err != nil {
			return v, wrong(name, "is %.80q, and neither true nor false", value)
		}
		v.given[s.name] = value
	}
	for _, s := range known {
		if s.required && v.given[s.name] == "" {
			if s.also != "" {
				return v, wrong(s.name, "is missing; %s is another name of it", s.also)
			}
			return v, wrong(s.name, "is missing")
		}
	}
	return v, nil
}

func (v values) other(s setting, name string) string {
	if name == s.name {
		return s.also
	}
	return s.name
}

// names lists the settings, for messages.
func (v values) names() []string {
	var list []string
	for _, s := range v.known {
		list = append(list, s.name)
		if s.also != "" {
			list = append(list, s.also)
		}
	}
	return list
}

func (v values) text(name string) string { return v.given[name] }

func (v values) is(name string) bool {
	yes, err := strconv.ParseBool(v.given[name])
	return err == nil && yes
}

// block makes a block of the settings that it names, as they are, and of more.
func (v values) block(kind string, names []string, more map[string]any) Block {
	b := Block{Type: kind, Configuration: map[string]any{}}
	for _, name := range names {
		i := slices.IndexFunc(v.known, func(s setting) bool { return s.name == name })
		value, ok := v.given[name]
		switch {
		case !ok:
		case v.known[i].boolean:
			b.Configuration[name] = v.is(name)
		default:
			b.Configuration[name] = value
		}
	}
	maps.Copy(b.Configuration, more)
	return b
}
