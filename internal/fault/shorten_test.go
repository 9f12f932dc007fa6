package fault

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// A long message keeps its beginning and its end, where the error is.
func TestShortenKeepsBothEnds(t *testing.T) {
	long := "writing Deployment web: " + strings.Repeat("a very long value ", 200) + ": quota exceeded"
	got := Shorten(long, 100)
	if !strings.HasPrefix(got, "writing Deployment web: ") || !strings.HasSuffix(got, ": quota exceeded") || !strings.Contains(got, cutOut) || len(got) != 100 {
		t.Errorf("Shorten() = %q, %d bytes", got, len(got))
	}
	for _, short := range []string{"", "a", strings.Repeat("x", 100)} {
		if got := Shorten(short, 100); got != short {
			t.Errorf("Shorten(%q) = %q", short, got)
		}
	}
}

// A shortened text has whole characters, and never more bytes than allowed.
func TestShortenKeepsCharacters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, most := rapid.String().Draw(t, "text"), rapid.IntRange(10, 60).Draw(t, "most")
		got := Shorten(text, most)
		if len(got) > most || !utf8.ValidString(got) || Shorten(got, most) != got {
			t.Fatalf("Shorten(%q, %d) = %q", text, most, got)
		}
	})
}
