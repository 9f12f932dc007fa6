package gitstate

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/stack"
)

// note says beside an encrypted state who wrote it. Every user who may push can read and
// change it, so it holds no value, and a changed one hinders a run at most.
type note struct {
	Stack  string `json:"stack,omitempty"`
	UID    string `json:"uid,omitempty"`
	Run    string `json:"run,omitempty"`    // that left the state
	Person string `json:"person,omitempty"` // or the user who stored it
	Again  bool   `json:"again,omitempty"`  // or the state was there, and is encrypted again

	// Of is the digest of what is encrypted. The plain engine writes a document without a
	// note; a note that was copied to another document is none.
	Of string `json:"of"`
}

// noteKey is where a document has its note. OpenTofu reads past it.
const noteKey = "terrier"

// document is what a note is about.
type document struct {
	Encrypted json.RawMessage `json:"encrypted_data"`
	Note      json.RawMessage `json:"terrier"`
}

// on writes the note into a document.
func (n note) on(doc []byte) ([]byte, error) {
	var d document
	var all map[string]json.RawMessage
	err := json.Unmarshal(doc, &d)
	if err == nil {
		err = json.Unmarshal(doc, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the encrypted state: %w", err)
	}
	n.Of = stack.Sum(d.Encrypted)
	if all[noteKey], err = json.Marshal(n); err != nil {
		return nil, err
	}
	out, err := json.MarshalIndent(all, "", "  ")
	return append(out, '\n'), err
}

// noteOf is the note of a document; the zero one if it has none of its own.
func noteOf(doc []byte) note {
	var d document
	var n note
	if json.Unmarshal(doc, &d) != nil || json.Unmarshal(d.Note, &n) != nil || n.Of != stack.Sum(d.Encrypted) {
		return note{}
	}
	return n
}

// message is that of the commit. It names who wrote which version, and no value.
func (n note) message(ref kube.StateRef, facts stack.StateFacts) string {
	did := "store"
	if n.Again {
		did = "encrypt again"
	}
	var b strings.Builder
	of := ref.Namespace + "/" + line(n.Stack)
	fmt.Fprintf(&b, "%s the state of %s: serial %d\n\nStack: %s\n", did, of, facts.Serial, of)
	if n.Run != "" {
		fmt.Fprintf(&b, "Run: %s\n", line(n.Run))
	}
	if n.Person != "" {
		fmt.Fprintf(&b, "Person: %s\n", line(n.Person))
	}
	fmt.Fprintf(&b, "Serial: %d\nLineage: %s\n", facts.Serial, line(facts.Lineage))
	return b.String()
}

// line keeps a text on its own line.
func line(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
}
