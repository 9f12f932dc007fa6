package rego

import (
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"runtime"
	"runtime/metrics"
	"strconv"
	"sync"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// Bounds of one evaluation.
const (
	Deadline      = 5 * time.Second // of one policy and plan
	textMost      = 1 << 20         // of a text that a built-in function makes
	listMost      = 100_000         // of a list that one makes
	numberDigits  = 400             // of a number, and of its exponent
	memoryMost    = 512 << 20       // by which the memory of the process may grow meanwhile
	memorySampled = 10 * time.Millisecond
)

// errBound is what a function says that would exceed a bound. The library has no bounds
// of its own for the results of one call, and a deadline ends no call.
var errBound = errors.New("its result would be too large for a policy")

// boundBuiltins puts bounds in front of the functions whose result may be far larger
// than their operands. The table of functions belongs to the library, so this happens
// once in a process, before the first policy is compiled.
var boundBuiltins = sync.OnceFunc(func() {
	for name, fits := range bounded {
		call := topdown.GetBuiltin(name)
		topdown.RegisterBuiltinFunc(name, func(c topdown.BuiltinContext, operands []*ast.Term, give func(*ast.Term) error) error {
			if !fits(operands) {
				return errBound
			}
			return call(c, operands, give)
		})
	}
})

// bounded says for each of these functions whether the result will fit.
var bounded = map[string]func([]*ast.Term) bool{
	"sprintf":            sprintfFits,
	"concat":             concatFits,
	"replace":            func(o []*ast.Term) bool { return replaceFits(o[0], o[2]) },
	"regex.replace":      func(o []*ast.Term) bool { return replaceFits(o[0], o[2]) },
	"strings.replace_n":  replaceAllFits,
	"numbers.range":      func(o []*ast.Term) bool { return rangeFits(o[0], o[1]) },
	"numbers.range_step": func(o []*ast.Term) bool { return rangeFits(o[0], o[1]) },
	"format_int":         numbersFit,
	"to_number":          numbersFit,
	"round":              numbersFit,
	"ceil":               numbersFit,
	"floor":              numbersFit,
	"rem":                numbersFit,
	"plus":               numbersFit,
	"minus":              numbersFit,
	"mul":                numbersFit,
	"div":                numbersFit,
	"sum":                setOfNumbersFits,
	"product":            setOfNumbersFits,
	"units.parse":        numbersFit,
	"units.parse_bytes":  numbersFit,
	"time.add_date":      numbersFit,
}

func size(t *ast.Term) int {
	if s, ok := t.Value.(ast.String); ok {
		return len(s)
	}
	return 0
}

// wide finds widths and precisions in a format.
var wide = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`%[^a-zA-Z%]*?(\d{4,}|\*)`) })

func sprintfFits(o []*ast.Term) bool {
	format, ok := o[0].Value.(ast.String)
	return !ok || len(format) <= textMost && !wide().MatchString(string(format)) && numbersFit(o[1:])
}

func concatFits(o []*ast.Term) bool {
	n := 0
	each(o[1], func(t *ast.Term) bool {
		n += size(t) + size(o[0])
		return n <= textMost
	})
	return n <= textMost
}

// replaceFits takes every letter for a place that is replaced.
func replaceFits(text, by *ast.Term) bool {
	return (size(text)+1)*max(1, size(by)) <= 64*textMost
}

func replaceAllFits(o []*ast.Term) bool {
	longest := 1
	if patterns, ok := o[0].Value.(ast.Object); ok {
		patterns.Foreach(func(_, by *ast.Term) { longest = max(longest, size(by)) })
	}
	return (size(o[1])+1)*longest <= 64*textMost
}

func rangeFits(from, to *ast.Term) bool {
	if !numberFits(from) || !numberFits(to) {
		return false
	}
	a, b := float(from), float(to)
	if a == nil || b == nil {
		return true // the function refuses it
	}
	d, _ := new(big.Float).Sub(a, b).Float64()
	return d <= listMost && d >= -listMost
}

func float(t *ast.Term) *big.Float {
	n, ok := t.Value.(ast.Number)
	if !ok {
		return nil
	}
	f, _, err := big.ParseFloat(string(n), 10, 64, big.ToNearestEven)
	if err != nil {
		return nil
	}
	return f
}

func numbersFit(o []*ast.Term) bool {
	for _, t := range o {
		if !numberFits(t) {
			return false
		}
	}
	return true
}

func setOfNumbersFits(o []*ast.Term) bool {
	ok := true
	each(o[0], func(t *ast.Term) bool {
		ok = numberFits(t)
		return ok
	})
	return ok
}

// exponent is the last part of a number such as 1e300.
var exponent = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[eE][+-]?0*(\d+)$`) })

// numberFits reports whether a number, or a text that is one, can be worked out soon:
// 1e999999999 is short and has a thousand million digits.
func numberFits(t *ast.Term) bool {
	var text string
	switch v := t.Value.(type) {
	case ast.Number:
		text = string(v)
	case ast.String:
		text = string(v)
		if len(text) > 4096 {
			return true // no number
		}
	case *ast.Array:
		ok := true
		v.Foreach(func(t *ast.Term) { ok = ok && numberFits(t) })
		return ok
	default:
		return true
	}
	if _, isNumber := t.Value.(ast.Number); isNumber && len(text) > numberDigits {
		return false
	}
	m := exponent().FindStringSubmatch(text)
	if m == nil {
		return true
	}
	e, err := strconv.Atoi(m[1])
	return err == nil && e <= numberDigits
}

// each calls f for the elements of a list or a set until it returns false.
func each(t *ast.Term, f func(*ast.Term) bool) {
	more := true
	visit := func(t *ast.Term) {
		if more {
			more = f(t)
		}
	}
	switch v := t.Value.(type) {
	case *ast.Array:
		v.Foreach(visit)
	case ast.Set:
		v.Foreach(visit)
	}
}

// watch cancels an evaluation during which the memory of the process grows too far. The
// library cannot say whose memory it is, so the growth of everything else counts too. The
// caller ends the watch by closing done.
func watch(done <-chan struct{}, cancel func(error)) {
	from := heap()
	tick := time.NewTicker(memorySampled)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		if grown(from) {
			runtime.GC() // what is garbage does not count
			if grown(from) {
				cancel(fmt.Errorf("it needs more than %d MiB of memory", memoryMost>>20))
				return
			}
		}
	}
}

func grown(from uint64) bool { return heap() > from+memoryMost }

// heap is the memory of all objects of the process.
func heap() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return sample[0].Value.Uint64()
}
