package rendering

import (
	"regexp"
	"slices"
)

// foreign is text from elsewhere. What functions make of it is foreign, too.
type foreign string

// plainName is a name that is one word of the language wherever it stands.
var plainName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)

// keywords are names that are more than a name in some places.
var keywords = []string{"for", "in", "if", "else", "endif", "endfor", "null"}

func isName(s string) bool { return plainName.MatchString(s) && !slices.Contains(keywords, s) }

// taint marks every text in v, in place. Names of fields cannot be marked, since
// templates look them up; those that are no plain names are remembered.
func (r *render) taint(v any) any {
	switch v := v.(type) {
	case string:
		return foreign(v)
	case []string:
		list := make([]any, len(v))
		for i, s := range v {
			list[i] = foreign(s)
		}
		return list
	case []any:
		for i := range v {
			v[i] = r.taint(v[i])
		}
		return v
	case map[string]string:
		m := make(map[string]any, len(v))
		for k, s := range v {
			m[k] = foreign(s)
		}
		return r.taint(m)
	case map[string]any:
		for k := range v {
			if v[k] = r.taint(v[k]); !isName(k) {
				r.keys[k] = true
			}
		}
		return v
	default:
		return v
	}
}

// strip returns v with plain text in place of foreign text, as a copy if there
// is any, and counts how much it is.
func (r *render) strip(v any) (plain any, isForeign bool, err error) {
	err = r.Weigh(v, func(text any) {
		s, own := text.(string)
		isForeign = isForeign || !own || r.keys[s]
	})
	if err != nil || !isForeign {
		return v, isForeign, err
	}
	return untaint(v), true, nil
}

func untaint(v any) any {
	switch v := v.(type) {
	case foreign:
		return string(v)
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = untaint(v[i])
		}
		return list
	case map[string]any:
		m := make(map[string]any, len(v))
		for k := range v {
			m[k] = untaint(v[k])
		}
		return m
	default:
		return v
	}
}
