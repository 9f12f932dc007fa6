package expression

import (
	"strings"
	"testing"
)

func TestEval(t *testing.T) {
	object := map[string]any{
		"metadata": map[string]any{"generation": int64(2)},
		"spec":     map[string]any{"replicas": int64(3), "share": 0.5},
		"status":   map[string]any{"observedGeneration": int64(2), "phase": "Ready", "conditions": []any{map[string]any{"type": "Ready", "status": "True"}}},
	}
	row := map[string]string{"uid": "acme", "plan": "gold"}
	for name, tt := range map[string]struct {
		kind  *Kind
		value any
		expr  string
		want  bool
	}{
		"a field":                    {OverObject(), object, `object.status.phase == "Ready"`, true},
		"a generation":               {OverObject(), object, `object.status.observedGeneration >= object.metadata.generation`, true},
		"a condition":                {OverObject(), object, `object.status.conditions.exists(c, c.type == "Ready" && c.status == "True")`, true},
		"a number of another type":   {OverObject(), object, `object.spec.replicas > 2.5 && object.spec.share < 1`, true},
		"what may not be there":      {OverObject(), object, `has(object.status.url)`, false},
		"what may not be there, too": {OverObject(), map[string]any{}, `object.?status.?phase.orValue("") == "Ready"`, false},
		"a text":                     {OverObject(), object, `object.status.phase.lowerAscii().startsWith("re")`, true},
		"a row":                      {OverRow(), row, `row.plan in ["gold", "silver"]`, true},
		"a variable not mapped":      {OverRow(), row, `"seats" in row && int(row.seats) > 3`, false},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 { // compiled, then remembered
				if got, err := tt.kind.Eval(tt.expr, tt.value); err != nil || got != tt.want {
					t.Errorf("%s is %v (%v), want %v", tt.expr, got, err, tt.want)
				}
			}
		})
	}
}

func TestEvalRefuses(t *testing.T) {
	many := make([]any, 2000)
	for i := range many {
		many[i] = int64(i)
	}
	for name, tt := range map[string]struct {
		kind       *Kind
		expr, want string
		early      bool // known without a value
	}{
		"no expression":             {OverObject(), `object.`, "line 1, column 8: Syntax error", true},
		"another variable":          {OverObject(), `row.plan == ""`, "undeclared reference to 'row'", true},
		"two of them":               {OverRow(), `object.x && objects.y`, "'object' (in container ''); line 1, column 13: undeclared reference to 'objects'", true},
		"a number":                  {OverRow(), `1 + 1`, "it gives a int, not true or false", true},
		"a text of an object":       {OverObject(), `object.name`, "it gives a string, not true or false", false},
		"a row's text as a number":  {OverRow(), `row.uid > 3`, "found no matching overload", true},
		"what is not there":         {OverObject(), `object.status.phase == "x"`, "no such key: status", false},
		"a long expression":         {OverObject(), strings.Repeat(" ", 5000), "more than 4096", true},
		"an expensive one":          {OverObject(), `object.many.all(a, object.many.all(b, object.many.all(c, true)))`, "cost limit exceeded", false},
		"one without end in a text": {OverObject(), `object.name.matches("(") `, "error parsing regexp", false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := tt.kind.Check(tt.expr); (err != nil) != tt.early {
				t.Errorf("Check() = %v, want an error: %v", err, tt.early)
			}
			if _, err := tt.kind.Eval(tt.expr, map[string]any{"name": "x", "many": many}); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Eval() error = %v, want %q", err, tt.want)
			}
		})
	}
}

func FuzzEval(f *testing.F) {
	f.Add(`object.a == 1`)
	f.Add(`object.a.map(x, x.y)`)
	f.Add(`[1, 2].exists(x, x == object)`)
	f.Fuzz(func(t *testing.T, expr string) {
		_, err := OverObject().Eval(expr, map[string]any{"a": []any{int64(1), "x", nil}})
		if early := OverObject().Check(expr); early != nil && err == nil {
			t.Errorf("%q is refused (%v) and evaluated", expr, early)
		}
	})
}
