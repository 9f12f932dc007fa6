package stack

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// StateID is one version of a state.
type StateID struct {
	Lineage  string `json:"lineage,omitempty"`
	Serial   uint64 `json:"serial,omitempty"`
	Digest   string `json:"digest,omitempty"`   // sha256 of its bytes
	Unstored bool   `json:"unstored,omitempty"` // a run made it, and something else was stored by then
}

// StateFacts are what can be said of a state without knowing its resources.
type StateFacts struct {
	StateID
	Bytes     int  `json:"bytes,omitempty"`
	Resources int  `json:"resources,omitempty"` // managed resource instances
	Sealed    bool `json:"sealed,omitempty"`    // the state is encrypted and shows nothing of them

	Encrypted bool `json:"encrypted,omitempty"` // with a key of the platform, in a backend of the stack's own

	Content string `json:"content,omitempty"` // digest of which resources these are; a state that an engine copies elsewhere keeps it, and may get another lineage
}

// ReadState reads what a state says of itself.
func ReadState(state []byte) (StateFacts, error) {
	var s struct {
		Lineage   string          `json:"lineage"`
		Serial    uint64          `json:"serial"`
		Encrypted json.RawMessage `json:"encrypted_data"`
		Resources []struct {
			Module    string            `json:"module"`
			Mode      string            `json:"mode"`
			Type      string            `json:"type"`
			Name      string            `json:"name"`
			Instances []json.RawMessage `json:"instances"`
		} `json:"resources"`
	}
	if err := json.Unmarshal(state, &s); err != nil {
		return StateFacts{}, fmt.Errorf("it is no JSON of a state: %w", err)
	}
	if s.Lineage == "" {
		return StateFacts{}, errors.New("it has no lineage")
	}
	f := StateFacts{StateID: StateID{Lineage: s.Lineage, Serial: s.Serial, Digest: Sum(state)}, Bytes: len(state), Sealed: s.Encrypted != nil}
	var all []string
	for _, r := range s.Resources {
		if r.Mode != "managed" {
			continue
		}
		f.Resources += len(r.Instances)
		for _, i := range r.Instances {
			all = append(all, strings.Join([]string{r.Module, r.Type, r.Name, identityOf(i)}, "\x00"))
		}
	}
	if len(all) > 0 {
		slices.Sort(all)
		f.Content = Digest(all)
	}
	return f, nil
}

// identityOf tells the instance of a resource from others: by its index, and by the identifier
// that its provider knows.
func identityOf(instance json.RawMessage) string {
	var i struct {
		Index      json.RawMessage `json:"index_key"`
		Deposed    string          `json:"deposed"`
		Attributes json.RawMessage `json:"attributes"`
	}
	var attributes struct {
		ID json.RawMessage `json:"id"`
	}
	if json.Unmarshal(instance, &i) == nil {
		_ = json.Unmarshal(i.Attributes, &attributes) // a resource need not have an identifier
	}
	return string(i.Index) + "\x00" + i.Deposed + "\x00" + string(attributes.ID)
}

// Sum names bytes by their digest.
func Sum(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Judge says what is wrong with a state that is found where k was the last that
// was seen; nothing if the reason is empty. The zero StateID is found where there
// is no state. A state that continues k was written by something else than a run.
func (k StateID) Judge(found StateID, built bool) (reason Reason, continued bool) {
	none := StateID{}
	switch {
	case k == none:
		return "", false
	case found == none && built:
		return StateTampered, false
	case found == none, found.Digest == k.Digest:
		return "", false
	case k.Unstored:
		return StateTampered, false
	case k.Lineage == "": // nothing but a digest was written down, and it may have been continued
		return "", true
	case found.Lineage != k.Lineage, found.Serial < k.Serial:
		return StateRegressed, false
	case found.Serial == k.Serial:
		return StateTampered, false
	default:
		return "", true
	}
}

// Follows reports whether k is the later one of two versions of a state.
func (k StateID) Follows(l StateID) bool { return k.Lineage == l.Lineage && k.Serial > l.Serial }

// StateVersion is one version of a state that is kept in the records.
type StateVersion struct {
	Lineage   string    `json:"lineage"`
	Serial    uint64    `json:"serial"`
	Digest    string    `json:"digest"`
	Bytes     int       `json:"bytes"`
	Resources int       `json:"resources"`        // managed resource instances
	Sealed    bool      `json:"sealed,omitempty"` // it is encrypted, and they cannot be counted
	By        string    `json:"by"`               // a run, "person NAME", or ByOutside
	At        time.Time `json:"at"`               // when it was kept
	Before    string    `json:"before,omitempty"` // the destructive run that began with it
	Secret    string    `json:"secret,omitempty"` // where it was stored, NAMESPACE/NAME
}

// ByOutside is the author of a version that neither a run nor a person wrote
// through Terrier.
const ByOutside = "outside"

// StateVersions lists the versions of a state that are kept, oldest first.
type StateVersions struct {
	Head     StateID        `json:"head,omitzero"` // what was stored last, as far as is known
	Versions []StateVersion `json:"versions,omitempty"`
}

// With adds a version, or marks one that is kept already. It reports whether
// anything changed.
func (s *StateVersions) With(v StateVersion) bool {
	for i, old := range s.Versions {
		if old.Digest != v.Digest {
			continue
		}
		if v.Before == "" || old.Before == v.Before {
			return false
		}
		s.Versions[i].Before = v.Before
		return true
	}
	s.Versions = append(s.Versions, v)
	return true
}

// Place returns the Secret that the version with a digest was stored in; empty if that
// is not known.
func (s *StateVersions) Place(digest string) string {
	for _, v := range s.Versions {
		if v.Digest == digest {
			return v.Secret
		}
	}
	return ""
}

// Trim drops what there is no room for: all but the newest versions, and of
// those before destructive runs all but as many again, in so many bytes
// altogether. The newest stays whatever its size.
func (s *StateVersions) Trim(newest int, bytes int) {
	var keep []StateVersion
	plain, marked, size := 0, 0, 0
	for i := len(s.Versions) - 1; i >= 0; i-- {
		v := s.Versions[i]
		fits := len(keep) == 0 || size+v.Bytes <= bytes
		switch {
		case fits && plain < newest:
			plain++
		case fits && v.Before != "" && marked < newest:
			marked++
		default:
			continue
		}
		size += v.Bytes
		keep = append([]StateVersion{v}, keep...)
	}
	s.Versions = keep
}

// Key is the name of the version among those of its stack; names sort as
// serials do.
func (v StateVersion) Key() string {
	return fmt.Sprintf("%020d-%.12s", v.Serial, strings.TrimPrefix(v.Digest, "sha256:"))
}

// String is k for messages.
func (k StateID) String() string {
	if k.Lineage == "" {
		return fmt.Sprintf("the state %.19s", k.Digest)
	}
	return fmt.Sprintf("serial %d of the lineage %s (%.19s)", k.Serial, k.Lineage, k.Digest)
}

// NoState stands for the digest of a state that is not there.
const NoState = "none"

// AcceptedState is the digest that a person accepts by saying said: a digest,
// and after an @ when they said it, so that the same can be said twice.
func AcceptedState(said string) string {
	digest, _, _ := strings.Cut(said, "@")
	return digest
}

// AcceptedWhy is the reason that a person gave behind the time; empty if none.
func AcceptedWhy(said string) string {
	_, rest, _ := strings.Cut(said, "@")
	_, why, _ := strings.Cut(rest, " ")
	return why
}
