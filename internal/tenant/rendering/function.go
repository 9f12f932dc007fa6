package rendering

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/terrier-iac/terrier/internal/meter/library"
)

// function is one that texts call. Its arguments were counted.
type function func(r *Run, args []any) (any, error)

// refused are the functions of sprig and of templates that texts cannot call, and why.
var refused = func() map[string]string {
	all := map[string]string{
		"call": "templates have no values that are functions", "hello": "it says nothing about the tenant",
		"semver":   "its result is no text; semverCompare compares versions",
		"deepCopy": "no function changes its arguments, so copies are useless", "mustDeepCopy": "no function changes its arguments, so copies are useless",
	}
	for why, names := range map[string][]string{
		"its result differs each time":                  {"now", "date", "dateInZone", "date_in_zone", "dateModify", "date_modify", "mustDateModify", "must_date_modify", "mustToDate", "toDate", "ago", "htmlDate", "htmlDateInZone", "duration", "durationRound", "unixEpoch", "uuidv4", "randAlphaNum", "randAlpha", "randAscii", "randNumeric", "randBytes", "randInt", "shuffle"},
		"it reads the machine that renders":             {"env", "expandenv", "getHostByName", "osBase", "osClean", "osDir", "osExt", "osIsAbs"},
		"it creates a key, a password or a certificate": {"genPrivateKey", "genCA", "genCAWithKey", "genSelfSignedCert", "genSelfSignedCertWithKey", "genSignedCert", "genSignedCertWithKey", "derivePassword", "bcrypt", "htpasswd", "encryptAES", "decryptAES", "buildCustomCert"},
		"it changes its arguments":                      {"set", "unset", "merge", "mustMerge", "mergeOverwrite", "mustMergeOverwrite"},
	} {
		for _, name := range names {
			all[name] = why
		}
	}
	return all
}()

// functions are all that are not built into templates.
var functions = sync.OnceValue(func() map[string]function {
	all := map[string]function{}
	for _, name := range library.Names() {
		all[name] = func(r *Run, args []any) (any, error) { return library.Call(&r.Budget, name, args) }
	}
	for _, name := range arithmetic {
		next := all[name]
		all[name] = func(r *Run, args []any) (any, error) {
			args, err := numbers(args)
			if err != nil {
				return nil, err
			}
			return next(r, args)
		}
	}
	for _, name := range []string{"trunc", "substr", "abbrev", "abbrevboth"} {
		next := all[name]
		all[name] = func(r *Run, args []any) (any, error) { return withoutHalves(next(r, args)) }
	}
	for name, fn := range map[string]func(any) (any, error){
		"int":   func(v any) (any, error) { n, err := whole(v); return int(n), err },
		"int64": func(v any) (any, error) { return whole(v) },
		"atoi":  func(v any) (any, error) { n, err := whole(v); return int(n), err },
		"float": func(v any) (any, error) { return fraction(v) }, "float64": func(v any) (any, error) { return fraction(v) },
		"bool":   func(v any) (any, error) { return truth(v) },
		"toHost": onText(ToHost), "trunc63": onText(trunc63),
		"fromJson": fromJSON, "mustFromJson": fromJSON,
	} {
		all[name] = func(_ *Run, args []any) (any, error) {
			if len(args) != 1 {
				return nil, fmt.Errorf("it takes one argument, not %d", len(args))
			}
			return fn(args[0])
		}
	}
	ternary := all["ternary"]
	all["ternary"] = func(r *Run, args []any) (any, error) {
		if len(args) == 3 && args[2] == nil {
			args[2] = false
		}
		return ternary(r, args)
	}
	return all
})

func isFunction(name string) bool {
	_, ok := functions()[name]
	return ok
}

// absent is a missing value: an empty list, so that conditions take it for false.
// Its name stands behind the end of the list.
type absent []string

func newAbsent(what string) absent { return absent{what}[:0] }

func (a absent) what() string { return a[:1][0] }

// callError is the error of a function that a text calls.
type callError struct {
	name string
	err  error
}

func (e *callError) Error() string { return e.name + ": " + e.err.Error() }
func (e *callError) Unwrap() error { return e.err }

// missingError is the error of a missing value.
type missingError struct{ text string }

func (e *missingError) Error() string { return e.text }

// function returns the function that a template calls by a name.
func (in *instance) function(name string) any {
	switch name {
	case fnVariable:
		return func(path ...string) (any, error) { return in.run.variable(path) }
	case fnField:
		return field
	case fnThere:
		return func(v any) (any, error) { return v, in.run.there(v) }
	case fnWritten:
		return in.written
	}
	fn, isFree := functions()[name], forgiving[name]
	return func(args ...any) (any, error) {
		out, err := in.run.apply(fn, isFree, args)
		if _, isMissing := errors.AsType[*missingError](err); err == nil || isMissing {
			return out, err
		}
		return nil, &callError{name, err}
	}
}

func (r *Run) apply(fn function, isFree bool, args []any) (any, error) {
	given := make([]any, len(args))
	for i, a := range args {
		if _, ok := a.(absent); ok && isFree {
			continue
		}
		if err := r.there(a); err != nil {
			return nil, err
		}
		if err := r.Weigh(a, nil); err != nil {
			return nil, err
		}
		given[i] = a
	}
	return fn(r, given)
}

// there is the error of a missing value.
func (r *Run) there(v any) error {
	a, ok := v.(absent)
	if !ok {
		return nil
	}
	if strings.ContainsAny(a.what(), ". ") {
		return &missingError{"there is no " + a.what()}
	}
	return &missingError{fmt.Sprintf("there is no variable %s; the variables are %s", a.what(), strings.Join(r.names(), ", "))}
}

func (r *Run) names() []string {
	all := make([]string, 0, len(r.values))
	for name := range r.values {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

func (r *Run) variable(path []string) (any, error) {
	v, ok := r.values[path[0]]
	switch {
	case !ok:
		return newAbsent(path[0]), nil
	case len(path) > 1:
		return nil, fmt.Errorf("the variable %s is a text and has no field %s; fromJson makes an object of JSON", path[0], path[1])
	}
	return v, nil
}

func field(v any, path ...string) (any, error) {
	for _, name := range path {
		switch m := v.(type) {
		case absent:
			return m, nil
		case map[string]any:
			next, ok := m[name]
			if !ok {
				return newAbsent("field " + name), nil
			}
			v = next
		case map[string]string:
			next, ok := m[name]
			if !ok {
				return newAbsent("field " + name), nil
			}
			v = next
		case nil:
			return newAbsent("field " + name), nil
		default:
			return nil, fmt.Errorf("there is no field %s in a value of type %T", name, v)
		}
	}
	return v, nil
}

// written is called with every value that a template writes.
func (in *instance) written(v any) (string, error) {
	in.value = nil
	if err := in.run.there(v); err != nil {
		return "", err
	}
	switch v := v.(type) {
	case nil:
		return "", &missingError{"there is no value to write"}
	case string:
		return v, nil
	case bool:
		in.value = v
		return fmt.Sprint(v), nil
	}
	if n, ok := integer(v); ok {
		in.value = n
		return fmt.Sprint(n), nil
	}
	if f, ok := v.(float64); ok {
		in.value = f
		return decimal(f), nil
	}
	if err := in.run.Weigh(v, nil); err != nil {
		return "", err
	}
	return fmt.Sprint(v), nil
}
