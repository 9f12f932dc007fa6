package ansi

import (
	"encoding/json"
	"html"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// The cases are a file, since the script that writes lines while a page is open
// is held to them as well: test/browser runs it.
func TestColoursBecomeClasses(t *testing.T) {
	raw, err := os.ReadFile("testdata/ansi.json")
	if err != nil {
		t.Fatal(err)
	}
	var tests []struct {
		Name        string
		Lines, HTML []string
	}
	if err := json.Unmarshal(raw, &tests); err != nil || len(tests) < 24 {
		t.Fatalf("%d cases, %v", len(tests), err)
	}
	for _, test := range tests {
		t.Run(test.Name, func(t *testing.T) {
			var a Terminal
			var got []string
			for _, line := range test.Lines {
				got = append(got, string(a.Line(line)))
			}
			if diff := cmp.Diff(got, test.HTML); diff != "" {
				t.Errorf("lines of %q (-got +want):\n%s", test.Lines, diff)
			}
		})
	}
}

// A stream of events holds text, so that this is for pages alone.
func TestBytesThatAreNoTextAreMarked(t *testing.T) {
	var a Terminal
	if got, want := string(a.Line("a\xff\xfeb")), "a\ufffdb"; got != want {
		t.Errorf("the line is %q, want %q", got, want)
	}
}

func TestALongLineIsCut(t *testing.T) {
	var a Terminal
	got := string(a.Line(strings.Repeat("x", 2*lineBytes)))
	if want := strings.Repeat("x", lineBytes) + "…"; got != want {
		t.Errorf("a line of %d bytes has %d in HTML, want %d", 2*lineBytes, len(got), len(want))
	}
}

// Sequences that never end must not be searched for their end again and again.
func TestHostileLinesTakeLinearTime(t *testing.T) {
	for _, s := range []string{"\x1b]", "\x1bP\x07", "\x1b[", "\u009d", "\x1b[1;1;1m"} {
		start := time.Now()
		var a Terminal
		for range 200 {
			a.Line(strings.Repeat(s, lineBytes/len(s)))
		}
		if took := time.Since(start); took > time.Minute {
			t.Errorf("200 lines of %q took %s", s, took)
		}
	}
}

// piece is all that the HTML of a line consists of.
var piece = regexp.MustCompile(`^(?:<span class="(?:a-[a-z]+[0-9]*)(?: a-[a-z]+[0-9]*)*">|</span>|&(?:lt|gt|amp|#34|#39);|[^<>&"'])`)

func FuzzLine(f *testing.F) {
	for _, s := range []string{
		"plain", "\x1b[31mred\x1b[0m", "\x1b]8;;javascript:alert(1)\x07x\x1b]8;;\x07", `</script><img src=x onerror=alert(1)>`,
		"\u009b1mx\u009dy\u009c", "a\rb\r\n", "\x1b[38;2;1;2;3;48:5:9mx", "\xff\x1b[\xffm", "\x1b\x1b[1m\x1b", "\x1b(0lqk\x1bPx\x1b\\",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var a Terminal
		out := string(a.Line(s))
		var text strings.Builder
		open := 0
		for rest := out; rest != ""; {
			p := piece.FindString(rest)
			if p == "" {
				t.Fatalf("line(%q) = %q, which is not only text and spans at %q", s, out, rest)
			}
			switch {
			case strings.HasPrefix(p, "<span"):
				open++
			case p == "</span>":
				open--
			default:
				text.WriteString(html.UnescapeString(p))
			}
			if open < 0 || open > 1 {
				t.Fatalf("line(%q) = %q, whose spans do not match", s, out)
			}
			rest = rest[len(p):]
		}
		if open != 0 || !utf8.ValidString(out) {
			t.Fatalf("line(%q) = %q, which does not end or is no text", s, out)
		}
		if got, want := text.String(), plain(s); got != want {
			t.Fatalf("line(%q) says %q, want %q", s, got, want)
		}
	})
}

// escapes are all sequences that a terminal takes for commands, in one
// expression: what the code under test is held against.
var escapes = regexp.MustCompile("" +
	"(?:\x1b\\[|\u009b)[0-?]*[ -/]*[@-~]" +
	"|(?:\x1b\\]|\u009d)(?s:.*?)(?:\x07|\x1b\\\\|\u009c)" +
	"|(?:\x1b[PX^_]|[\u0090\u0098\u009e\u009f])(?s:.*?)(?:\x1b\\\\|\u009c)" +
	"|(?:\x1b[\\[\\]PX^_])|[\u0090\u0098\u009b\u009d\u009e\u009f]" + // that do not end
	"|\x1b[ -/]+[0-~]?|\x1b[0-OQ-WYZ\\\\`-~]" +
	"|[\x00-\x08\x0a-\x1f\x7f\u0080-\u009f]")

// plain is s without commands for a terminal.
func plain(s string) string {
	s = strings.TrimRight(s, "\r\n")
	more := ""
	if len(s) > lineBytes {
		s, more = s[:lineBytes], "…"
	}
	s = s[strings.LastIndexByte(s, '\r')+1:]
	// Bytes that are no text stay apart from the expression, which reads text.
	var marked strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			marked.WriteRune(0x10ffff)
		} else {
			marked.WriteString(s[i : i+n])
		}
		i += n
	}
	s = escapes.ReplaceAllString(marked.String(), "\x00")
	var out strings.Builder
	bad := false
	for _, r := range s {
		switch {
		case r == 0x10ffff:
			if !bad {
				out.WriteRune(utf8.RuneError)
			}
		case r == 0:
		case turns(r):
			out.WriteRune(utf8.RuneError)
		default:
			out.WriteRune(r)
		}
		bad = r == 0x10ffff
	}
	return out.String() + more
}
