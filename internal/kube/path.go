package kube

import (
	"bytes"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/jsonpath"

	"github.com/terrier-iac/terrier/internal/plainyaml"
)

// ReadDocument reads YAML or JSON, as FindPath takes it, within the bounds of a file.
func ReadDocument(text []byte) (any, error) {
	data, err := plainyaml.File(text)
	if err != nil {
		return nil, err
	}
	var doc any
	if bytes.Equal(bytes.TrimSpace(data), []byte("null")) {
		return nil, nil
	}
	err = utiljson.Unmarshal(data, &doc) // whole numbers stay whole
	return doc, err
}

// CheckPath reports a path that FindPath cannot read: a JSON pointer, which begins with a
// slash, or a JSONPath, as kubectl has it.
func CheckPath(path string) error {
	if strings.HasPrefix(path, "/") {
		return nil
	}
	_, err := compilePath(path)
	return err
}

// FindPath returns what a path leads to in a document: no value if there is nothing, and
// several if it selects several.
func FindPath(doc any, path string) ([]any, error) {
	if strings.HasPrefix(path, "/") {
		return atPointer(doc, path), nil
	}
	compiled, err := compilePath(path)
	if err != nil {
		return nil, err
	}
	if doc == nil {
		return nil, nil
	}
	sets, err := compiled.FindResults(doc)
	if err != nil {
		return nil, nil //nolint:nilerr // an index out of range, or a field of a text: nothing is there
	}
	var all []any
	for _, set := range sets {
		for _, v := range set {
			for v.IsValid() && v.Kind() == reflect.Interface {
				v = v.Elem()
			}
			if v.IsValid() && v.CanInterface() {
				all = append(all, v.Interface())
			}
		}
	}
	return all, nil
}

func compilePath(path string) (*jsonpath.JSONPath, error) {
	text := strings.TrimSpace(path)
	if !strings.HasPrefix(text, "{") {
		if !strings.HasPrefix(text, ".") && !strings.HasPrefix(text, "[") && !strings.HasPrefix(text, "$") {
			text = "." + text
		}
		text = "{" + text + "}"
	}
	compiled := jsonpath.New("path").AllowMissingKeys(true)
	if err := compiled.Parse(text); err != nil {
		return nil, fmt.Errorf("%.80q is neither a JSONPath, as .spec.vlans[0].name, nor a JSON pointer, as /spec/vlans/0/name: %w", path, err)
	}
	return compiled, nil
}

// atPointer is what a JSON pointer leads to.
func atPointer(doc any, pointer string) []any {
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	for part := range strings.SplitSeq(pointer[1:], "/") {
		part = unescape.Replace(part)
		switch at := doc.(type) {
		case map[string]any:
			next, ok := at[part]
			if !ok {
				return nil
			}
			doc = next
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(at) {
				return nil
			}
			doc = at[i]
		default:
			return nil
		}
	}
	if doc == nil {
		return nil
	}
	return []any{doc}
}
