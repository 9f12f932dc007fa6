package pages

import (
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

func TestRevisionsInShort(t *testing.T) {
	for in, want := range map[string]string{
		"main@sha1:4f1c9ab2d7e0c5a1b3f8": "main@4f1c9ab2", "v1.2.3@sha256:0123456789abcdef": "v1.2.3@01234567", "sha1:4f1c9ab2d7e0": "4f1c9ab2",
		"main@sha1:abc": "main@abc", "latest": "latest", "": "", "feature/a@b": "feature/a@b", "main@sha1:NOT-A-DIGEST": "main@NOT-A-DIGEST",
	} {
		if got := ui.Revision(in); got != want {
			t.Errorf("revision(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestCutting(t *testing.T) {
	for _, tt := range []struct {
		n        int
		in, want string
	}{{3, "abc", "abc"}, {3, "abcd", "abc…"}, {3, "🦮🦮🦮🦮", "🦮🦮🦮…"}, {4, "abc def", "abc…"}, {0, "a", "…"}, {2, "", ""}} {
		if got := ui.Cut(tt.n, tt.in); got != tt.want || !utf8.ValidString(got) {
			t.Errorf("cut(%d, %q) = %q, want %q", tt.n, tt.in, got, tt.want)
		}
	}
}

// The error of a long message is mostly at its end.
func TestLongMessagesKeepBothEnds(t *testing.T) {
	for _, tt := range []struct {
		n        int
		in, want string
	}{{4, "abcd", "abcd"}, {4, "abcdef", "ab … ef"}, {4, "🦮🦮🦮🦮🦮", "🦮🦮 … 🦮🦮"}, {6, "ab cdef gh", "ab … gh"}, {2, "", ""}} {
		if got := ui.Ends(tt.n, tt.in); got != tt.want {
			t.Errorf("ends(%d, %q) = %q, want %q", tt.n, tt.in, got, tt.want)
		}
	}
}

func TestNumbersAndTimes(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000"} {
		if got := ui.Thousands(n); got != want {
			t.Errorf("thousands(%d) = %q, want %q", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{0: "0s", 12 * time.Millisecond: "12ms", 1540 * time.Millisecond: "1.5s", 90 * time.Second: "1m30s", time.Minute: "1m", 10 * time.Minute: "10m", time.Hour: "1h", 2*time.Hour + 90*time.Second: "2h2m"} {
		if got := ui.Took(d); got != want {
			t.Errorf("took(%v) = %q, want %q", d, got, want)
		}
	}
	for n, want := range map[int]string{12: "12 B", 20 << 10: "20 KiB", 19 << 20: "19 MiB"} {
		if got := query.Size(n); got != want {
			t.Errorf("size(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestAddressesWithOneValueChanged(t *testing.T) {
	q := url.Values{"q": {"a b"}, "status": {"failed", "ready"}, "done": {"asked"}}
	for want, got := range map[string]string{
		"/x?q=a+b&status=failed&status=ready": ui.With("/x", q, ""),
		"/x?q=a+b":                            ui.With("/x", q, "status"),
		"/x?q=a+b&status=locked":              ui.With("/x", q, "status", "locked"),
		"/x":                                  ui.With("/x", nil, "q", ""),
		"/x?q=%3Cscript%3E":                   ui.With("/x", nil, "q", "<script>"),
		"/x?q=a+b&sort=-name&status=failed&status=ready": ui.With("/x", q, "sort", "-name"),
	} {
		if got != want {
			t.Errorf("with() = %q, want %q", got, want)
		}
	}
}

func TestAddressesInAState(t *testing.T) {
	for address, want := range map[string][]string{
		"world_thing.one": {"", "world_thing", "world_thing.one"},
		`module.a["x.y]"].module.b[0].world_thing.one["a.b"]`: {`module.a["x.y]"].module.b[0]`, "world_thing", `world_thing.one["a.b"]`},
		"module.net.data.world_zone.all":                      {"module.net", "data.world_zone", "data.world_zone.all"},
		`module.a["q\"].x"].world_thing.one`:                  {`module.a["q\"].x"]`, "world_thing", "world_thing.one"},
		"":                                                    {"", "", ""},
	} {
		module, kind, short := splitAddress(address)
		if diff := cmp.Diff([]string{module, kind, short}, want); diff != "" {
			t.Errorf("%s (-got +want):\n%s", address, diff)
		}
	}
}

// Whatever an address looks like, nothing of it is lost.
func FuzzSplitAddress(f *testing.F) {
	f.Add(`module.a["x"].t.n`)
	f.Add("module.")
	f.Fuzz(func(t *testing.T, address string) {
		module, _, short := splitAddress(address)
		whole := short
		if module != "" {
			whole = module + "." + short
		}
		if whole != address {
			t.Errorf("%q comes apart into %q and %q", address, module, short)
		}
	})
}

// The colours of both themes are told apart from what is behind them as WCAG AA
// asks for.
func TestContrast(t *testing.T) {
	css, err := files.ReadFile("static/app.css")
	if err != nil {
		t.Fatal(err)
	}
	light, dark := palettes(t, string(css))
	for theme, p := range map[string]map[string]string{"light": light, "dark": dark} {
		check := func(fore, back string, least float64) {
			t.Helper()
			if got := contrast(t, p[fore], p[back]); got < least {
				t.Errorf("%s: --%s on --%s has a contrast of %.2f, want %.1f", theme, fore, back, got, least)
			}
		}
		for _, back := range []string{"ground", "surface", "sunken", "hover"} {
			for _, fore := range []string{"text", "muted", "accent", "ok", "bad", "warn"} {
				check(fore, back, 4.5)
			}
		}
		for _, tone := range []string{"ok", "bad", "warn", "busy", "drift", "idle", "accent"} {
			check(tone, tone+"-soft", 4.5)
			check("text", tone+"-soft", 4.5)
		}
		check("on-accent", "accent", 4.5)
		check("muted", "accent-soft", 4.5)
		check("edge", "surface", 3)
		check("edge", "ground", 3)
	}
}

// Colours are named once: what comes after the names uses them.
func TestSheetsNameNoColours(t *testing.T) {
	css, err := files.ReadFile("static/app.css")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(css), "/* Elements */")
	rest, _, _ = strings.Cut(rest, "@media print")
	for _, word := range []string{"light-dark(", "rgb(", "#fff", "white", "black"} {
		if strings.Contains(strings.ReplaceAll(rest, "white-space", ""), word) {
			t.Errorf("a rule of app.css names a colour: %s", word)
		}
	}
}
