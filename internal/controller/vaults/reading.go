package vaults

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/input"
	"github.com/terrier-iac/terrier/internal/vault"
)

// Bounds of secrets that stay. A secret has at most some MiB, so their weight is bounded as
// well as their number. The secrets of one namespace leave room for those of others.
const (
	secretsKept  = 8192
	weightKept   = 64 << 20 // bytes
	weightShare  = 8 << 20  // bytes, of one namespace
	weightOfNone = 512      // bytes that an entry takes besides its texts

	readTime   = time.Minute // of one reading
	toldKept   = 1 << 15     // readings that are known to be in the audit log
	namesMost  = 256         // secrets that one stack may name
	reasonMany = "VaultSecretsTooMany"
)

// secrets are those that stay, as they were read last.
type secrets struct {
	kept    cache.Map[reading, value]
	reading cache.Flight[reading, value]
	told    cache.Map[[sha256.Size]byte, struct{}] // see told
}

// reading is a secret as one account reads it.
type reading struct {
	signIn
	secret string
}

// value is what was read.
type value struct {
	input.Value
	facts facts
	mark  string // another one for each version; of a store without versions, for each content
}

// facts are what the audit log says of a reading.
type facts struct {
	request, lease string
	version, keys  int
}

func factsOf(got vault.Secret) facts {
	return facts{request: got.RequestID, lease: got.Lease, version: got.Version, keys: len(got.Data)}
}

func (s *secrets) open(now func() time.Time) {
	s.kept.Now, s.kept.Size, s.told.Size = now, secretsKept, toldKept
	s.kept.Weight, s.kept.Weigh = weightKept, weigh
	s.kept.GroupWeight, s.kept.Group = weightShare, func(of reading) string { return of.account.Namespace }
}

// weigh is how many bytes a secret takes.
func weigh(of reading, v value) int {
	sum := weightOfNone + len(of.secret) + len(of.path) + len(of.role) + len(of.roleID.Reveal()) + len(of.credential.Reveal())
	for name, data := range v.Data {
		sum += len(name) + len(data)
	}
	return sum
}

// Reader reads the inputs of a stack: objects as the stack may, secrets here.
func (v *Vaults) Reader(of Stack) input.Reader {
	return &reader{Reader: of.Objects, vaults: v, of: of}
}

type reader struct {
	input.Reader
	vaults *Vaults
	of     Stack

	mu    sync.Mutex
	names map[string]bool // that were read
}

// Vault implements input.VaultReader.
func (r *reader) Vault(ctx context.Context, wanted input.VaultSecret) (input.Value, error) {
	v := r.vaults
	wanted.Key = ""
	if err := r.count(wanted.String()); err != nil {
		return input.Value{}, err
	}
	in, err := v.signInOf(ctx, r.of)
	if err != nil {
		return input.Value{}, err
	}
	key := reading{in, wanted.String()}
	got, kept := v.secrets.kept.Get(key)
	if !kept {
		got, err = v.secrets.reading.Do(ctx, key, func(ctx context.Context) (value, error) { return v.get(ctx, r.of, key, wanted) })
	}
	if err == nil && !got.Made {
		err = v.tell(ctx, r.of, key, wanted, got)
	}
	if err != nil {
		return input.Value{}, err
	}
	return got.Value, nil
}

// count refuses more secrets than a stack may name: each is a request to the server.
func (r *reader) count(name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.names == nil {
		r.names = map[string]bool{}
	}
	if r.names[name] = true; len(r.names) <= namesMost {
		return nil
	}
	return fault.New(fault.Invalid, reasonMany, fmt.Errorf("the stack names more than %d secrets of the Vault: write what belongs together into one secret, and name its keys", namesMost))
}

// get reads a secret at the server for all who ask for it now, and keeps it.
func (v *Vaults) get(ctx context.Context, of Stack, key reading, wanted input.VaultSecret) (value, error) {
	if got, ok := v.secrets.kept.Get(key); ok { // another reading ended in between
		return got, nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	var got value
	err := v.gates.of(v.Config.Server.URL.String()).through(ctx, v.Now, func() error {
		s, err := v.shared(ctx, key.signIn)
		if err != nil {
			return err
		}
		got, err = v.stays(ctx, of, s, key, wanted)
		if fault.Reason(err, "") == vault.ReasonDenied && v.replace(ctx, key.signIn, s) {
			if s, err = v.shared(ctx, key.signIn); err == nil {
				got, err = v.stays(ctx, of, s, key, wanted)
			}
		}
		return err
	})
	if err != nil {
		return value{}, err
	}
	until := v.Now().Add(v.Config.Reread)
	if !got.Until.IsZero() && got.Until.Before(until) {
		until = got.Until
	}
	v.secrets.kept.PutUntil(key, got, until)
	return got, nil
}

// stays reads a secret that stays. Of one that is made for each reading, it makes none.
func (v *Vaults) stays(ctx context.Context, of Stack, s *shared, key reading, wanted input.VaultSecret) (value, error) {
	makes, err := s.Makes(ctx, wanted.Path)
	if err != nil || makes {
		return value{Value: input.Value{Made: true}}, err
	}
	read, err := s.Read(ctx, vault.Wanted{Path: wanted.Path, Version: wanted.Version, With: wanted.With})
	if err != nil {
		return value{}, err
	}
	got := value{Value: input.Value{Data: read.Data}, facts: factsOf(read)}
	if read.Version != 0 {
		got.Version = input.VaultSecret{Path: wanted.Path, Version: read.Version}.String()
		got.mark = got.Version
	} else {
		text, err := json.Marshal(read.Data)
		if err != nil {
			return value{}, err
		}
		sum := sha256.Sum256(text) // it stays in memory
		got.mark = hex.EncodeToString(sum[:])
	}
	switch {
	case read.For != 0:
		got.Until = v.Now().Add(read.For)
	case wanted.Version == 0:
		got.Until = v.Now().Add(v.Config.Reread) // then it is read again
	}
	if err := v.audit(ctx, of, key.signIn, "", wanted, got.facts, false); err != nil {
		return value{}, err
	}
	v.secrets.told.Put(told(of, key, got), struct{}{})
	return got, nil
}

// tell records that a stack gets a secret that was read for another stack of its account,
// once for each version.
func (v *Vaults) tell(ctx context.Context, of Stack, key reading, wanted input.VaultSecret, got value) error {
	this := told(of, key, got)
	if _, ok := v.secrets.told.Get(this); ok {
		return nil
	}
	if err := v.audit(ctx, of, key.signIn, "", wanted, got.facts, true); err != nil {
		return err
	}
	v.secrets.told.Put(this, struct{}{})
	return nil
}

// told names a version of a secret that a stack was given.
func told(of Stack, key reading, got value) [sha256.Size]byte {
	return sha256.Sum256(fmt.Appendf(nil, "%q", []string{of.UID, key.account.String(), string(key.method), key.path, key.role, key.secret, got.mark}))
}

// audit records that a secret was read, by whom and for what. It names no value.
func (v *Vaults) audit(ctx context.Context, of Stack, in signIn, run string, wanted input.VaultSecret, got facts, again bool) error {
	if v.Audit == nil {
		return nil
	}
	details := map[string]string{
		"path": wanted.Path, "vault": v.Config.Server.String(), "serviceAccount": in.account.Namespace + "/" + in.account.Name,
		"keys": strconv.Itoa(got.keys),
	}
	more := map[string]string{"role": in.role, "requestID": got.request, "lease": got.lease}
	if in.method.Kept() {
		more["method"], more["credentials"] = string(in.method), "Secret "+in.account.Namespace+"/"+in.credentials
	}
	for name, value := range more {
		if value != "" {
			details[name] = value
		}
	}
	if got.version != 0 {
		details["version"] = strconv.Itoa(got.version)
	}
	if again {
		details["cached"] = "true" // the server was asked for another stack of the account
	}
	err := v.Audit.Record(ctx, audit.Entry{What: audit.SecretRead, Via: audit.ViaController, Object: of.Object, Run: run, Details: details})
	if err != nil {
		return fmt.Errorf("recording in the audit log that %s was read: %w", wanted.Path, err)
	}
	return nil
}
