package notify

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/terrier-iac/terrier/internal/fault"
)

// Types of providers.
const (
	Generic = "generic"
	HMAC    = "generic-hmac"
	Slack   = "slack"
	Teams   = "msteams"
)

// Types lists the types of providers that can be delivered to.
func Types() []string { return []string{Generic, HMAC, Slack, Teams} }

// Bounds of what chats are shown; both refuse what is too long as a whole.
const (
	textRunes  = 2000
	factRunes  = 200
	factsShown = 10
)

// payload is the body for a destination.
func payload(d Destination, e Event) ([]byte, error) {
	switch d.Type {
	case Generic, HMAC:
		return json.Marshal(e)
	case Slack:
		return json.Marshal(slackMessage(d, e))
	case Teams:
		return json.Marshal(teamsMessage(e))
	default:
		return nil, fault.New(fault.Invalid, "ProviderTypeUnknown", fmt.Errorf("providers of the type %.40q are not delivered to; there are %s", d.Type, strings.Join(Types(), ", ")))
	}
}

// heading is what people read first: kind/name.namespace, as Flux has it.
func heading(e Event) string {
	o := e.InvolvedObject
	return strings.ToLower(o.Kind) + "/" + o.Name + "." + o.Namespace
}

// fact is a name and a value, for people.
type fact struct{ name, value string }

// facts are those of the metadata that are shown, sorted by name.
func facts(e Event) []fact {
	var out []fact
	for _, key := range slices.Sorted(maps.Keys(e.Metadata)) {
		if len(out) == factsShown {
			break
		}
		out = append(out, fact{shown(key, factRunes), shown(e.Metadata[key], factRunes)})
	}
	return out
}

// shown is text without what moves a cursor, hides or reorders other text, and
// no longer than most.
func shown(text string, most int) string {
	var b strings.Builder
	n := 0
	for _, r := range text {
		switch {
		case r == utf8.RuneError, r != '\n' && unicode.IsControl(r), unicode.Is(unicode.Cf, r):
			continue
		}
		if n++; n > most {
			b.WriteString("…")
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}
