package logfile

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

var wroteAt = time.Date(2026, 3, 14, 16, 9, 26, 535_897_932, time.FixedZone("", 3600))

const wrote = "2026-03-14T15:09:26.535Z "

func readLog(t *testing.T, r io.Reader, timestamps bool) string {
	t.Helper()
	got, err := io.ReadAll(Read(io.NopCloser(r), timestamps))
	if err != nil {
		t.Fatal(err)
	}
	return string(got)
}

func TestLogsAreReadWithAndWithoutTimes(t *testing.T) {
	for name, c := range map[string]struct{ file, timed, plain string }{
		"nothing":                           {},
		"each line has a time":              {wrote + "a\n" + wrote + "\n" + wrote + "b", wrote + "a\n" + wrote + "\n" + wrote + "b", "a\n\nb"},
		"an earlier release wrote no times": {"$ tofu init\n\nb\n", "- $ tofu init\n- \n- b\n", "$ tofu init\n\nb\n"},
		"a line of an earlier release looks as if it had one": {"$ tofu init\n" + wrote + "b\n", "- $ tofu init\n- " + wrote + "b\n", "$ tofu init\n" + wrote + "b\n"},
		"a text looks as if it had one":                       {wrote + wrote + "b\n", wrote + wrote + "b\n", wrote + "b\n"},
		"the time of the last line is not complete":           {wrote + "a\n" + wrote[:9], wrote + "a\n", "a\n"},
		"a line lost its time":                                {wrote + "a\n2026!\n" + wrote + "b\n", wrote + "a\n- 2026!\n" + wrote + "b\n", "a\n2026!\nb\n"},
	} {
		for timestamps, want := range map[bool]string{true: c.timed, false: c.plain} {
			if got := readLog(t, strings.NewReader(c.file), timestamps); got != want {
				t.Errorf("%s: with timestamps %t, %q is read as %q, want %q", name, timestamps, c.file, got, want)
			}
			if got := readLog(t, iotest.OneByteReader(strings.NewReader(c.file)), timestamps); got != want {
				t.Errorf("%s, byte by byte: with timestamps %t, %q is read as %q, want %q", name, timestamps, c.file, got, want)
			}
		}
	}
}

// FuzzReadLog shows that a text comes back as it was, and that a part of a log is
// read as a part of the whole: a position stays valid while the log grows.
func FuzzReadLog(f *testing.F) {
	f.Add("a\n\nb\r\nc", uint16(30))
	f.Fuzz(func(t *testing.T, text string, at uint16) {
		file := string(WithTime(text, wroteAt))
		if got := readLog(t, strings.NewReader(file), false); got != text {
			t.Errorf("%q is read as %q", text, got)
		}
		for _, log := range []string{file, text} {
			for _, timestamps := range []bool{true, false} {
				whole := readLog(t, strings.NewReader(log), timestamps)
				if part := readLog(t, strings.NewReader(log[:min(int(at), len(log))]), timestamps); !strings.HasPrefix(whole, part) {
					t.Errorf("a part of %q is read as %q, the whole as %q", log, part, whole)
				}
			}
		}
	})
}
