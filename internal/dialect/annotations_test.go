package dialect

import (
	"slices"
	"strings"
	"testing"
)

func TestSourcePaths(t *testing.T) {
	for text, tt := range map[string]struct {
		want []string
		says string // of the error
	}{
		"":                                {},
		" auto ":                          {want: []string{"auto"}},
		"[auto, ./modules/, '**/*.json']": {want: []string{"auto", "modules", "**/*.json"}},
		"['a/**/**/**/b/**/**']":          {want: []string{"a/**/b/**"}},
		"['**/a/**/b/**']":                {says: `terrier.dev/source-paths: the pattern "**/a/**/b/**" has ** 3 times`},
		"[../a]":                          {says: "the annotation terrier.dev/source-paths is"},
		"['[']":                           {says: "the annotation terrier.dev/source-paths is"},
		"x":                               {says: "it may be auto, or a YAML list"},
	} {
		got, err := sourcePaths(text)
		if (err != nil) != (tt.says != "") || err != nil && !strings.Contains(err.Error(), tt.says) || !slices.Equal(got, tt.want) {
			t.Errorf("sourcePaths(%q) = %q, %v, want %q and an error that says %q", text, got, err, tt.want, tt.says)
		}
	}
}
