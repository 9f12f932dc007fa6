package kube

import (
	"slices"
	"strings"
)

// An annotation is a text, so that no parser of YAML makes true or false of it. Users and
// templates write what YAML takes for one of the two.

// IsTrue reports whether the value of an annotation is true, in any of the words of YAML.
func IsTrue(v string) bool { return slices.Contains([]string{"true", "yes", "y", "on", "1"}, word(v)) }

// IsFalse reports whether it is false, in any of these words. An empty one is neither.
func IsFalse(v string) bool {
	return slices.Contains([]string{"false", "no", "n", "off", "0"}, word(v))
}

func word(v string) string { return strings.ToLower(strings.TrimSpace(v)) }
