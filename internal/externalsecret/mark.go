package externalsecret

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/secret"
)

// Mark is what the annotation of a Secret says of the object that writes it: by it the next
// pass knows which keys are the object's, and what is left to do.
type Mark struct {
	Keys    []string `json:"keys,omitempty"`  // that the object has written, in order
	Whole   bool     `json:"whole,omitempty"` // the Secret is the object's, and not only these keys
	Content string   `json:"content"`         // a keyed digest of what was written
	Restart Restart  `json:"restart,omitempty"`
	Lease   string   `json:"lease,omitempty"` // names what the server made for it; empty for secrets that stay
}

// Restart says which workloads still have to be restarted for the content.
type Restart string

// The values of Mark.Restart.
const (
	RestartNone  Restart = ""
	RestartKnown Restart = "known" // those that were restarted for this Secret before
	RestartAll   Restart = "all"   // all that use it
)

// MarkName is the name of the annotation of an object.
func MarkName(object string) string { return "externalsecret.terrier.dev/" + label(object) }

// Wholes are the names of the annotations that mark a Secret as one object's.
func Wholes(annotations map[string]string) map[string]bool {
	out := map[string]bool{}
	for name, text := range annotations {
		if m := ReadMark(text); strings.HasPrefix(name, MarkName("")) && m != nil && m.Whole {
			out[name] = true
		}
	}
	return out
}

// RestartName is the name of the annotation of the pods of a workload whose value is the
// content of a Secret that they were restarted for.
func RestartName(secret string) string { return "secret.terrier.dev/" + label(secret) }

// label is a name, or a digest of one that is longer than what follows the slash of the
// name of an annotation may be.
func label(name string) string {
	if len(name) <= 63 {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return name[:40] + "." + hex.EncodeToString(sum[:])[:20]
}

// ReadMark is what an annotation says; nil if it says nothing that can be read.
func ReadMark(annotation string) *Mark {
	var m Mark
	if annotation == "" || json.Unmarshal([]byte(annotation), &m) != nil {
		return nil
	}
	return &m
}

// String is the annotation.
func (m Mark) String() string {
	out, err := json.Marshal(m)
	if err != nil { // it has texts only
		return ""
	}
	return string(out)
}

// Digest is a keyed digest of data, by which no value can be guessed. It differs between
// Secrets that hold the same.
func Digest(key secret.Text, namespace, name string, data map[string][]byte) string {
	sum := hmac.New(sha256.New, []byte(key.Reveal()))
	write := func(part []byte) {
		sum.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		sum.Write(part)
	}
	for _, part := range []string{"externalsecret", namespace, name} {
		write([]byte(part))
	}
	for _, k := range slices.Sorted(maps.Keys(data)) {
		write([]byte(k))
		write(data[k])
	}
	return hex.EncodeToString(sum.Sum(nil))[:40]
}

// same reports whether two Secrets hold the same.
func same(a, b map[string][]byte) bool { return maps.EqualFunc(a, b, bytes.Equal) }
