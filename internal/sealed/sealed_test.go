package sealed_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/sealed"
	"github.com/terrier-iac/terrier/internal/secret"
)

type note struct {
	Run  string    `json:"run"`
	Text string    `json:"text"`
	End  time.Time `json:"end"`
}

func (n note) Of() string           { return n.Run }
func (n note) ExpiresAt() time.Time { return n.End }
func (n note) Check() error {
	if n.Run == "" {
		return errors.New("the note is of no run")
	}
	return nil
}

var (
	now   = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	notes = sealed.Kind{Purpose: "notes", Prefix: "note.", What: "note of the run", Foreign: "NoteForeign", Expired: "NoteExpired"}
	mine  = note{Run: "plan-1", Text: "hello", End: now.Add(time.Hour)}
)

const ours, theirs = "0123456789abcdef", "fedcba9876543210"

func texts(t testing.TB, k sealed.Kind, key string) *sealed.Texts[note] {
	t.Helper()
	all, err := sealed.New[note](k, secret.New(key))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func sealedBy(t testing.TB, k sealed.Kind, key string, n note) string {
	t.Helper()
	text, err := texts(t, k, key).Seal(n)
	if err != nil {
		t.Fatal(err)
	}
	return text.Reveal()
}

func TestATextSaysWhatWasSealed(t *testing.T) {
	text, err := texts(t, notes, ours).Seal(mine)
	if err != nil {
		t.Fatal(err)
	}
	got, err := texts(t, notes, ours).Open(text.Reveal(), now) // as another controller does
	if err != nil || got != mine {
		t.Errorf("Open() = %+v, %v, want %+v", got, err, mine)
	}
	if shown := fmt.Sprint(text); strings.Contains(shown, "note.") {
		t.Errorf("a text prints as %q", shown)
	}
}

// A text of another installation, purpose or form, a changed one and an expired one are
// refused, and no error shows the text.
func TestRefusals(t *testing.T) {
	good := sealedBy(t, notes, ours, mine)
	said, mac, _ := strings.Cut(strings.TrimPrefix(good, "note."), ".")
	another := notes
	another.Purpose = "letters"
	changed, _, _ := strings.Cut(sealedBy(t, notes, theirs, note{Run: "plan-1", Text: "other", End: mine.End}), ".")
	for name, tt := range map[string]struct {
		text   string
		at     time.Time
		reason string
	}{
		"of another installation":           {sealedBy(t, notes, theirs, mine), now, "NoteForeign"},
		"for another purpose":               {sealedBy(t, another, ours, mine), now, "NoteForeign"},
		"with another content":              {changed + "." + mac, now, "NoteForeign"},
		"without a MAC":                     {"note." + said + ".", now, "NoteForeign"},
		"without a second part":             {"note." + said, now, "NoteForeign"},
		"without its prefix":                {said + "." + mac, now, "NoteForeign"},
		"with a line break":                 {good + "\n", now, "NoteForeign"},
		"padded":                            {good + "=", now, "NoteForeign"},
		"none":                              {"", now, "NoteForeign"},
		"in the moment in which it expires": {good, mine.End, "NoteExpired"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := texts(t, notes, ours).Open(tt.text, tt.at)
			if fault.Of(err) != fault.Denied || fault.Reason(err, "") != tt.reason || got != (note{}) {
				t.Errorf("Open() = %+v, %v, want Denied with %s", got, err, tt.reason)
			}
			if err != nil && len(tt.text) > 0 && strings.Contains(err.Error(), tt.text) {
				t.Errorf("the error shows the text: %v", err)
			}
		})
	}
}

func TestWhatIsNotSealed(t *testing.T) {
	if _, err := texts(t, notes, ours).Seal(note{End: now}); err == nil {
		t.Error("Seal() takes a content that is not complete")
	}
	if _, err := sealed.New[note](notes, secret.New("short")); err == nil || !strings.Contains(err.Error(), "note of the run has 5 bytes") {
		t.Errorf("New() = %v, want an error about the length of the key", err)
	}
}

func FuzzOpen(f *testing.F) {
	good := sealedBy(f, notes, ours, mine)
	f.Add(good)
	all := texts(f, notes, ours)
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := all.Open(text, now); err == nil && text != good {
			t.Errorf("Open(%q) = nil", text)
		}
	})
}
