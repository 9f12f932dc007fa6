// Package plural puts numbers and nouns together for people.
//
// It knows English nouns that form their plural by rule, and no others: the callers name
// things that do. Start reading at Count.
package plural

import (
	"fmt"
	"strings"
)

// Count is a number of things in words: 1 tag, 2 tags, 3 entries, 4 patches.
func Count[N int | int64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %s", n, Of(noun))
}

// Of is the plural of a noun. Of several words the last one has it: more stacks.
func Of(noun string) string {
	for _, end := range []string{"s", "x", "ch", "sh"} {
		if strings.HasSuffix(noun, end) {
			return noun + "es"
		}
	}
	if root, ok := strings.CutSuffix(noun, "y"); ok && root != "" && !strings.ContainsRune("aeiou", rune(root[len(root)-1])) {
		return root + "ies"
	}
	return noun + "s"
}
