package dialect

import (
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/stack/stacktest"
)

func TestEveryReasonIsTranslated(t *testing.T) {
	for _, r := range stacktest.Reasons(t, "../stack") {
		if _, ok := readiness[r]; !ok {
			t.Errorf("the reason %s has no row in readiness", r)
		}
	}
}

func TestCut(t *testing.T) {
	if got := cut(strings.Repeat("é", messageRunes+5) + "the end"); len([]rune(got)) > messageRunes || !strings.HasSuffix(got, "the end") {
		t.Errorf("cut() left %d runes", len(got))
	}
	if got := cut("short"); got != "short" {
		t.Errorf("cut(short) = %q", got)
	}
}
