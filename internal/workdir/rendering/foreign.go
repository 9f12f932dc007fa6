package rendering

import (
	"fmt"
	"reflect"
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
	if isForeign, err = r.weigh(v, 0); err != nil || !isForeign {
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

// weigh counts v and reports whether there is foreign text in it. A list may
// hold another many times over, so that counting is what has to be bounded.
func (r *render) weigh(v any, depth int) (isForeign bool, err error) {
	if depth > maxDepth {
		return false, errTooMuch
	}
	if err := r.handle(1); err != nil {
		return false, err
	}
	switch v := v.(type) {
	case foreign:
		return true, r.text(string(v))
	case string:
		return r.keys[v], r.text(v)
	case []any:
		for _, e := range v {
			f, err := r.weigh(e, depth+1)
			if err != nil {
				return false, err
			}
			isForeign = isForeign || f
		}
		return isForeign, nil
	case map[string]any:
		for k, e := range v {
			f, err := r.weigh(e, depth+1)
			if err == nil {
				err = r.text(k)
			}
			if err != nil {
				return false, err
			}
			isForeign = isForeign || f || r.keys[k]
		}
		return isForeign, nil
	case []string:
		for _, s := range v {
			if err := r.text(s); err != nil {
				return false, err
			}
			isForeign = isForeign || r.keys[s]
		}
		return isForeign, nil
	case map[string]string:
		for k, s := range v {
			if err := r.text(k + s); err != nil {
				return false, err
			}
		}
		return false, nil
	}
	return false, r.other(reflect.ValueOf(v), depth)
}

// other counts what is neither text nor made of it.
func (r *render) other(v reflect.Value, depth int) error {
	switch v.Kind() {
	case reflect.Invalid, reflect.Bool, reflect.Float32, reflect.Float64,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return nil
	case reflect.Slice:
		for i := range v.Len() {
			if _, err := r.weigh(v.Index(i).Interface(), depth+1); err != nil {
				return err
			}
		}
		return nil
	default:
		return fmt.Errorf("a value of type %s cannot be used here", v.Type())
	}
}

func (r *render) text(s string) error {
	if len(s) > maxText {
		return errTooLong
	}
	return r.handle(len(s) + 1)
}
