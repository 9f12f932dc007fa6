package meter

import (
	"fmt"
	"reflect"
)

// Weigh counts v. A list may hold another many times over, so that counting is
// what has to be bounded. It shows see, which may be nil, every text and name of
// a field; that of a type of the caller's own as a value of that type.
func (b *Budget) Weigh(v any, see func(text any)) error { return b.weigh(v, see, 0) }

func (b *Budget) weigh(v any, see func(any), depth int) error {
	if depth > MaxDepth {
		return ErrTooMuch
	}
	if err := b.Take(1); err != nil {
		return err
	}
	switch v := v.(type) {
	case string:
		return b.seen(v, v, see)
	case []any:
		for _, e := range v {
			if err := b.weigh(e, see, depth+1); err != nil {
				return err
			}
		}
		return nil
	case map[string]any:
		for k, e := range v {
			if err := b.seen(k, k, see); err != nil {
				return err
			}
			if err := b.weigh(e, see, depth+1); err != nil {
				return err
			}
		}
		return nil
	case []string:
		for _, s := range v {
			if err := b.seen(s, s, see); err != nil {
				return err
			}
		}
		return nil
	case map[string]string:
		for k, s := range v {
			if err := b.seen(k, k, see); err != nil {
				return err
			}
			if err := b.seen(s, s, see); err != nil {
				return err
			}
		}
		return nil
	}
	return b.other(reflect.ValueOf(v), see, depth)
}

func (b *Budget) seen(text string, v any, see func(any)) error {
	if see != nil {
		see(v)
	}
	return b.text(text)
}

// other counts what is of a less common type.
func (b *Budget) other(v reflect.Value, see func(any), depth int) error {
	switch v.Kind() {
	case reflect.Invalid, reflect.Bool, reflect.Float32, reflect.Float64,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return nil
	case reflect.String:
		return b.seen(v.String(), v.Interface(), see)
	case reflect.Slice:
		for i := range v.Len() {
			if err := b.weigh(v.Index(i).Interface(), see, depth+1); err != nil {
				return err
			}
		}
		return nil
	default:
		return fmt.Errorf("a value of type %s cannot be used here", v.Type())
	}
}
