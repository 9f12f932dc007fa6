package plan

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"maps"
	"slices"
	"strings"
)

// Prints recognise the values that a Redactor hides without holding one of
// them, so that they can be kept on disk for a while: keyed hashes of every
// form, by length. Looking is slow, and meant for a few short texts.
type Prints struct {
	Key   []byte                  `json:"key"`
	Forms map[int]map[string]bool `json:"forms"` // length → hash
}

// maxLooks bounds the work on one text.
const maxLooks = 1 << 18

// Prints returns the prints of what r hides. The key is to be random, and used
// once.
func (r *Redactor) Prints(key []byte) Prints {
	p := Prints{Key: key, Forms: map[int]map[string]bool{}}
	if r == nil {
		return p
	}
	h := hmac.New(sha256.New, key)
	for _, needles := range r.needles {
		for _, n := range needles {
			if p.Forms[len(n)] == nil {
				p.Forms[len(n)] = map[string]bool{}
			}
			p.Forms[len(n)][fingerprint(h, string(n))] = true
		}
	}
	return p
}

// String returns s with every known value replaced by Mask; Mask alone if that
// would take too long to find out.
func (p Prints) String(s string) string {
	if len(p.Forms)*len(s) > maxLooks {
		return Mask
	}
	h := hmac.New(sha256.New, p.Key)
	lengths := slices.Sorted(maps.Keys(p.Forms))
	slices.Reverse(lengths)
	var out strings.Builder
	for i := 0; i < len(s); {
		n := p.match(h, lengths, s[i:])
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

// match returns the length of the longest value that s begins with, or 0.
func (p Prints) match(h hash.Hash, lengths []int, s string) int {
	for _, n := range lengths {
		if n <= len(s) && p.Forms[n][fingerprint(h, s[:n])] {
			return n
		}
	}
	return 0
}

func fingerprint(h hash.Hash, s string) string {
	h.Reset()
	_, _ = h.Write([]byte(s))
	return hex.EncodeToString(h.Sum(nil)[:16])
}
