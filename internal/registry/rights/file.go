package rights

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry/protocol"
	"github.com/terrier-iac/terrier/internal/secret"
)

// document is the form of the file of rights. Its entries are of the types tokenEntry and
// issuerEntry. Each is decoded by itself, so that an error names it.
type document struct {
	Tokens []json.RawMessage `json:"tokens"`
	OIDC   []json.RawMessage `json:"oidc"`
}

// grant is what a caller may read and write: patterns of namespaces, in which * stands
// for any characters.
type grant struct {
	Read   []string `json:"read"`
	Write  []string `json:"write"`
	Tenant string   `json:"tenant"` // whose traffic it is; the name of the token, or the issuer, if empty
}

type tokenEntry struct {
	Name      string `json:"name"`
	SHA256    string `json:"sha256"`    // of the token, in hex
	TokenFile string `json:"tokenFile"` // in place of it: a file that holds the token
	grant
}

type issuerEntry struct {
	Issuer    string      `json:"issuer"`
	Audience  string      `json:"audience"`
	NameClaim string      `json:"nameClaim"` // sub if empty
	CAFile    string      `json:"caFile"`    // PEM, trusted besides the authorities of the system
	Rights    []ruleEntry `json:"rights"`
}

// ruleEntry gives rights to tokens of an issuer with all of these claims.
type ruleEntry struct {
	Claims map[string]oneOf `json:"claims"`
	grant
}

// oneOf is a pattern, or a list of them of which one has to match.
type oneOf []string

func (o *oneOf) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*o = oneOf{one}
		return nil
	}
	var list []string
	if err := json.Unmarshal(b, &list); err != nil {
		return errors.New("the value of a claim is neither a text nor a list of texts")
	}
	*o = list
	return nil
}

// Limits of what is read: the file of rights, a token, and the shortest token that cannot
// be found by trying.
const (
	fileBytes  = 4 << 20
	tokenBytes = 16 << 10
	tokenLeast = 20
)

// page is what a file of rights says.
type page struct {
	tokens  []token
	issuers []issuerEntry
	cas     map[string][]byte // by the file of a certificate authority
}

// token is one static token, by its hash alone.
type token struct {
	hash   [sha256.Size]byte
	caller protocol.Caller
}

// contents reads the file of rights and the files that it names. Paths are relative to the
// directory of the file. The fingerprint is another one whenever a file has changed.
func contents(path string) (page, [sha256.Size]byte, error) {
	seen := sha256.New()
	read := func(path string, most int64) ([]byte, error) {
		b, err := readFile(path, most)
		fmt.Fprintf(seen, "%q %x %v\n", path, sha256.Sum256(b), err)
		return b, err
	}
	p, err := parse(path, read)
	return p, [sha256.Size]byte(seen.Sum(nil)), err
}

func readFile(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("%s is larger than %d bytes", path, most)
	}
	return b, err
}

type reader func(path string, most int64) ([]byte, error)

func parse(path string, read reader) (page, error) {
	text, err := read(path, fileBytes)
	if err != nil {
		return page{}, fmt.Errorf("reading the file of rights: %w", err)
	}
	asJSON, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return page{}, invalid("the file of rights %s: %s", path, plain(err))
	}
	if string(asJSON) == "null" {
		return page{}, invalid("the file of rights %s is empty; if no token may do anything, write: tokens: []", path)
	}
	at := lines(text)
	var d document
	if err := strict(asJSON, &d, at); err != nil {
		return page{}, invalid("the file of rights %s, %w", path, err)
	}
	p := page{cas: map[string][]byte{}}
	beside := func(name string) string {
		if filepath.IsAbs(name) {
			return name
		}
		return filepath.Join(filepath.Dir(path), name)
	}
	for i, raw := range d.Tokens {
		var e tokenEntry
		var t token
		err := strict(raw, &e, at.entry("tokens", i))
		if err == nil {
			t, err = e.token(p.tokens, func(name string) ([]byte, error) { return read(beside(name), tokenBytes) })
		}
		if err != nil {
			return page{}, entryFault(path, "token", cmp.Or(e.Name, fmt.Sprintf("number %d", i+1)), err)
		}
		p.tokens = append(p.tokens, t)
	}
	for i, raw := range d.OIDC {
		var e issuerEntry
		err := strict(raw, &e, at.entry("oidc", i))
		if err == nil {
			err = e.check(p.issuers)
		}
		if err != nil {
			return page{}, entryFault(path, "issuer", cmp.Or(e.Issuer, fmt.Sprintf("number %d", i+1)), err)
		}
		if e.CAFile != "" {
			e.CAFile = beside(e.CAFile)
			if p.cas[e.CAFile], err = read(e.CAFile, fileBytes); err != nil {
				return page{}, entryFault(path, "issuer", e.Issuer, fmt.Errorf("reading caFile: %w", err))
			}
		}
		p.issuers = append(p.issuers, e)
	}
	return p, nil
}

// plain removes the words of the library from an error of the syntax.
func plain(err error) string {
	return strings.TrimPrefix(strings.TrimPrefix(err.Error(), "error converting YAML to JSON: "), "yaml: ")
}

func entryFault(path, kind, name string, err error) error {
	return invalid("the file of rights %s, %s %s: %w", path, kind, name, err)
}

func invalid(format string, args ...any) error {
	return fault.New(fault.Invalid, ReasonFile, fmt.Errorf(format, args...))
}

var callerName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._@-]{0,98}[A-Za-z0-9])?$`)

// token checks an entry. Its token is read from a file if the entry has no hash of it.
func (e tokenEntry) token(before []token, read func(string) ([]byte, error)) (token, error) {
	if !callerName.MatchString(e.Name) {
		return token{}, errors.New("name is missing, or has other characters than letters, digits, dots, dashes, underscores and @")
	}
	if slices.ContainsFunc(before, func(t token) bool { return t.caller.Name == e.Name }) {
		return token{}, errors.New("another token has the same name")
	}
	t := token{caller: protocol.Caller{Name: e.Name, Tenant: cmp.Or(e.Tenant, e.Name), Grant: grants{e.grant}}}
	if err := e.grant.check(); err != nil {
		return token{}, err
	}
	switch {
	case e.SHA256 != "" && e.TokenFile != "":
		return token{}, errors.New("sha256 and tokenFile exclude each other: remove one of them")
	case e.SHA256 != "":
		raw, err := hex.DecodeString(e.SHA256)
		if err != nil || len(raw) != sha256.Size {
			return token{}, errors.New(`sha256 does not have 64 hexadecimal digits: make it with: printf %s "$TOKEN" | sha256sum`)
		}
		t.hash = [sha256.Size]byte(raw)
	case e.TokenFile != "":
		text, err := read(e.TokenFile)
		if err != nil {
			return token{}, fmt.Errorf("reading tokenFile: %w", err)
		}
		clear := strings.TrimSpace(string(text))
		if len(clear) < tokenLeast {
			return token{}, fmt.Errorf("the token in tokenFile has %d characters, and needs at least %d: make one with: openssl rand -hex 32", len(clear), tokenLeast)
		}
		t.hash = hashed(secret.New(clear))
	default:
		return token{}, errors.New("it has neither sha256, the hash of the token, nor tokenFile, a file that holds the token")
	}
	for _, b := range before {
		if b.hash == t.hash {
			return token{}, fmt.Errorf("it is the same token as that of %s", b.caller.Name)
		}
	}
	return t, nil
}

func hashed(t secret.Text) [sha256.Size]byte { return sha256.Sum256([]byte(t.Reveal())) }

func (e issuerEntry) check(before []issuerEntry) error {
	u, err := url.Parse(e.Issuer)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "https" {
		return errors.New("issuer is not an https address without user, query and fragment")
	}
	if slices.ContainsFunc(before, func(b issuerEntry) bool { return b.Issuer == e.Issuer }) {
		return errors.New("the issuer has two entries: put the rights of both into one")
	}
	if e.Audience == "" {
		return errors.New("audience is missing: without it, tokens for other programs would be accepted")
	}
	if len(e.Rights) == 0 {
		return errors.New("rights is missing, so that no token has any")
	}
	for i, r := range e.Rights {
		if err := r.check(); err != nil {
			return fmt.Errorf("rights number %d: %w", i+1, err)
		}
	}
	return nil
}

func (r ruleEntry) check() error {
	if len(r.Claims) == 0 {
		return errors.New(`claims is missing; for every token of the issuer write claims: {sub: "*"}`)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Claims)) {
		if patterns := r.Claims[name]; len(patterns) == 0 || slices.Contains(patterns, "") {
			return fmt.Errorf("the claim %s has no value", name)
		}
	}
	return r.grant.check()
}

var namespacePattern = regexp.MustCompile(`^[A-Za-z0-9*_-]+$`)

func (g grant) check() error {
	if len(g.Read)+len(g.Write) == 0 {
		return errors.New(`it gives no rights: list namespaces below read or write; "*" stands for all`)
	}
	for _, p := range slices.Concat(g.Read, g.Write) {
		if !namespacePattern.MatchString(p) {
			return fmt.Errorf("%q is no pattern of namespaces: it may have letters, digits, dashes, underscores and *", p)
		}
	}
	return nil
}

// grants are those of one caller.
type grants []grant

// allow reports whether one of the grants allows a verb in a namespace. A caller that may
// write may read.
func (all grants) allow(v protocol.Verb, namespace string) bool {
	is := func(pattern string) bool { return matches(pattern, namespace) }
	return slices.ContainsFunc(all, func(g grant) bool {
		return slices.ContainsFunc(g.Write, is) || v == protocol.Read && slices.ContainsFunc(g.Read, is)
	})
}

// say is what the grants allow, for a caller whom they do not allow more.
func (all grants) say(v protocol.Verb) string {
	var in []string
	for _, g := range all {
		in = append(in, g.Write...)
		if v == protocol.Read {
			in = append(in, g.Read...)
		}
	}
	slices.Sort(in)
	in = slices.Compact(in)
	if len(in) == 0 {
		return fmt.Sprintf("it may %s in no namespace. The operator of the registry can change that in the file of rights", v)
	}
	return fmt.Sprintf("it may do that in %s", fault.Shorten(strings.Join(in, ", "), 500))
}

// matches reports whether a text has the form of a pattern, in which * stands for any
// characters.
func matches(pattern, text string) bool {
	first, rest, more := strings.Cut(pattern, "*")
	text, ok := strings.CutPrefix(text, first)
	if !more || !ok {
		return ok && text == ""
	}
	parts := strings.Split(rest, "*")
	for _, p := range parts[:len(parts)-1] {
		at := strings.Index(text, p)
		if at < 0 {
			return false
		}
		text = text[at+len(p):]
	}
	return strings.HasSuffix(text, parts[len(parts)-1])
}
