package pages

import (
	"html"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestColoursBecomeClasses(t *testing.T) {
	tests := map[string]struct{ in, want string }{
		"plain text stays":                         {"a b\tc", "a b\tc"},
		"markup is text":                           {`<script>alert("1")</script> & '`, `&lt;script&gt;alert(&#34;1&#34;)&lt;/script&gt; &amp; &#39;`},
		"a colour":                                 {"\x1b[31mred\x1b[0m not", `<span class="a-f1">red</span> not`},
		"no parameter is a reset":                  {"\x1b[1mbold\x1b[m not", `<span class="a-bold">bold</span> not`},
		"styles add up":                            {"\x1b[1;4m\x1b[92mx", `<span class="a-bold a-under a-f10">x</span>`},
		"styles end one by one":                    {"\x1b[1;2;3;4;7;9mx\x1b[22;23;24;27;29my", `<span class="a-bold a-faint a-italic a-under a-invert a-cross">x</span>y`},
		"a background":                             {"\x1b[44;37mx\x1b[39;49my", `<span class="a-f7 a-b4">x</span>y`},
		"one of 256 is the nearest of 16":          {"\x1b[38;5;196mx\x1b[38;5;15my\x1b[48;5;232mz", `<span class="a-f1">x</span><span class="a-f15">y</span><span class="a-f15 a-b0">z</span>`},
		"a true colour is the nearest of 16":       {"\x1b[38;2;250;250;250mx", `<span class="a-f15">x</span>`},
		"colons part, too":                         {"\x1b[38:2::255:255:255mx\x1b[0;38:5:2my\x1b[0;4:3mz\x1b[4:0m.", `<span class="a-f15">x</span><span class="a-f2">y</span><span class="a-under">z</span>.`},
		"a colour that does not end is none":       {"\x1b[38;5mx", "x"},
		"numbers that nobody knows change nothing": {"\x1b[31;999;75mx", `<span class="a-f1">x</span>`},
		"the cursor stays where it is":             {"a\x1b[2Kb\x1b[1;1Hc\x1b[?25ld\x1b[>4;1me\x1b[1 qf", "abcdef"},
		"titles and links are left out":            {"a\x1b]0;title\x07b\x1b]8;;https://evil.example\x1b\\link\x1b]8;;\x1b\\c", "ablinkc"},
		"strings for devices are left out":         {"a\x1bPq#0\x1b\\b\x1b_x\x1b\\c\x1b^x\x1b\\d\x1bXx\x1b\\e", "abcde"},
		"a bell ends no string for a device":       {"a\x1bPq\x07x\x1b\\b", "ab"},
		"single characters that stand for escapes": {"a\u009b31mb\u009d0;t\u009cc\u0085d", `a<span class="a-f1">b</span><span class="a-f1">c</span><span class="a-f1">d</span>`},
		"what does not end hides nothing":          {"a\x1b]0;title", "a0;title"},
		"neither does a sequence":                  {"a\x1b[31", "a31"},
		"character sets are left out":              {"a\x1b(Bb\x1b=c\x1b", "abc"},
		"control characters are left out":          {"a\x00b\x08c\x7fd\x0be", "abcde"},
		"bytes that are no text are marked":        {"a\xff\xfeb", "a�b"},
		"text does not turn around":                {"a\u202eb\u2066c", "a�b�c"},
		"the end of a line is no text":             {"a\r\n", "a"},
		"a meter shows its last word":              {"10%\r50%\r\x1b[32m100%", `<span class="a-f2">100%</span>`},
		"a colour outlives what is written over":   {"\x1b[31m10%\rdone", `<span class="a-f1">done</span>`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var a ansi
			if got := string(a.line(test.in)); got != test.want {
				t.Errorf("line(%q) = %s, want %s", test.in, got, test.want)
			}
		})
	}
}

func TestColoursGoOnFromLineToLine(t *testing.T) {
	var a ansi
	a.line("\x1b[31mone")
	if got, want := string(a.line("two\x1b[0m three")), `<span class="a-f1">two</span> three`; got != want {
		t.Errorf("the second line is %s, want %s", got, want)
	}
}

func TestALongLineIsCut(t *testing.T) {
	var a ansi
	got := string(a.line(strings.Repeat("x", 2*lineBytes)))
	if want := strings.Repeat("x", lineBytes) + "…"; got != want {
		t.Errorf("a line of %d bytes has %d in HTML, want %d", 2*lineBytes, len(got), len(want))
	}
}

// Sequences that never end must not be searched for their end again and again.
func TestHostileLinesTakeLinearTime(t *testing.T) {
	for _, s := range []string{"\x1b]", "\x1bP\x07", "\x1b[", "\u009d", "\x1b[1;1;1m"} {
		start := time.Now()
		var a ansi
		for range 200 {
			a.line(strings.Repeat(s, lineBytes/len(s)))
		}
		if took := time.Since(start); took > 5*time.Second {
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
		var a ansi
		out := string(a.line(s))
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
