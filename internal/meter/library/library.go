// Package library has the functions that Go templates of users may call: those of
// sprig and of the language whose result depends only on their arguments. A
// meter.Budget bounds their cost.
//
// It refuses functions that read the clock or the machine, create keys, or change
// their arguments. It is apart from package meter because the supervisor of a run
// links that one, and every linked package delays its start.
//
// Start reading at Call.
package library

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"text/template"

	"github.com/Masterminds/sprig/v3"

	"github.com/terrier-iac/terrier/internal/meter"
)

// allowed are the functions of sprig that templates have. The missing ones have
// another result each time, read the machine, create keys, or change their arguments.
const allowed = `
abbrev abbrevboth trunc trim upper lower title untitle substr repeat trimall trimAll trimSuffix trimPrefix nospace
initials swapcase snakecase camelcase kebabcase wrap wrapWith contains hasPrefix hasSuffix cat indent nindent replace
plural sha1sum sha256sum sha512sum adler32sum toString atoi int64 int float64 seq toDecimal split splitList splitn
toStrings until untilStep add1 add sub div mod mul add1f addf subf divf mulf biggest max min maxf minf ceil floor round
join sortAlpha default empty coalesce all any compact mustCompact fromJson mustFromJson ternary typeOf typeIs typeIsLike
kindOf kindIs deepEqual base dir clean ext isAbs b64enc b64dec b32enc b32dec tuple list dict get hasKey pluck pick omit
append mustAppend push mustPush prepend mustPrepend first mustFirst rest mustRest last mustLast initial mustInitial
reverse mustReverse uniq mustUniq without mustWithout has mustHas slice mustSlice concat dig chunk mustChunk
semverCompare fail regexMatch mustRegexMatch regexFindAll mustRegexFindAll regexFind mustRegexFind regexReplaceAll
mustRegexReplaceAll regexReplaceAllLiteral mustRegexReplaceAllLiteral regexSplit mustRegexSplit regexQuoteMeta
quote squote toJson toPrettyJson toRawJson mustToJson mustToPrettyJson mustToRawJson urlParse urlJoin`

// functions are all that templates can call by Call.
var functions = sync.OnceValue(func() map[string]reflect.Value {
	all := sprig.HermeticTxtFuncMap()
	fns := map[string]reflect.Value{}
	for _, name := range strings.Fields(allowed) {
		fns[name] = reflect.ValueOf(all[name])
	}
	for name, fn := range map[string]any{
		"print": fmt.Sprint, "println": fmt.Sprintln, "printf": fmt.Sprintf,
		"html": template.HTMLEscaper, "js": template.JSEscaper, "urlquery": template.URLQueryEscaper,
		"keys": keys, "values": values,
	} {
		fns[name] = reflect.ValueOf(fn)
	}
	return fns
})

// Names returns the names of all functions, in order.
func Names() []string { return slices.Sorted(maps.Keys(functions())) }

// Call calls a function. Its arguments must have been weighed; what it makes is.
func Call(b *meter.Budget, name string, args []any) (any, error) {
	fn, ok := functions()[name]
	if !ok {
		return nil, fmt.Errorf("there is no function %s", name)
	}
	if err := afford(b, name, args); err != nil {
		return nil, err
	}
	out, err := call(name, fn, args)
	if err != nil {
		return nil, err
	}
	return out, b.Weigh(out, nil)
}

// keys are in order, unlike sprig's: the same data must give the same text.
func keys(dicts ...map[string]any) []string {
	var all []string
	for _, d := range dicts {
		all = append(all, slices.Sorted(maps.Keys(d))...)
	}
	return all
}

func values(dict map[string]any) []any {
	var all []any
	for _, k := range slices.Sorted(maps.Keys(dict)) {
		all = append(all, dict[k])
	}
	return all
}

// call calls a function with what it takes.
func call(name string, fn reflect.Value, args []any) (any, error) {
	t := fn.Type()
	least := t.NumIn()
	if t.IsVariadic() {
		least--
	}
	if len(args) < least || len(args) > least && !t.IsVariadic() {
		return nil, fmt.Errorf("%s takes %d arguments, and got %d", name, least, len(args))
	}
	in := make([]reflect.Value, len(args))
	for i, a := range args {
		want := t.In(min(i, t.NumIn()-1))
		if t.IsVariadic() && i >= t.NumIn()-1 {
			want = want.Elem()
		}
		v, err := fit(a, want)
		if err != nil {
			return nil, fmt.Errorf("%s: argument %d %w", name, i+1, err)
		}
		in[i] = v
	}
	out := fn.Call(in)
	if len(out) == 2 && !out[1].IsNil() {
		return nil, out[1].Interface().(error)
	}
	return out[0].Interface(), nil
}

// fit makes a value of a type, if it is one or a number that is the same.
func fit(v any, t reflect.Type) (reflect.Value, error) {
	if v == nil {
		switch t.Kind() {
		case reflect.Interface, reflect.Map, reflect.Slice:
			return reflect.Zero(t), nil
		default:
			return reflect.Value{}, meter.ErrAbsent
		}
	}
	got := reflect.ValueOf(v)
	if got.Type().AssignableTo(t) {
		return got, nil
	}
	if isNumber(got.Kind()) && isNumber(t.Kind()) {
		if to := got.Convert(t); to.Convert(got.Type()).Equal(got) {
			return to, nil
		}
	}
	return reflect.Value{}, fmt.Errorf("is a %s and must be a %s", got.Type(), t)
}

func isNumber(k reflect.Kind) bool { return k >= reflect.Int && k <= reflect.Float64 }

var errWide = errors.New("a width, precision or count of repetitions must be below 1000")

var (
	wideFormat  = regexp.MustCompile(`%[^A-Za-z%]*([0-9]{4}|\*)`)
	widePattern = regexp.MustCompile(`\{[0-9]*,?[0-9]{3}`)
)

// afford counts in advance what a function may make that is longer than what it
// is given.
func afford(b *meter.Budget, name string, args []any) error {
	longest, total := 0, 0
	for _, a := range args {
		n := length(a)
		longest, total = max(longest, n), total+n
	}
	switch base := strings.TrimPrefix(name, "must"); {
	case name == "repeat", name == "indent", name == "nindent", name == "until", name == "untilStep", name == "seq", name == "round", name == "toDecimal":
		size := 1
		for _, a := range args {
			size = max(size, count(a))
		}
		if size > meter.MaxText {
			return meter.ErrTooMuch
		}
		if name != "seq" && !strings.HasPrefix(name, "until") {
			return b.Take(size * (longest + 1))
		}
		return b.Take(size * 16)
	case name == "printf":
		format, _ := first(args).(string)
		if wideFormat.MatchString(format) {
			return errWide
		}
		return b.Take(strings.Count(format, "%") * (longest + 999))
	case strings.HasPrefix(strings.ToLower(base), "regex"):
		pattern, _ := first(args).(string)
		if widePattern.MatchString(pattern) {
			return errWide
		}
		return errors.Join(b.Take(8*(len(pattern)+1)*(total+1)/4), b.Take((longest+1)*(len(pattern)+1)))
	case name == "replace", name == "join", name == "wrapWith", name == "wrap":
		return b.Take((longest + 1) * (total - longest + 1))
	case strings.HasSuffix(strings.ToLower(base), "uniq"), strings.HasSuffix(strings.ToLower(base), "without"):
		n := 0
		for _, a := range args {
			n += elements(a)
		}
		return b.Take(n * n) // each is compared with each
	case strings.HasSuffix(base, "PrettyJson"):
		return b.Take(total * meter.MaxDepth)
	default:
		return nil
	}
}

func first(args []any) any {
	if len(args) == 0 {
		return nil
	}
	return args[0]
}

const maxCount = 16 << 20 // more than any budget allows

// count is the size of a number; other values have none.
func count(v any) int {
	got := reflect.ValueOf(v)
	if !got.IsValid() || !isNumber(got.Kind()) {
		return 0
	}
	f := got.Convert(reflect.TypeFor[float64]()).Float()
	if f < 0 {
		f = -f
	}
	if f != f || f > maxCount {
		return maxCount
	}
	return int(f)
}

// length is how much text there is in v, which was weighed.
func length(v any) int {
	switch v := v.(type) {
	case string:
		return len(v) + 1
	case []any:
		n := 1
		for _, e := range v {
			n += length(e)
		}
		return n
	case map[string]any:
		n := 1
		for k, e := range v {
			n += len(k) + length(e)
		}
		return n
	case []string:
		n := 1
		for _, s := range v {
			n += len(s) + 1
		}
		return n
	default:
		return 24 * elements(v)
	}
}

// elements is how many values there are in v; one if it is no list.
func elements(v any) int {
	if got := reflect.ValueOf(v); got.IsValid() && got.Kind() == reflect.Slice {
		return got.Len()
	}
	return 1
}
