// Package managed holds the state of a managed stack while a run goes on, and serves
// it to the engine.
//
// Start reading at Store; Server is the backend of the engine.
package managed

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/stack"
)

// MaxBytes bounds a state: far above what any store takes, far below what
// would hurt.
const MaxBytes = 256 << 20

// File is the part of a state document that is looked at. An encrypted
// state shows its identity and hides the rest.
type File struct {
	Version   int                    `json:"version"`
	Serial    uint64                 `json:"serial"`
	Lineage   string                 `json:"lineage"`
	Encrypted json.RawMessage        `json:"encrypted_data"`
	Outputs   map[string]stateOutput `json:"outputs"`
	Resources []struct {
		Mode      string `json:"mode"`
		Provider  string `json:"provider"`
		Instances []struct {
			Attributes json.RawMessage   `json:"attributes"`
			Sensitive  []json.RawMessage `json:"sensitive_attributes"`
		} `json:"instances"`
	} `json:"resources"`
}

// stateOutput is an output as both the state and `output -json` write it.
type stateOutput struct {
	Sensitive bool            `json:"sensitive"`
	Type      json.RawMessage `json:"type"`
	Value     json.RawMessage `json:"value"`
}

func Parse(data []byte) (*File, error) {
	s := &File{}
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("reading state: %w", err)
	}
	if s.Lineage == "" {
		return nil, errors.New("reading state: it has no lineage")
	}
	return s, nil
}

// ID names this version of the state, whose bytes are data.
func (s *File) ID(data []byte) stack.StateID {
	return stack.StateID{Lineage: s.Lineage, Serial: s.Serial, Digest: stack.Sum(data)}
}

// Managed counts the managed resource instances.
func (s *File) Managed() int {
	n := 0
	for _, r := range s.Resources {
		if r.Mode == "managed" {
			n += len(r.Instances)
		}
	}
	return n
}

// BuiltIn reports whether all that the state holds is known to belong to the
// provider that is built into engines.
func (s *File) BuiltIn() bool {
	if s.Version != 4 || s.Encrypted != nil {
		return false
	}
	for _, r := range s.Resources {
		if r.Provider != `provider["terraform.io/builtin/terraform"]` {
			return false
		}
	}
	return true
}

// OutputsDocument returns the outputs as a document, or nil if the state hides them.
func (s *File) OutputsDocument() ([]byte, error) {
	if s.Encrypted != nil {
		return nil, nil
	}
	if s.Outputs == nil {
		return []byte("{}"), nil
	}
	for name, o := range s.Outputs {
		if o.Type == nil {
			return nil, fmt.Errorf("reading state: output %q has no type", name)
		}
	}
	return json.Marshal(s.Outputs)
}

// Secrets returns every text that the state marks as sensitive.
func (s *File) Secrets() []string {
	var found []string
	for _, o := range s.Outputs {
		if o.Sensitive {
			found = append(found, plan.Texts(o.Value)...)
		}
	}
	for _, r := range s.Resources {
		for _, in := range r.Instances {
			for _, path := range in.Sensitive {
				found = append(found, plan.Texts(follow(in.Attributes, path))...)
			}
		}
	}
	return found
}

// follow returns what the path of a sensitive attribute leads to. A path is a
// list of steps into objects and lists; where it cannot be followed, all of
// what it leads into is taken as sensitive.
func follow(value, path json.RawMessage) json.RawMessage {
	var steps []struct {
		Value json.RawMessage `json:"value"`
	}
	if json.Unmarshal(path, &steps) != nil {
		return value
	}
	for _, step := range steps {
		// An index is wrapped in an object that also gives its type.
		key := step.Value
		var typed struct {
			Value json.RawMessage `json:"value"`
		}
		if json.Unmarshal(key, &typed) == nil && typed.Value != nil {
			key = typed.Value
		}
		var (
			name  string
			index int
			items []json.RawMessage
			attrs map[string]json.RawMessage
		)
		switch {
		case json.Unmarshal(key, &name) == nil && json.Unmarshal(value, &attrs) == nil && attrs[name] != nil:
			value = attrs[name]
		case json.Unmarshal(key, &index) == nil && json.Unmarshal(value, &items) == nil && index >= 0 && index < len(items):
			value = items[index]
		default:
			return value
		}
	}
	return value
}

// Empty is the state of a stack that has none, for engines that lose
// track when their local file starts out missing.
func Empty() ([]byte, error) {
	lineage, err := uuid()
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{
		"version": 4, "terraform_version": "1.0.0", "serial": 0, "lineage": lineage,
		"outputs": map[string]any{}, "resources": []any{},
	})
}

func uuid() (string, error) {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", err
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]), nil
}
