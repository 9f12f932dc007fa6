package script

import (
	"strings"
	"testing"
)

func TestOutputs(t *testing.T) {
	flood := strings.Repeat("a line of a log\n", maxDocument/10)
	for name, tt := range map[string]struct{ printed, want, err string }{
		"nothing":                                     {"", "", ""},
		"no outputs":                                  {"hello\n{\"a\": 1}\n", "", ""},
		"a line":                                      {`{"outputs": {"a": 1}}`, `{"a":1}`, ""},
		"the last line of several":                    {"{\"outputs\":{\"a\":1}}\nhello\n{\"outputs\":{\"b\":\"<x>\"}}\nbye\n", `{"b":"<x>"}`, ""},
		"a document of several lines":                 {"{\n  \"outputs\": {\n    \"a\": [\n      {\"outputs\": {}}\n    ]\n  }\n}\n", `{"a":[{"outputs":{}}]}`, ""},
		"a line after a long log":                     {flood + "{\"outputs\":{\"a\":1}}\n" + flood, `{"a":1}`, ""},
		"outputs that are no object":                  {`{"outputs": [1]}`, "", ""},
		"the outputs of another object":               {`{"nested": {"outputs": {"a": 1}}}`, "", ""},
		"text that is no UTF-8, and a key twice":      {"{\"outputs\":{\"a\":\"\xff\",\"b\":1,\"b\":2}}", "{\"a\":\"\ufffd\",\"b\":2}", ""},
		"too much":                                    {`{"outputs":{"a":"` + strings.Repeat("x", MaxOutputs) + `"}}`, "", "at most 65536 are stored"},
		"a number beyond all":                         {`{"outputs":{"a":1e999}}`, "", "the number 1e999"},
		"a number as it is":                           {`{"outputs":{"a":9007199254740993}}`, `{"a":9007199254740993}`, ""},
		"a depth that no API server reads":            {`{"outputs":{"a":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}}`, "", "nested more than 64 levels"},
		"a line that is cut, as a supervisor cuts it": {`{"outputs":{"a":"… (9 bytes of this line left out)`, "", ""},
	} {
		var o Outputs
		for line := range strings.Lines(tt.printed) {
			o.Line([]byte(strings.TrimSuffix(line, "\n")))
		}
		got, err := o.Found()
		if string(got) != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: outputs = %s, error %v, want %s and %q", name, got, err, tt.want, tt.err)
		}
	}
}

// What a pod sends in place of outputs is refused.
func TestTidyOutputs(t *testing.T) {
	for _, bad := range []string{"", "null", "[]", "7", `{} {}`, `{"a":`, strings.Repeat(" ", maxLine) + "{}"} {
		if got, err := TidyOutputs([]byte(bad)); err == nil {
			t.Errorf("TidyOutputs(%.20q) = %s, want an error", bad, got)
		}
	}
}
