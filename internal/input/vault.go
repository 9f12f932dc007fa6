package input

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/stack"
)

// VaultScheme begins a name that is no Secret, but a secret of OpenBao or Vault. No Secret
// has such a name, and a name is always a reference: what a row or a variable holds never
// becomes one.
const VaultScheme = "vault://"

// VaultSecret is a secret of OpenBao or Vault: vault://MOUNT/PATH?NAME=VALUE#KEY@VERSION.
type VaultSecret struct {
	Path    string            // mount and path, as the command line of Vault has it
	Key     string            // the only one that is read; empty for all
	Version int               // of a store that keeps versions; 0 for the newest
	With    map[string]string // parameters, of a certificate for instance
}

// ParseVaultSecret reads a name that begins with VaultScheme.
func ParseVaultSecret(name string) (VaultSecret, error) {
	invalid := func(format string, args ...any) (VaultSecret, error) {
		return VaultSecret{}, fault.New(fault.Invalid, "", fmt.Errorf("the name %.200q: %w", name, fmt.Errorf(format, args...)))
	}
	rest, ok := strings.CutPrefix(name, VaultScheme)
	if !ok {
		return invalid("does not begin with %s", VaultScheme)
	}
	rest, key, hasKey := strings.Cut(rest, "#")
	at := &rest
	if hasKey {
		at = &key
	}
	var out VaultSecret
	if i := strings.LastIndexByte(*at, '@'); i >= 0 {
		n, err := strconv.ParseUint((*at)[i+1:], 10, 31)
		if err != nil || n == 0 {
			return invalid("the version after @ is no number from 1 on: write %sMOUNT/PATH#KEY@VERSION", VaultScheme)
		}
		out.Version, *at = int(n), (*at)[:i]
	}
	if hasKey && key == "" {
		return invalid("no key follows #: write %sMOUNT/PATH#KEY", VaultScheme)
	}
	out.Key = key
	path, query, _ := strings.Cut(rest, "?")
	if !strings.Contains(strings.Trim(path, "/"), "/") {
		return invalid("it names no path below a mount: write %sMOUNT/PATH", VaultScheme)
	}
	if strings.ContainsFunc(path+key, func(r rune) bool { return r < ' ' || r == 0x7f || r == '|' }) {
		return invalid("it has a control character, or |")
	}
	out.Path = path
	with, err := url.ParseQuery(query)
	if err != nil {
		return invalid("its parameters cannot be read: write %sMOUNT/PATH?NAME=VALUE", VaultScheme)
	}
	for parameter, values := range with {
		if len(values) != 1 {
			return invalid("the parameter %.40q is there %d times", parameter, len(values))
		}
		if out.With == nil {
			out.With = map[string]string{}
		}
		out.With[parameter] = values[0]
	}
	return out, nil
}

// String names the secret, for messages and as what stands for a value that is made for a
// run: it says what is read, and not what is there.
func (v VaultSecret) String() string {
	text := VaultScheme + v.Path
	with := url.Values{}
	for name, value := range v.With {
		with.Set(name, value)
	}
	if len(with) > 0 {
		text += "?" + with.Encode()
	}
	if v.Key != "" {
		text += "#" + v.Key
	}
	if v.Version != 0 {
		text += "@" + strconv.Itoa(v.Version)
	}
	return text
}

// VaultReader reads secrets of OpenBao or Vault.
type VaultReader interface {
	// Vault returns what a secret holds. Of one that the server makes for each reading,
	// it makes none: the value says Made, and has no data.
	Vault(context.Context, VaultSecret) (Value, error)
}

// vaultSource is a secret of OpenBao or Vault, by its name.
type vaultSource string

func (v vaultSource) Read(ctx context.Context, r Reader) (Value, error) {
	of, err := ParseVaultSecret(string(v))
	if err != nil {
		return Value{}, err
	}
	reader, ok := r.(VaultReader)
	if !ok {
		return Value{}, fault.New(fault.Denied, "VaultNotConfigured", errors.New(string(v)+": this installation knows no OpenBao or Vault: start the controller with --vault=URL"))
	}
	value, err := reader.Vault(ctx, of)
	if err != nil || of.Key == "" || value.Made {
		value.key = of.Key
		return value, err
	}
	one, ok := value.Data[of.Key]
	if !ok {
		return Value{}, fault.New(fault.Missing, "", fmt.Errorf("the secret %s%s has no key %q", VaultScheme, of.Path, of.Key))
	}
	value.Data = map[string][]byte{of.Key: one}
	return value, nil
}

// Wakes implements Source: no object changes when a secret there does. Value.Until says
// when it is read again.
func (v vaultSource) Wakes() []stack.Ref { return nil }

// stands returns what stands for a key of a value that is made for each run, until a run
// begins. It is the same text each time: a plan depends on what is read, and not on what
// comes of it.
func (s *resolution) stands(name, key string) (string, error) {
	of, err := ParseVaultSecret(name)
	if err != nil {
		return "", err
	}
	if of.Key != "" && of.Key != key {
		return "", fault.New(fault.Missing, "", fmt.Errorf("the secret %s is read with the key %q alone, and not with %q", of, of.Key, key))
	}
	of.Key = key
	s.made++
	return placeholder(s.Key, of), nil
}

// A placeholder is \x02, the secret, |, a digest and \x03. The digest is keyed: no text of a
// user is taken for one.
const (
	opens, splits, closes = "\x02", "|", "\x03"
)

func placeholder(key secret.Text, of VaultSecret) string {
	return opens + of.String() + splits + strings.TrimPrefix(Digest(key, []string{"placeholder", of.String()}), DigestPrefix) + closes
}

// Made are the secrets that the placeholders of texts stand for, each once.
func Made(key secret.Text, texts ...string) []VaultSecret {
	var all []VaultSecret
	seen := map[string]bool{}
	for _, text := range texts {
		for _, part := range strings.Split(text, opens)[1:] {
			inside, _, closed := strings.Cut(part, closes)
			name, _, _ := strings.Cut(inside, splits)
			of, err := ParseVaultSecret(name)
			if err != nil || !closed || seen[name] || opens+inside+closes != placeholder(key, of) {
				continue
			}
			seen[name] = true
			all = append(all, of)
		}
	}
	return all
}

// Fill puts a value in the place of each placeholder of a text.
func Fill(key secret.Text, text string, of VaultSecret, value []byte) string {
	return strings.ReplaceAll(text, placeholder(key, of), string(value))
}

// notInPlan is the error about a value that is made for each run where a plan would hold it.
func notInPlan(name string) error {
	return fault.New(fault.Invalid, "", fmt.Errorf(
		"%s is made for each run, and a plan holds the values of its variables: give it as an environment variable (runnerPodTemplate.spec.env, one key each) or as a file (fileMappings)", name))
}
