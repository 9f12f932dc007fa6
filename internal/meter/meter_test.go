package meter

import (
	"errors"
	"reflect"
	"testing"
	"text/template"
)

// What is held in a thousand places weighs a thousand times.
func TestWeighCountsEachPlace(t *testing.T) {
	v := any("x")
	for range 40 {
		v = []any{v, v}
	}
	if err := (&Budget{Text: 1 << 20}).Weigh(v, nil); !errors.Is(err, ErrTooMuch) {
		t.Errorf("Weigh() error = %v, want %v", err, ErrTooMuch)
	}
	var seen []any
	type own string
	if err := (&Budget{Text: 100}).Weigh([]any{own("a"), map[string]any{"k": "v"}}, func(text any) { seen = append(seen, text) }); err != nil || !reflect.DeepEqual(seen, []any{own("a"), "k", "v"}) {
		t.Errorf("Weigh() saw %v, %v", seen, err)
	}
}

func TestRoundsAreCounted(t *testing.T) {
	b := &Budget{Actions: 1000}
	tpl := template.Must(template.New("").Funcs(template.FuncMap{SpendName: b.Spend}).Parse(`{{ range 1000000 }}{{ end }}`))
	Rounds(tpl.Root)
	w := &Writer{Left: 10}
	if err := tpl.Execute(w, nil); !errors.Is(err, ErrTooMuch) {
		t.Errorf("Execute() error = %v, want %v", err, ErrTooMuch)
	}
	if _, err := w.Write(make([]byte, 11)); err != ErrTooLong {
		t.Errorf("Write() error = %v, want %v", err, ErrTooLong)
	}
}
