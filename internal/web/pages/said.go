package pages

import (
	"maps"
)

// sentences are shown after an action; each file of screens adds its own
// by says.
var sentences = map[Said]string{}

// says registers sentences, at the start of the program.
func says(more map[Said]string) struct{} {
	maps.Copy(sentences, more)
	return struct{}{}
}

// Sentence is what s stands for, empty if it is no sentence of ours.
func Sentence(s Said) string { return sentences[s] }
