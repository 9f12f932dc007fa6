package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/fault"
)

func TestClean(t *testing.T) {
	for name, tt := range map[string]struct{ in, want string }{
		"plain text stays":             {"añ →", "añ →"},
		"lines become one":             {"a\nb\r\nc", "a | b | c"},
		"tabs become spaces":           {"a\tb", "a b"},
		"sequences are made visible":   {"\x1b[31mred\x1b]0;title\a", `\x1b[31mred\x1b]0;title\a`},
		"also those of one character":  {"\u009b31m", `\u009b31m`},
		"directions are not reversed":  {"a\u202eb", `a\u202eb`},
		"broken text is made visible":  {"a\xffb", `a\xffb`},
		"what replaces it stays":       {"a\ufffdb", "a\ufffdb"},
		"invisible marks are visible":  {"a\u200bb\ufeff", `a\u200bb\ufeff`},
		"the edge of a line is no end": {"\n\nx\n", "x"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := clean(tt.in); got != tt.want {
				t.Errorf("clean(%q) = %q, want %q", tt.in, got, tt.want)
			}
		})
	}
}

// However a log is cut into pieces, it reads the same and moves no cursor.
func FuzzCleanWriter(f *testing.F) {
	f.Add("añ\x1b[2J→\xff\n", 1)
	f.Add("a\r\nb", 2)
	f.Fuzz(func(t *testing.T, text string, n int) {
		if n < 1 || n > 16 || strings.Contains(text, "\r") {
			return
		}
		var b bytes.Buffer
		w := &cleanWriter{w: &b}
		for i := 0; i < len(text); i += n {
			if _, err := w.Write([]byte(text[i:min(len(text), i+n)])); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if got, want := b.String(), cleanText(text); got != want {
			t.Errorf("in pieces of %d: %q, want %q", n, got, want)
		}
		for _, r := range b.String() {
			if r != '\n' && r != '\t' && !shown(r) && r != utf8.RuneError {
				t.Errorf("%q comes through", r)
			}
		}
	})
}

// JSON for programs is the same JSON, and harmless on a terminal.
func TestPrintJSON(t *testing.T) {
	want := map[string]string{"a": "\u009b31m\u202e \U000e0001 añ \x1b"}
	raw, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	p := newProgram(Env{Stdout: &b})
	if p.printJSON(raw); p.failed != nil {
		t.Fatal(p.failed)
	}
	for _, r := range b.String() {
		if r != '\n' && !shown(r) {
			t.Errorf("%q comes through", r)
		}
	}
	var got map[string]string
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("the value (-got +want):\n%s", diff)
	}
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 90 * time.Second: "90s", 5*time.Minute + 3*time.Second: "5m3s", 5 * time.Minute: "5m", 59 * time.Minute: "59m", 47 * time.Hour: "47h", 73 * time.Hour: "3d",
	} {
		if got := span(d); got != want {
			t.Errorf("span(%v) = %q, want %q", d, got, want)
		}
	}
}

func TestTable(t *testing.T) {
	var b bytes.Buffer
	tb := &table{head: []string{"NAME", "READY", "MESSAGE"}}
	tb.add(plain("ñet"), cell{"True", green}, plain("fine"))
	tb.add(plain("evil\x1b[2J"), cell{"False", red}, plain("two\nlines"))
	if err := tb.print(&b, false); err != nil {
		t.Fatal(err)
	}
	tb.add(plain("x"), plain(""), plain(""))
	if err := tb.print(&b, true); err != nil {
		t.Fatal(err)
	}
	want := `NAME          READY   MESSAGE
ñet           True    fine
evil\x1b[2J   False   two | lines
x
`
	if diff := cmp.Diff(b.String(), want); diff != "" {
		t.Errorf("table (-got +want):\n%s", diff)
	}
}

// An answer that cannot be printed is a failure of the command.
func TestAnAnswerThatCannotBePrinted(t *testing.T) {
	e := env(t)
	var errs bytes.Buffer
	e.Args, e.Stdout, e.Stderr = []string{"version"}, full{}, &errs
	if got := run(t.Context(), e); got != fault.Broken.Meaning().Exit || !strings.Contains(errs.String(), "no space left") {
		t.Errorf("run() without room for the answer = %d, %q, want %d and the reason", got, errs.String(), fault.Broken.Meaning().Exit)
	}
}

// full is a file on a full disk.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// The error of a long message is mostly at its end.
func TestLongMessagesKeepBothEnds(t *testing.T) {
	for in, want := range map[string]string{"": "", "0123456789": "0123456789", "0123456789a": "012 … 789a", "🦮🦮🦮🦮🦮🦮🦮🦮🦮🦮🦮": "🦮🦮🦮 … 🦮🦮🦮🦮"} {
		if got := ends(in, 10); got != want {
			t.Errorf("ends(%q) = %q, want %q", in, got, want)
		}
	}
}
