package fault

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestOneLine(t *testing.T) {
	for name, tt := range map[string]struct{ in, want string }{
		"one line stays":              {"  as it is ", "  as it is "},
		"a bar is between two lines":  {"exit code 3: creating\naccess denied\n", "exit code 3: creating | access denied"},
		"empty lines are left out":    {"a\n\n \r\n\tb", "a | b"},
		"frames of engines, too":      {"╷\n│ Error: no bucket\n│ \n│   on main.tf line 1\n╵\n", "Error: no bucket | on main.tf line 1"},
		"a frame is only at the edge": {"a │ b\nc", "a │ b | c"},
	} {
		if got := OneLine(tt.in); got != tt.want {
			t.Errorf("%s: OneLine(%q) = %q, want %q", name, tt.in, got, tt.want)
		}
	}
}

// It is one line, and keeps each word.
func TestOneLineLosesNoWord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOf(rapid.StringMatching(`[a-z ]{0,8}`)).Draw(t, "lines")
		got := OneLine(strings.Join(lines, "\n"))
		if strings.Contains(got, "\n") || strings.Join(strings.Fields(strings.ReplaceAll(got, "|", " ")), " ") != strings.Join(strings.Fields(strings.Join(lines, " ")), " ") {
			t.Fatalf("OneLine(%q) = %q", lines, got)
		}
	})
}
