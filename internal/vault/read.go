package vault

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
)

// Wanted is what is to be read.
type Wanted struct {
	Path    string            // mount and path of the secret, as the command line of Vault has it: kyuubi/database
	Version int               // of a key/value store with versions; 0 is the newest
	With    map[string]string // parameters: of a certificate, of a credential, of what is to be decrypted
	Stays   bool              // only a secret that stays: of one that the server makes for each reading, none is made
}

// Secret is what was read.
type Secret struct {
	Data  map[string][]byte // texts as they are, everything else as JSON
	Whole json.RawMessage   // the object as the server keeps it; not of transit

	// Version is that of a store with versions. It is 0 for all others.
	Version int
	// Made reports whether the server made the secret for this reading: another reading
	// gives another one.
	Made      bool
	Lease     string        // ends the secret; empty for one that has none
	For       time.Duration // from now on; 0 without an end that is known
	Renewable bool
	RequestID string // by which the audit log of the server knows the reading
}

// engines of the server, by the names of their types.
const (
	engineKV      = "kv"
	engineGeneric = "generic" // what kv was called
	engineCubby   = "cubbyhole"
	enginePKI     = "pki"
	engineTransit = "transit"
)

// Makes reports whether the server makes a secret for each reading, as credentials of a
// database or a certificate, without reading it.
func (s Session) Makes(ctx context.Context, path string) (bool, error) {
	at, err := s.place(ctx, path)
	return at.makes(), err
}

// Read reads a secret. One that is not there, or whose version was deleted, is Missing; one
// that the session may not read is Denied, and so is what its engine does not have: no change
// of who asks alone helps there, and both are worth another attempt.
func (s Session) Read(ctx context.Context, w Wanted) (Secret, error) {
	at, err := s.place(ctx, w.Path)
	if err != nil {
		return Secret{}, err
	}
	doing := "reading " + w.Path
	if w.Version != 0 && !at.versioned {
		return Secret{}, fault.New(fault.Denied, ReasonPath, fmt.Errorf("%s: the version %d is asked for, and the engine %s at %s keeps no versions: remove @%d", doing, w.Version, at.kind, at.mount, w.Version))
	}
	if len(w.With) > 0 && at.keeps() { // each would be another name of the same secret
		return Secret{}, fault.New(fault.Denied, ReasonPath, fmt.Errorf("%s: the engine %s at %s takes no parameters: remove them, and write a version as @VERSION", doing, at.kind, at.mount))
	}
	if w.Stays && at.makes() {
		return Secret{}, fault.New(fault.Invalid, ReasonMade, fmt.Errorf("%s: the engine %s at %s makes a secret for each reading, and only secrets that stay can be used here: name one of a key/value store", doing, at.kind, at.mount))
	}
	out, err := s.server.do(ctx, s.reading(at, w))
	if refused, ok := errors.AsType[refusal](err); ok && refused.code == http.StatusNotFound && w.Version != 0 {
		return Secret{}, fault.New(fault.Missing, ReasonNoSecret, fmt.Errorf("%s, at the Vault %s: there is no version %d, or it was deleted: name another one, or restore it with vault kv undelete", doing, s.server, w.Version))
	}
	var got Secret
	if err == nil {
		got, err = at.secret(out)
	}
	if err == nil && len(got.Data) == 0 {
		return Secret{}, fault.New(fault.Missing, ReasonNoSecret, fmt.Errorf("%s, at the Vault %s: there is nothing at this path: check the path", doing, s.server))
	}
	return got, s.server.explain(err, doing, s.lacks())
}

// lacks says what to do where a right lacks.
func (s Session) lacks() string {
	return fmt.Sprintf("allow it to %s with a policy, or check the path", s.who)
}

// place is where a secret is in the server.
type place struct {
	mount     string // with a slash at its end
	below     string
	kind      string // of the engine
	versioned bool
}

// place finds the engine of a path, as the command line of Vault does.
func (s Session) place(ctx context.Context, path string) (place, error) {
	doing := "reading " + path
	if err := checkPath(path); err != nil {
		return place{}, fault.New(fault.Invalid, ReasonPath, fmt.Errorf("%s: %w", doing, err))
	}
	out, err := s.server.do(ctx, request{method: http.MethodGet, path: "sys/internal/ui/mounts/" + path, token: s.token})
	var m struct {
		Path    string
		Type    string
		Options map[string]string
	}
	if err == nil && (json.Unmarshal(out.Data, &m) != nil || m.Path == "" || !strings.HasPrefix(path+"/", m.Path)) {
		err = errors.New("its answer names no mount")
	}
	if refused, ok := errors.AsType[refusal](err); ok && refused.code == http.StatusNotFound {
		return place{}, fault.New(fault.Missing, ReasonNoMount, fmt.Errorf("%s, at the Vault %s: %w: the server does not say what is mounted there: check the mount and the namespace of the server", doing, s.server, err))
	}
	if err != nil {
		return place{}, s.server.explain(err, doing, s.lacks())
	}
	below := strings.TrimSuffix(strings.TrimPrefix(path+"/", m.Path), "/")
	return place{m.Path, below, m.Type, m.Type == engineKV && m.Options["version"] == "2"}, nil
}

// keeps reports whether the engine gives what was written into it, and nothing else.
func (p place) keeps() bool {
	switch p.kind {
	case engineKV, engineGeneric, engineCubby:
		return true
	}
	return false
}

// makes reports whether each reading makes another secret. An engine that is not known is
// taken for one that does.
func (p place) makes() bool {
	if p.keeps() {
		return false
	}
	switch p.kind {
	case engineTransit:
		return false
	case enginePKI:
		return p.posts()
	}
	return !strings.HasPrefix(p.below, "static-") // static-creds, static-cred: of an account that the server looks after
}

// posts reports whether the secret is read with a request that writes.
func (p place) posts() bool {
	switch action, _, _ := strings.Cut(p.below, "/"); p.kind {
	case enginePKI:
		return action == "issue" || action == "sign"
	case engineTransit:
		return action == "decrypt"
	}
	return false
}

func (s Session) reading(at place, w Wanted) request {
	r := request{method: http.MethodGet, path: w.Path, token: s.token, query: url.Values{}}
	if at.posts() {
		r.method, r.in = http.MethodPost, w.With
		return r
	}
	for name, value := range w.With {
		r.query.Set(name, value)
	}
	if at.versioned {
		r.path = at.mount + "data/" + at.below
		if w.Version != 0 {
			r.query.Set("version", strconv.Itoa(w.Version))
		}
	}
	return r
}

// secret is what an answer holds.
func (p place) secret(out answer) (got Secret, err error) {
	got = Secret{Made: p.makes(), Lease: out.LeaseID, Renewable: out.Renewable, RequestID: out.RequestID}
	data := out.Data
	if p.versioned {
		if data, got.Version, err = newest(data); err != nil {
			return got, err
		}
	}
	if got.Made { // else it is how long the server proposes to keep a secret that stays
		got.For = seconds(out.Duration)
	}
	if got.Data, err = texts(data); err != nil {
		return got, err
	}
	if p.kind != engineTransit {
		got.Whole = data
	}
	switch {
	case p.kind == engineTransit:
		err = plain(got.Data)
	case p.kind == enginePKI && got.Made:
		got.For, err = expires(got.Data)
	case strings.HasPrefix(p.below, "static-"):
		var left int64
		if left, err = strconv.ParseInt(string(got.Data["ttl"]), 10, 64); err != nil {
			return got, errors.New("its answer does not say how long the secret lasts")
		}
		got.For = seconds(left)
	}
	return got, err
}

// checkPath refuses a path that would lead elsewhere than it says.
func checkPath(path string) error {
	if !isPath(path) {
		return fmt.Errorf("%.80q is no path of a secret: write MOUNT/PATH", path)
	}
	if !strings.Contains(path, "/") {
		return fmt.Errorf("%.80q names no secret below a mount: write MOUNT/PATH", path)
	}
	for _, own := range []string{"sys/", "auth/"} {
		if strings.HasPrefix(path, own) {
			return fmt.Errorf("%.80q is part of the server itself: only secrets below a mount can be read", path)
		}
	}
	return nil
}

// isPath reports whether a text leads below where it is put, and nowhere else.
func isPath(text string) bool {
	for part := range strings.SplitSeq(text, "/") {
		if part == "" || part == "." || part == ".." || strings.ContainsFunc(part, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return false
		}
	}
	return true
}

// newest is what a store with versions holds of one of them.
func newest(data json.RawMessage) (json.RawMessage, int, error) {
	var v struct {
		Data     json.RawMessage
		Metadata struct{ Version int }
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return nil, 0, errors.New("its answer is not that of a key/value store")
	}
	return v.Data, v.Metadata.Version, nil
}

// texts are the values of an object: texts as they are, everything else as JSON.
func texts(data json.RawMessage) (map[string][]byte, error) {
	var all map[string]json.RawMessage
	if len(data) > 0 && json.Unmarshal(data, &all) != nil {
		return nil, errors.New("its answer is no object")
	}
	out := map[string][]byte{}
	for key, value := range all {
		var text string
		switch {
		case bytes.Equal(value, []byte("null")):
		case json.Unmarshal(value, &text) == nil:
			out[key] = []byte(text)
		default:
			out[key] = value
		}
	}
	return out, nil
}

// plain decodes what the transit engine has decrypted.
func plain(data map[string][]byte) error {
	text, ok := data["plaintext"]
	if !ok {
		return nil
	}
	decoded, err := base64.StdEncoding.DecodeString(string(text))
	if err != nil {
		return errors.New("what it decrypted is no base64")
	}
	data["plaintext"] = decoded
	return nil
}

// expires is how long a certificate is still valid.
func expires(data map[string][]byte) (time.Duration, error) {
	end, ok := data["expiration"]
	if !ok {
		return 0, nil
	}
	at, err := strconv.ParseInt(string(end), 10, 64)
	if err != nil {
		return 0, errors.New("the end of the certificate is no time")
	}
	return time.Until(time.Unix(at, 0)), nil
}
