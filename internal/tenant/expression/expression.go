// Package expression evaluates the conditions of templates: CEL over an object, or
// over the values of a row, that gives true or false. It refuses any other result,
// and stops an expression that costs too much; CEL itself has no endless loops, no
// clock and no I/O.
//
// Start reading at Kind.
package expression

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/ext"

	"github.com/terrier-iac/terrier/internal/cache"
)

// Bounds of one expression.
const (
	maxSource = 4096      // bytes
	maxCost   = 1_000_000 // as CEL counts: about one for each step and for ten bytes of text
)

// Kind is a kind of expression: its one variable.
type Kind struct {
	variable string
	env      func() (*cel.Env, error)
	compiled *cache.Map[string, compiled]
}

type compiled struct {
	program cel.Program
	err     error
}

// OverObject are expressions over object, a live object of the cluster.
func OverObject() *Kind { return overObject }

// OverRow are expressions over row, a map of texts.
func OverRow() *Kind { return overRow }

var (
	overObject = newKind("object", cel.DynType)
	overRow    = newKind("row", cel.MapType(cel.StringType, cel.StringType))
)

func newKind(variable string, t *cel.Type) *Kind {
	return &Kind{variable, sync.OnceValues(func() (*cel.Env, error) {
		return cel.NewEnv(
			cel.Variable(variable, t),
			cel.OptionalTypes(), // object.?status.?phase.orValue("")
			cel.CrossTypeNumericComparisons(true),
			cel.ParserExpressionSizeLimit(maxSource),
			ext.Strings(),
		)
	}), &cache.Map[string, compiled]{Size: 1 << 16, Weigh: func(expr string, _ compiled) int { return len(expr) + 1<<10 }, Weight: 8 << 20}}
}

// Check says why an expression cannot be evaluated over any value.
func (k *Kind) Check(expr string) error {
	return k.of(expr).err
}

// Eval evaluates an expression over the value of its variable.
func (k *Kind) Eval(expr string, value any) (bool, error) {
	c := k.of(expr)
	if c.err != nil {
		return false, c.err
	}
	out, _, err := c.program.Eval(map[string]any{k.variable: value})
	if err != nil {
		return false, err
	}
	truth, ok := out.Value().(bool)
	if !ok {
		return false, fmt.Errorf("it gives a %s, not true or false", out.Type().TypeName())
	}
	return truth, nil
}

func (k *Kind) of(expr string) compiled {
	c, ok := k.compiled.Get(expr)
	if !ok {
		c.program, c.err = k.compile(expr)
		k.compiled.Put(expr, c)
	}
	return c
}

func (k *Kind) compile(expr string) (cel.Program, error) {
	if len(expr) > maxSource {
		return nil, fmt.Errorf("it has %d bytes, more than %d", len(expr), maxSource)
	}
	env, err := k.env()
	if err != nil {
		return nil, err
	}
	ast, issues := env.Compile(expr)
	if issues.Err() != nil {
		var all []string
		for _, e := range issues.Errors() {
			all = append(all, fmt.Sprintf("line %d, column %d: %s", e.Location.Line(), e.Location.Column()+1, e.Message))
		}
		return nil, errors.New(strings.Join(all, "; "))
	}
	if t := ast.OutputType(); !t.IsExactType(cel.BoolType) && !t.IsExactType(cel.DynType) {
		return nil, fmt.Errorf("it gives a %s, not true or false", t)
	}
	return env.Program(ast, cel.CostLimit(maxCost))
}
