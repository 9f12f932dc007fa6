// Package sealed makes and opens texts that say something of one run, and that no store keeps:
// the controller that starts the run makes such a text, and any controller with the same key
// checks it.
//
// A text can be read by its owner, and changed by none. It says what was true when it was made,
// until it expires; whether its run still goes on is for the code that opens it to ask. Texts
// of one purpose are worth nothing for another one, also with the same key.
//
// Start reading at Kind, then at Texts.
package sealed

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/secret"
)

// Kind is a kind of texts.
type Kind struct {
	Purpose string // what the key is derived for; no two kinds have the same
	Prefix  string // how the texts begin; it may be empty
	What    string // one of them, as errors name it: "token of the run"

	// The reasons of refusals, which are faults of kind Denied. They may be the same.
	Foreign string // of a text of another installation, a changed one, or none
	Expired string // of a text that was good
}

// Content is what a text says. It is written as JSON.
type Content interface {
	Check() error         // what is missing before it may be sealed
	Of() string           // the ID of the run
	ExpiresAt() time.Time // from then on the text is refused
}

// minKey is the least length of a key, in bytes.
const minKey = 16

// Texts seals and opens the texts of one kind.
type Texts[C Content] struct {
	kind Kind
	key  []byte
}

// New returns Texts. All controllers of an installation have the same key.
func New[C Content](kind Kind, key secret.Text) (*Texts[C], error) {
	k := []byte(key.Reveal())
	if len(k) < minKey {
		return nil, fmt.Errorf("the key for each %s has %d bytes, want at least %d", kind.What, len(k), minKey)
	}
	return &Texts[C]{kind, k}, nil
}

// encoding is strict: together with breaks, which it would pass over, one content has one text.
var encoding = base64.RawURLEncoding.Strict()

const breaks = "\r\n"

// Seal makes the text of a content.
func (t *Texts[C]) Seal(content C) (secret.Text, error) {
	if err := content.Check(); err != nil {
		return secret.Text{}, err
	}
	said, err := json.Marshal(content)
	if err != nil {
		return secret.Text{}, err
	}
	return secret.New(t.kind.Prefix + encoding.EncodeToString(said) + "." + encoding.EncodeToString(t.mac(said))), nil
}

// Open returns what a text says. One that is foreign, changed or expired is Denied; the error
// does not show it.
func (t *Texts[C]) Open(text string, now time.Time) (C, error) {
	var none, content C
	foreign := fault.New(fault.Denied, t.kind.Foreign, fmt.Errorf("the %s is not one of this installation", t.kind.What))
	rest, ok := strings.CutPrefix(text, t.kind.Prefix)
	first, second, parted := strings.Cut(rest, ".")
	said, errSaid := encoding.DecodeString(first)
	mac, errMAC := encoding.DecodeString(second)
	if !ok || !parted || strings.ContainsAny(text, breaks) || errors.Join(errSaid, errMAC) != nil || !hmac.Equal(mac, t.mac(said)) || json.Unmarshal(said, &content) != nil {
		return none, foreign
	}
	if end := content.ExpiresAt(); !now.Before(end) {
		return none, fault.New(fault.Denied, t.kind.Expired, fmt.Errorf("the %s %s expired at %s", t.kind.What, content.Of(), end.UTC().Format(time.RFC3339)))
	}
	return content, nil
}

func (t *Texts[C]) mac(said []byte) []byte {
	h := hmac.New(sha256.New, t.key)
	_, _ = h.Write([]byte(t.kind.Purpose + "\x00"))
	_, _ = h.Write(said)
	return h.Sum(nil)
}
