package input

import (
	"bytes"

	"github.com/terrier-iac/terrier/internal/plan"
)

// spellings are the texts by which the value of a key of a Secret is known when
// it is shown: itself and, of a list or an object, every text and number in it.
// A value that only looks like JSON is known by itself alone.
func spellings(value []byte) []string {
	all := []string{string(value)}
	if trimmed := bytes.TrimSpace(value); len(trimmed) > 0 && (trimmed[0] == '[' || trimmed[0] == '{') {
		all = append(all, plan.Texts(trimmed)...)
	}
	return all
}
