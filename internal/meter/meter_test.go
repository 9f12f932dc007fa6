package meter

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"text/template"
)

// Each function is one that is there, and none looks at the time or the machine.
func TestNames(t *testing.T) {
	for _, name := range Names() {
		if fn := functions()[name]; !fn.IsValid() || fn.Kind() != reflect.Func {
			t.Errorf("%s is no function", name)
		}
	}
	for _, name := range strings.Fields("env expandenv getHostByName now date ago uuidv4 randAlpha randInt shuffle genCA genPrivateKey genSignedCert bcrypt htpasswd derivePassword encryptAES set unset osBase") {
		if _, ok := functions()[name]; ok {
			t.Errorf("templates can call %s", name)
		}
	}
}

func TestCall(t *testing.T) {
	for name, tt := range map[string]struct {
		fn   string
		args []any
		want any
		err  error
	}{
		"a function":               {"upper", []any{"a"}, "A", nil},
		"numbers of another width": {"trunc", []any{int64(2), "abc"}, "ab", nil},
		"what is not there":        {"upper", []any{nil}, nil, ErrAbsent},
		"a long text":              {"repeat", []any{2 << 20, "a"}, nil, ErrTooMuch},
		"more than is left":        {"repeat", []any{900, strings.Repeat("a", 2000)}, nil, ErrTooMuch},
	} {
		t.Run(name, func(t *testing.T) {
			b := &Budget{Text: 1 << 20}
			got, err := b.Call(tt.fn, tt.args)
			if got != tt.want || !errors.Is(err, tt.err) {
				t.Errorf("Call() = %v, %v; want %v, %v", got, err, tt.want, tt.err)
			}
		})
	}
}

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
