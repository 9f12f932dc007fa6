package plan

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"hash"
	"maps"
	"slices"
	"strings"
)

// Prints recognise the values that a Redactor hides without holding one of
// them, so that they can be kept: keyed hashes of every form, by length.
type Prints struct {
	Key   []byte                  `json:"key"`
	Forms map[int]map[string]bool `json:"forms"` // length → hash

	// Begin has the lengths of the forms that begin with the four bytes of a hint,
	// so that most positions of a text cost no hash. Prints of earlier releases
	// have none: then each position costs one hash for each length.
	Begin map[uint16][]int `json:"begin,omitempty"`

	// All is set where it is not known which values are secret: each counts as one.
	All bool `json:"-"`
}

// maxLooks bounds the hashes for one text.
const maxLooks = 1 << 18

// Prints returns the prints of what r hides. The key is to be random, and used
// once.
func (r *Redactor) Prints(key []byte) Prints {
	r = r.newest()
	p := Prints{Key: key, Forms: map[int]map[string]bool{}}
	if r == nil {
		return p
	}
	h := p.hasher()
	for _, needles := range r.needles {
		for _, n := range needles {
			p.add(len(n), h.hint(string(n)), h.hash(string(n)))
		}
	}
	for v := range r.shorts {
		p.add(len(v), 0, h.hash(v))
	}
	return p
}

func (p *Prints) add(length int, hint uint16, hash string) {
	if p.Forms[length] == nil {
		p.Forms[length] = map[string]bool{}
	}
	p.Forms[length][hash] = true
	if length < minValue || slices.Contains(p.Begin[hint], length) {
		return
	}
	if p.Begin == nil {
		p.Begin = map[uint16][]int{}
	}
	p.Begin[hint] = append(p.Begin[hint], length)
}

// String returns s with every known value replaced by Mask; Mask alone if that
// would take too long to find out.
func (p Prints) String(s string) string {
	if p.All && s != "" {
		return Mask
	}
	if len(p.Forms) == 0 || len(s) < minValue {
		return s
	}
	h := p.hasher()
	var all []int
	if p.Begin == nil {
		all = slices.Collect(maps.Keys(p.Forms))
	}
	var out strings.Builder
	for i := 0; i < len(s); {
		n := 0
		lengths := all
		if p.Begin != nil && len(s)-i >= minValue {
			lengths = p.Begin[h.hint(s[i:])]
		}
		for _, length := range lengths {
			if length > n && length >= minValue && length <= len(s)-i && p.Forms[length][h.hash(s[i:i+length])] {
				n = length
			}
		}
		if h.looks > maxLooks {
			return Mask
		}
		if n == 0 {
			out.WriteByte(s[i])
			i++
			continue
		}
		out.WriteString(Mask)
		i += n
	}
	return out.String()
}

// RedactJSON returns a JSON text with every known value replaced by Mask, as a
// Redactor does. What is not JSON is hidden as a whole.
func (p Prints) RedactJSON(b []byte) []byte {
	if p.All {
		return encode(allHidden(decode(b), false))
	}
	if len(p.Forms) == 0 {
		return b
	}
	if out, ok := redactedJSON(p, b); ok {
		return out
	}
	return encode(Mask)
}

// Lines returns a text of several lines with every known value replaced by Mask.
func (p Prints) Lines(text []byte) []byte {
	if p.All && len(text) > 0 {
		return []byte(Mask + "\n")
	}
	if len(p.Forms) == 0 {
		return text
	}
	var out bytes.Buffer
	for line := range bytes.Lines(text) {
		out.WriteString(p.String(string(line)))
	}
	return out.Bytes()
}

// Holds reports whether a JSON text holds one of the values.
func (p Prints) Holds(text []byte) bool {
	if p.All {
		return true
	}
	if len(p.Forms) == 0 {
		return false
	}
	_, holds := redactedValue(p, decode(text), true)
	return holds
}

// hidden returns a value out of JSON with every known value replaced by Mask. It
// changes v.
func (p Prints) hidden(v any) any {
	if p.All {
		return allHidden(v, true)
	}
	if len(p.Forms) > 0 {
		v, _ = redactedValue(p, v, true)
	}
	return v
}

// allHidden returns a value out of JSON with every text and number replaced by Mask
// that a document holds as a value, or as a message. It changes v.
func allHidden(v any, inside bool) any {
	switch v := v.(type) {
	case map[string]any:
		for key, item := range v {
			v[key] = allHidden(item, inside || holdsValues(key) || key == "message")
		}
	case []any:
		for i, item := range v {
			v[i] = allHidden(item, inside)
		}
	case string, json.Number:
		if inside {
			return Mask
		}
	}
	return v
}

func (p Prints) whole(s string) bool { return len(s) >= minValue && p.known(s) }

func (p Prints) short(s string) bool { return isShort(s) && p.known(s) }

func (p Prints) known(s string) bool {
	return len(p.Forms[len(s)]) > 0 && p.Forms[len(s)][p.hasher().hash(s)]
}

// hasher makes the hashes of prints.
type hasher struct {
	mac    hash.Hash
	xor    uint32
	factor uint32
	looks  int
}

func (p Prints) hasher() *hasher {
	sum := sha256.Sum256(p.Key)
	return &hasher{
		mac: hmac.New(sha256.New, p.Key),
		xor: binary.LittleEndian.Uint32(sum[:]), factor: binary.LittleEndian.Uint32(sum[4:]) | 1,
	}
}

func (h *hasher) hash(s string) string {
	h.looks++
	h.mac.Reset()
	_, _ = h.mac.Write([]byte(s))
	return hex.EncodeToString(h.mac.Sum(nil)[:16])
}

// hint is what the first four bytes of a text come to. Others come to the same.
func (h *hasher) hint(s string) uint16 {
	return uint16((binary.LittleEndian.Uint32([]byte(s[:minValue])) ^ h.xor) * h.factor >> 16)
}
