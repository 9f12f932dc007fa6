// Package vaults gives stacks what they name in OpenBao or Vault, each as the ServiceAccount
// of its runs: the policies there decide what a stack may read.
//
// A secret that stays is read when the inputs of a stack are resolved. A secret that the
// server makes for each reading is made when a run begins, with a session of that run
// alone. The session is recorded before anything is read with it, and ended when the run
// has ended, whatever died between: then the server revokes all that was made with it.
//
// Every reading is in the audit log before its value is used.
//
// Start reading at Vaults.Reader and Vaults.Begin.
package vaults

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/input"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/vault"
)

// The annotations of a ServiceAccount that say how it signs in. Those who use Vault's agent
// have them already.
const (
	RoleAnnotation = "vault.hashicorp.com/role"
	PathAnnotation = "vault.hashicorp.com/auth-path" // auth/kubernetes, or kubernetes
)

// Config says which server there is, and how ServiceAccounts sign in.
type Config struct {
	Server   vault.Server
	Method   vault.Method  // kubernetes or jwt
	Path     string        // where the method is mounted, for accounts that do not say; empty for its own name
	Role     string        // of accounts that name none; empty has them refused
	Audience string        // of the tokens that accounts sign in with; empty for that of the API server
	Reread   time.Duration // how long a secret that stays counts as read
}

// Accounts are the ServiceAccounts of a cluster.
type Accounts interface {
	// Annotations are those of an account; Missing if there is none.
	Annotations(context.Context, types.NamespacedName) (map[string]string, error)
	// Token makes a token of an account that lasts a short time. An empty audience is that
	// of the API server.
	Token(ctx context.Context, account types.NamespacedName, audience string) (secret.Text, error)
}

// Vaults reads for all stacks, after Open. It may be used by several goroutines.
type Vaults struct {
	Config   Config
	Accounts Accounts
	Records  Records
	Audit    interface {
		Record(context.Context, audit.Entry) error
	} // nil records nothing
	Now func() time.Time
	Log *slog.Logger

	sessions cache.Map[signIn, vault.Session] // for secrets that stay
	read     cache.Map[reading, input.Value]
}

// How many sessions and secrets are remembered.
const (
	accountsKept = 1024
	secretsKept  = 8192
)

// Open makes v ready. It sends no request: the server may be down when this program starts.
func (v *Vaults) Open() *Vaults {
	v.sessions.Now, v.read.Now = v.Now, v.Now
	v.sessions.Size, v.read.Size = accountsKept, secretsKept
	return v
}

// Stack is for whom something is read.
type Stack struct {
	UID     string
	Account types.NamespacedName // of its runs
	Object  audit.Object
}

// signIn is all that a session depends on.
type signIn struct {
	account    types.NamespacedName
	path, role string
}

// reading is a secret as one account reads it.
type reading struct {
	signIn
	secret string
}

// signInOf says how an account signs in.
func (v *Vaults) signInOf(ctx context.Context, account types.NamespacedName) (signIn, error) {
	said, err := v.Accounts.Annotations(ctx, account)
	if err != nil {
		return signIn{}, fmt.Errorf("signing in to the Vault %s as the ServiceAccount %s of the namespace %s: %w", v.Config.Server, account.Name, account.Namespace, err)
	}
	in := signIn{account: account, path: cmp.Or(trimAuth(said[PathAnnotation]), v.Config.Path), role: cmp.Or(said[RoleAnnotation], v.Config.Role)}
	if in.role == "" {
		return signIn{}, fault.New(fault.Invalid, vault.ReasonSignIn, fmt.Errorf(
			"signing in to the Vault %s: the ServiceAccount %s of the namespace %s names no role: annotate it with %s", v.Config.Server, account.Name, account.Namespace, RoleAnnotation))
	}
	return in, nil
}

// open signs in.
func (v *Vaults) open(ctx context.Context, in signIn) (vault.Session, error) {
	token, err := v.Accounts.Token(ctx, in.account, v.Config.Audience)
	if err != nil {
		return vault.Session{}, fmt.Errorf("signing in to the Vault %s: making a token of the ServiceAccount %s of the namespace %s: %w", v.Config.Server, in.account.Name, in.account.Namespace, err)
	}
	return v.Config.Server.SignIn(ctx, vault.SignIn{Method: v.Config.Method, Path: in.path, Role: in.role, Identity: token})
}

// shared is a session for secrets that stay. It is not renewed: another one takes its
// place in time, and it ends by itself.
func (v *Vaults) shared(ctx context.Context, in signIn) (vault.Session, error) {
	if s, ok := v.sessions.Get(in); ok {
		return s, nil
	}
	s, err := v.open(ctx, in)
	if err == nil {
		lasts := s.For
		if lasts == 0 || lasts > time.Hour {
			lasts = time.Hour
		}
		v.sessions.PutUntil(in, s, v.Now().Add(lasts/2))
	}
	return s, err
}

// Reader reads the inputs of a stack: objects with objects, secrets here.
func (v *Vaults) Reader(of Stack, objects input.Reader) input.Reader { return reader{objects, v, of} }

type reader struct {
	input.Reader
	vaults *Vaults
	of     Stack
}

// Vault implements input.VaultReader.
func (r reader) Vault(ctx context.Context, wanted input.VaultSecret) (input.Value, error) {
	v := r.vaults
	in, err := v.signInOf(ctx, r.of.Account)
	if err != nil {
		return input.Value{}, err
	}
	whole := wanted
	whole.Key = ""
	key := reading{in, whole.String()}
	if value, ok := v.read.Get(key); ok {
		return value, nil
	}
	value, err := v.stays(ctx, r.of, in, whole)
	if fault.Reason(err, "") == vault.ReasonDenied { // the session may have been ended; the next one tells
		v.sessions.Delete(in)
		value, err = v.stays(ctx, r.of, in, whole)
	}
	if err == nil {
		until := v.Now().Add(v.Config.Reread)
		if !value.Until.IsZero() && value.Until.Before(until) {
			until = value.Until
		}
		v.read.PutUntil(key, value, until)
	}
	return value, err
}

// stays reads a secret that stays. Of one that is made for each reading, it makes none.
func (v *Vaults) stays(ctx context.Context, of Stack, in signIn, wanted input.VaultSecret) (input.Value, error) {
	s, err := v.shared(ctx, in)
	if err != nil {
		return input.Value{}, err
	}
	makes, err := s.Makes(ctx, wanted.Path)
	if err != nil || makes {
		return input.Value{Made: true}, err
	}
	got, err := s.Read(ctx, vault.Wanted{Path: wanted.Path, Version: wanted.Version, With: wanted.With})
	if err != nil {
		return input.Value{}, err
	}
	if err := v.audit(ctx, of, in, "", wanted, got); err != nil {
		return input.Value{}, err
	}
	value := input.Value{Data: got.Data}
	if got.Version != 0 {
		value.Version = input.VaultSecret{Path: wanted.Path, Version: got.Version}.String()
	}
	switch {
	case got.For != 0:
		value.Until = v.Now().Add(got.For)
	case wanted.Version == 0:
		value.Until = v.Now().Add(v.Config.Reread) // then it is read again
	}
	return value, nil
}

// audit records that a secret was read, by whom and for what. It names no value.
func (v *Vaults) audit(ctx context.Context, of Stack, in signIn, run string, wanted input.VaultSecret, got vault.Secret) error {
	if v.Audit == nil {
		return nil
	}
	details := map[string]string{
		"path": wanted.Path, "vault": v.Config.Server.String(), "serviceAccount": in.account.Namespace + "/" + in.account.Name, "role": in.role,
		"keys": strconv.Itoa(len(got.Data)),
	}
	for name, value := range map[string]string{"requestID": got.RequestID, "lease": got.Lease} {
		if value != "" {
			details[name] = value
		}
	}
	if got.Version != 0 {
		details["version"] = strconv.Itoa(got.Version)
	}
	err := v.Audit.Record(ctx, audit.Entry{What: audit.SecretRead, Via: audit.ViaController, Object: of.Object, Run: run, Details: details})
	if err != nil {
		return fmt.Errorf("recording in the audit log that %s was read: %w", wanted.Path, err)
	}
	return nil
}

// Begin makes the secrets of one run. They last until End, as long as Renew is called in
// time; the second result says when. An error has ended what it began.
func (v *Vaults) Begin(ctx context.Context, of Stack, run string, wanted []input.VaultSecret) (map[string][]byte, time.Time, error) {
	in, err := v.signInOf(ctx, of.Account)
	if err != nil {
		return nil, time.Time{}, err
	}
	if err := v.EndOrForget(ctx, of.UID); err != nil { // of a run that did not begin
		return nil, time.Time{}, err
	}
	s, err := v.open(ctx, in)
	if err != nil {
		return nil, time.Time{}, err
	}
	h := handout{Run: run, URL: v.Config.Server.URL.String(), Namespace: v.Config.Server.Namespace, Token: s.Token().Reveal(), Accessor: s.Accessor, Session: s.Renewable, Began: v.Now()}
	h.lasts(v.Now(), s.For)
	if err := v.keep(ctx, of.UID, h); err != nil {
		return nil, time.Time{}, errors.Join(err, s.End(ctx, nil))
	}
	values, err := v.make(ctx, of, in, s, &h, wanted)
	if err == nil {
		err = v.keep(ctx, of.UID, h)
	}
	if err != nil {
		return nil, time.Time{}, errors.Join(err, v.finish(ctx, of.UID, h))
	}
	return values, h.Until, nil
}

// make reads each secret once, however many keys of it are wanted, and returns the values
// by the texts of the secrets with their keys.
func (v *Vaults) make(ctx context.Context, of Stack, in signIn, s vault.Session, h *handout, wanted []input.VaultSecret) (map[string][]byte, error) {
	keys := map[string][]input.VaultSecret{}
	for _, w := range wanted {
		whole := w
		whole.Key = ""
		keys[whole.String()] = append(keys[whole.String()], w)
	}
	values := map[string][]byte{}
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		one := keys[name][0]
		got, err := s.Read(ctx, vault.Wanted{Path: one.Path, With: one.With})
		if err != nil {
			return nil, err
		}
		if got.Lease != "" {
			h.Leases = append(h.Leases, got.Lease)
			if got.Renewable {
				h.Renewable = append(h.Renewable, got.Lease)
			}
		}
		h.lasts(v.Now(), got.For)
		if err := v.audit(ctx, of, in, h.Run, one, got); err != nil {
			return nil, err
		}
		for _, w := range keys[name] {
			value, ok := got.Data[w.Key]
			if !ok {
				return nil, fault.New(fault.Invalid, vault.ReasonPath, fmt.Errorf("the secret %s has no key %q; it has %q", name, w.Key, slices.Sorted(maps.Keys(got.Data))))
			}
			values[w.String()] = value
		}
	}
	return values, nil
}
