package stack

import (
	"regexp"
	"sync"
)

// Fields names the fields of an object that its runs may be told, for messages.
const Fields = "metadata.name, metadata.namespace, metadata.uid, metadata.labels['KEY'] and metadata.annotations['KEY']"

var fieldPath = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^metadata\.(name|namespace|uid|(labels|annotations)\['([^']+)'\])$`)
})

// IsField reports whether path is one of Fields.
func IsField(path string) bool { return fieldPath().MatchString(path) }

// CutField takes path apart: metadata.labels['team'] is team of labels. The key
// is empty for what has none.
func CutField(path string) (of, key string, ok bool) {
	m := fieldPath().FindStringSubmatch(path)
	switch {
	case m == nil:
		return "", "", false
	case m[2] != "":
		return m[2], m[3], true
	default:
		return m[1], "", true
	}
}
