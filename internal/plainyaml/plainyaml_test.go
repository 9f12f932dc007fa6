package plainyaml

import (
	"fmt"
	"strings"
	"testing"
)

// flat is a list that repeats one text many times.
func flat(bytes, times int) string {
	return `[&a "` + strings.Repeat("x", bytes) + `"` + strings.Repeat(",*a", times) + "]"
}

// nested doubles a value a number of times.
func nested(times int) string {
	var b strings.Builder
	b.WriteString("a0: &a0 [x, x]\n")
	for i := range times {
		fmt.Fprintf(&b, "a%d: &a%d [*a%d, *a%d]\n", i+1, i+1, i, i)
	}
	return b.String()
}

func TestTextsOfAnnotations(t *testing.T) {
	for name, text := range map[string]string{
		"aliases":           flat(10, 3),
		"many aliases":      flat(10<<10, 5000),
		"nested":            nested(20),
		"an anchor":         "a: &b c",
		"an anchored key":   "&a b: c",
		"a merge":           "{a: &b {c: d}, e: {<<: *b}}",
		"itself":            "a: &b [*b]",
		"no anchor":         "[*a]",
		"large":             `["` + strings.Repeat("x", MaxAnnotation) + `"]`,
		"in another coding": "\xff\xfe[\x00&\x00a\x00 \x00b\x00,\x00*\x00a\x00]\x00",
	} {
		if got, err := Annotation(text); err == nil {
			t.Errorf("%s: Annotation() = %.80q, want an error", name, got)
		}
		var into any
		if err := Decode(text, &into); err == nil {
			t.Errorf("%s: Decode() = %.80v, want an error", name, into)
		}
	}
	got, err := Annotation("- {url: 'https://example.com/?a=1&b=2', path: '*.tf', also: yes, plain: a&b}")
	if want := `[{"also":true,"path":"*.tf","plain":"a&b","url":"https://example.com/?a=1\u0026b=2"}]`; err != nil || strings.ReplaceAll(string(got), `\u0026b"`, `&b"`) != want {
		t.Errorf("Annotation() = %s, %v, want %s", got, err, want)
	}
}

func TestFilesOfRepositories(t *testing.T) {
	for name, text := range map[string]string{
		"many aliases": flat(128<<10, 1000),
		"nested":       nested(30),
		"itself":       "a: &b [*b]",
		"large":        strings.Repeat("#", MaxFile+1),
	} {
		if got, err := File([]byte(text)); err == nil {
			t.Errorf("%s: File() = %.80q, want an error", name, got)
		}
	}
	for text, want := range map[string]string{
		flat(2, 2):                            `["xx","xx","xx"]`,
		"{a: &b {c: d}, e: {<<: *b}, f: yes}": `{"a":{"c":"d"},"e":{"c":"d"},"f":true}`,
		"":                                    "null",
	} {
		if got, err := File([]byte(text)); err != nil || string(got) != want {
			t.Errorf("File(%q) = %s, %v, want %s", text, got, err, want)
		}
	}
}

// A larger file is bounded by its caller, and what is in it once is no repetition.
func TestLargeFiles(t *testing.T) {
	const most = 4 << 20
	large := "[&a 1, *a" + strings.Repeat(", 1", most/6) + "]"
	if got, err := Within([]byte(large), most); err != nil || len(got) < most/6 {
		t.Errorf("Within() = %d bytes, %v, want the list", len(got), err)
	}
	for name, text := range map[string]string{"many aliases": flat(1<<20, 100), "larger": strings.Repeat("#", most+1)} {
		if got, err := Within([]byte(text), most); err == nil {
			t.Errorf("%s: Within() = %d bytes, want an error", name, len(got))
		}
	}
}
