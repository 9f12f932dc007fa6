package plan

import (
	"reflect"
	"strings"
)

// concealed lists where a change differs in nothing that may be seen: a masked
// document names these places, since what it shows of them before and after is
// the same.
func (d *Document) concealed(change map[string]any) []string {
	w := differ{doc: d, unseen: texts(nil, change["sensitive_changes"])}
	w.walk(nil,
		side{change["before"], change["before_sensitive"]},
		side{change["after"], change["after_sensitive"]},
		change["after_unknown"])
	var out []string
	for _, diff := range w.out {
		if !diff.Unknown && reflect.DeepEqual(diff.Before, diff.After) {
			out = append(out, d.hide.String(diff.Path))
		}
	}
	return out
}

// conceals reports whether something that may not be seen differs at a path or
// below it.
func (d *differ) conceals(path []any) bool {
	if len(d.unseen) == 0 {
		return false
	}
	at := pathText(path)
	for _, p := range d.unseen {
		rest, below := strings.CutPrefix(p, at)
		if below && (rest == "" || at == "" || strings.ContainsRune(".[(", rune(rest[0]))) {
			return true
		}
	}
	return false
}
