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
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/input"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/vault"
)

// Config says which server there is, and how ServiceAccounts sign in.
type Config struct {
	Server   vault.Server
	Method   vault.Method  // of accounts that do not say; they may say approle or token
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
	Now    func() time.Time
	Log    *slog.Logger
	Logins bool // these are the sessions of runs that sign in by their identity: see Login

	gates    gates
	sessions sessions // for secrets that stay
	secrets  secrets
}

// Open makes v ready. It sends no request: the server may be down when this program starts.
func (v *Vaults) Open() *Vaults {
	v.sessions.open(v.Now)
	v.secrets.open(v.Now)
	return v
}

// sweepEvery is how often what is over is dropped.
const sweepEvery = time.Minute

// Run drops secrets that are not to be used any more and ends sessions that were replaced,
// until ctx ends. Then it ends all sessions of secrets that stay.
func (v *Vaults) Run(ctx context.Context) error {
	for {
		select {
		case <-time.After(sweepEvery):
			v.sweep(ctx)
		case <-ctx.Done():
			v.close(context.WithoutCancel(ctx))
			return nil
		}
	}
}

// Stack is for whom something is read.
type Stack struct {
	UID     string
	Account types.NamespacedName // of its runs
	Object  audit.Object
	Objects input.Reader // Secrets and ConfigMaps that it may read
}

// Begin makes the secrets of one run. They last until End, as long as Renew is called in
// time. An error has ended what it began.
func (v *Vaults) Begin(ctx context.Context, of Stack, run string, wanted []input.VaultSecret) (values map[string][]byte, err error) {
	err = v.gates.of(v.Config.Server.URL.String()).through(ctx, v.Now, func() (err error) {
		values, err = begin(ctx, v, of, run, wanted)
		return err
	})
	return values, err
}

// Login signs a run in to any server, and returns the token of its session. It lasts until End,
// as long as Renew is called in time. The session is recorded before its token is known to the
// run.
func (v *Vaults) Login(ctx context.Context, uid, run string, at vault.Server, by vault.SignIn) (token secret.Text, err error) {
	at.HTTP = v.Config.Server.HTTP
	err = v.gates.of(at.URL.String()).through(ctx, v.Now, func() error {
		if err := v.EndOrForget(ctx, uid); err != nil { // of a run that did not begin
			return err
		}
		s, err := at.SignIn(ctx, by)
		if err != nil {
			return err
		}
		h := handout{Run: run, URL: at.URL.String(), Namespace: at.Namespace, Token: s.Token().Reveal(), Accessor: s.Accessor, Session: s.Renewable, Began: v.Now()}
		h.lasts(v.Now(), s.For)
		if err := v.keep(ctx, uid, h); err != nil {
			return errors.Join(err, s.End(ctx, nil))
		}
		token = s.Token()
		return nil
	})
	return token, err
}

// begin is Begin, once the server may be asked.
func begin(ctx context.Context, v *Vaults, of Stack, run string, wanted []input.VaultSecret) (map[string][]byte, error) {
	in, err := v.signInOf(ctx, of)
	if err != nil {
		return nil, err
	}
	if err := v.EndOrForget(ctx, of.UID); err != nil { // of a run that did not begin
		return nil, err
	}
	s, err := v.open(ctx, in)
	if err != nil {
		return nil, err
	}
	h := handout{Run: run, URL: v.Config.Server.URL.String(), Namespace: v.Config.Server.Namespace, Token: s.Token().Reveal(), Accessor: s.Accessor, Session: s.Renewable, Began: v.Now()}
	h.lasts(v.Now(), s.For)
	if err := v.keep(ctx, of.UID, h); err != nil {
		return nil, errors.Join(err, s.End(ctx, nil))
	}
	values, err := v.make(ctx, of, in, s, &h, wanted)
	if err == nil {
		err = v.keep(ctx, of.UID, h)
	}
	if err != nil {
		return nil, errors.Join(err, v.finish(ctx, of.UID, h))
	}
	return values, nil
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
			if h.Accessor == "" { // the token of another ends none of them, so each is known before the next
				if err := v.keep(ctx, of.UID, *h); err != nil {
					return nil, err
				}
			}
		}
		h.lasts(v.Now(), got.For)
		if err := v.audit(ctx, of, in, h.Run, one, factsOf(got), false); err != nil {
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
