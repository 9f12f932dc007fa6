package workdir

import (
	"errors"
	"fmt"
	"strings"
	"text/template"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/meter"
)

// Bounds of all the templates of one stack. They run in the process that keeps every
// stack, and nothing can stop one from outside, so each has to end by itself.
const (
	maxRendered = 1 << 20  // bytes that one writes, and that a text in it may have
	maxExecuted = 1 << 20  // bytes of actions that they execute; a loop counts in each round
	maxHandled  = 16 << 20 // bytes that their functions are given
)

// render executes the template in s over data, in which everything that it
// names must be.
func (b *budget) render(s string, data any, path string) (string, error) {
	return b.execute(s, data, path, "missingkey=error")
}

func (b *budget) execute(s string, data any, path, missing string) (string, error) {
	if !strings.Contains(s, "${{") {
		return s, nil
	}
	t, err := b.parse(s, path)
	if err != nil {
		return "", err
	}
	t.Option(missing)
	for _, each := range t.Templates() {
		meter.Rounds(each.Root)
	}
	w := meter.Writer{Left: maxRendered, Full: errTooLong}
	if err := t.Execute(&w, data); err != nil {
		return "", templateFault(fmt.Errorf("rendering the template in %s: %w", path, err))
	}
	return w.String(), nil
}

func (b *budget) parse(s, path string) (*template.Template, error) {
	t, err := template.New(path).Delims("${{", "}}").Funcs(b.functions()).Parse(s)
	if err != nil {
		return nil, templateFault(fmt.Errorf("reading the template in %s: %w", path, err))
	}
	return t, nil
}

func templateFault(err error) error {
	return fault.New(fault.Invalid, "TemplateGenerationFailed", err)
}

// budget is what templates may still do.
type budget struct{ actions, text int }

var (
	errTooLong = errors.New("it writes more than 1 MiB")
	errTooMuch = errors.New("it does too much: its loops go round too often, or its texts are too long")
)

// functions take the place of those built into templates that make texts,
// which double with each step if nothing bounds them.
func (b *budget) functions() template.FuncMap {
	return template.FuncMap{
		"print":    b.bound(fmt.Sprint),
		"println":  b.bound(fmt.Sprintln),
		"html":     b.bound(template.HTMLEscaper),
		"js":       b.bound(template.JSEscaper),
		"urlquery": b.bound(template.URLQueryEscaper),
		"printf":   b.printf,
		meter.SpendName: func(n uint) (string, error) {
			if n > maxExecuted || b.actions < int(n) {
				return "", errTooMuch
			}
			b.actions -= int(n)
			return "", nil
		},
	}
}

func (b *budget) bound(print func(...any) string) func(...any) (string, error) {
	return func(args ...any) (string, error) {
		if _, err := b.take(1, args); err != nil {
			return "", err
		}
		if s := print(args...); len(s) <= maxRendered {
			return s, nil
		}
		return "", errTooLong
	}
}

// wide is a width or precision that makes a long text of its own.
var wide = lazy(`%[^A-Za-z%]*([0-9]{4}|\*)`)

func (b *budget) printf(format string, args ...any) (string, error) {
	if wide().MatchString(format) {
		return "", errors.New("printf: a width or precision must be a number below 1000")
	}
	verbs := strings.Count(format, "%")
	// Each may print any of the arguments, and wider than it is.
	if longest, err := b.take(verbs, args); err != nil || len(format)+verbs*(longest+999) > maxHandled {
		return "", errors.Join(err, errTooMuch)
	}
	return b.bound(func(args ...any) string { return fmt.Sprintf(format, args...) })(args...)
}

// take spends the text of args, each as often as it may be printed, and returns
// how long the longest is.
func (b *budget) take(times int, args []any) (longest int, err error) {
	for _, a := range args {
		s, ok := a.(string)
		if !ok {
			s = fmt.Sprint(a)
		}
		longest = max(longest, len(s))
		if b.text -= 1 + len(s); b.text < 0 {
			return 0, errTooMuch
		}
	}
	if b.text -= times * longest; b.text < 0 {
		return 0, errTooMuch
	}
	return longest, nil
}
