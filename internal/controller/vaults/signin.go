package vaults

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/input"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/vault"
)

// The annotations of a ServiceAccount that say how it signs in. Those who use Vault's agent
// have the first three already.
const (
	RoleAnnotation        = "vault.hashicorp.com/role"
	PathAnnotation        = "vault.hashicorp.com/auth-path" // auth/kubernetes, or kubernetes
	MethodAnnotation      = "vault.hashicorp.com/auth-type" // approle or token, in place of the method of the installation
	CredentialsAnnotation = "terrier.dev/vault-credentials" // the name of a Secret of the account's own namespace
)

// The keys of a Secret with credentials.
const (
	RoleIDKey   = "role-id"
	SecretIDKey = "secret-id"
	TokenKey    = "token"
)

// credentialMost bounds a credential, in bytes: it is part of what a session is kept by. A
// token of the type batch has some hundred.
const credentialMost = 8 << 10

// signIn is all that a session depends on.
type signIn struct {
	account    types.NamespacedName
	method     vault.Method
	path, role string

	// Of approle and token. Another credential is another session.
	credentials string // the Secret
	roleID      secret.Text
	credential  secret.Text // the secret ID, or the token
}

// MethodOf is the method by which a ServiceAccount with these annotations signs in, where the
// usual one is that of the installation. An account may have credentials of its own; which
// tokens of accounts a server gets is the choice of the operator alone.
func MethodOf(said map[string]string, usual vault.Method) (vault.Method, error) {
	method := vault.Method(cmp.Or(said[MethodAnnotation], string(usual)))
	switch {
	case method != usual && !method.Kept():
		return "", fmt.Errorf("its annotation %s is %.40q: write %s or %s, or remove it: ServiceAccounts sign in with %s here, as --vault-auth-method says", MethodAnnotation, method, vault.AppRole, vault.Token, usual)
	case method.Kept() && said[CredentialsAnnotation] == "":
		return "", fmt.Errorf("it signs in with %s and names no credentials: write the key %s into a Secret of its namespace, and annotate it with %s: NAME", method, keysOf(method), CredentialsAnnotation)
	case !method.Kept() && said[CredentialsAnnotation] != "":
		return "", fmt.Errorf("its annotation %s names credentials, and it signs in with %s, which needs none: annotate it with %s: %s or %s, or remove the first annotation", CredentialsAnnotation, method, MethodAnnotation, vault.AppRole, vault.Token)
	}
	return method, nil
}

// keysOf names the keys of the Secret that a method reads.
func keysOf(method vault.Method) string {
	if method == vault.AppRole {
		return RoleIDKey + " and the key " + SecretIDKey
	}
	return TokenKey
}

// as names an account, for messages.
func as(account types.NamespacedName) string {
	return fmt.Sprintf("the ServiceAccount %s of the namespace %s", account.Name, account.Namespace)
}

// denied is Denied, and not Invalid: a change of the stack alone would not help, so it is
// tried again.
func (c Config) denied(account types.NamespacedName, why error) error {
	return fault.New(fault.Denied, vault.ReasonSignIn, fmt.Errorf("signing in to the Vault %s: %s: %w", c.Server, as(account), why))
}

// signInOf says how the account of a stack signs in. Sessions that the account opened in another
// way are ended: nothing goes on with credentials that were replaced or deleted.
func (v *Vaults) signInOf(ctx context.Context, of Stack) (signIn, error) {
	in, err := saidOf(ctx, v, of)
	if err == nil {
		v.sessions.dropOthers(in)
	} else if fault.Of(err) == fault.Denied {
		v.sessions.dropOthers(signIn{account: of.Account})
	}
	return in, err
}

func saidOf(ctx context.Context, v *Vaults, of Stack) (signIn, error) {
	account := of.Account
	said, err := v.Accounts.Annotations(ctx, account)
	if err != nil {
		return signIn{}, fmt.Errorf("signing in to the Vault %s as %s: %w", v.Config.Server, as(account), err)
	}
	method, err := MethodOf(said, v.Config.Method)
	if err != nil {
		return signIn{}, v.Config.denied(account, err)
	}
	in := signIn{account: account, method: method, path: cmp.Or(trimAuth(said[PathAnnotation]), v.Config.pathOf(method))}
	if method.Kept() {
		in.credentials = said[CredentialsAnnotation]
		err := v.Config.credentials(ctx, of, &in)
		return in, err
	}
	if in.role = cmp.Or(said[RoleAnnotation], v.Config.Role); in.role == "" {
		return signIn{}, v.Config.denied(account, fmt.Errorf("it names no role: annotate it with %s", RoleAnnotation))
	}
	return in, nil
}

// pathOf is where a method is mounted, for accounts that do not say.
func (c Config) pathOf(method vault.Method) string {
	if method == c.Method {
		return cmp.Or(c.Path, string(method))
	}
	return string(method)
}

// credentials reads the credentials of an account, each time: those that were replaced or
// deleted count at once. They are in a Secret of its own namespace, which the stack has to be
// allowed to read as it has to for each other Secret.
func (c Config) credentials(ctx context.Context, of Stack, in *signIn) error {
	data, _, err := of.Objects.Read(ctx, stack.Ref{Kind: input.Secret, Namespace: in.account.Namespace, Name: in.credentials})
	where := fmt.Sprintf("the Secret %.80s of the namespace %s, which its annotation %s names", in.credentials, in.account.Namespace, CredentialsAnnotation)
	if kind := fault.Of(err); err != nil && (kind == fault.Missing || kind == fault.Invalid || kind == fault.Denied) {
		return c.denied(in.account, fmt.Errorf("%s: %w", where, err))
	}
	if err != nil {
		return fmt.Errorf("signing in to the Vault %s: %s: reading %s: %w", c.Server, as(in.account), where, err)
	}
	one := func(key string) (secret.Text, error) {
		text := strings.TrimSpace(string(data[key]))
		if text == "" {
			return secret.Text{}, c.denied(in.account, fmt.Errorf("%s, has no key %s: write it there", where, key))
		}
		if len(text) > credentialMost || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
			return secret.Text{}, c.denied(in.account, fmt.Errorf("%s, has a key %s that is no credential: it has spaces, line breaks or more than %d bytes: write the credential alone", where, key, credentialMost))
		}
		return secret.New(text), nil
	}
	if in.method == vault.Token {
		in.credential, err = one(TokenKey)
		return err
	}
	if in.roleID, err = one(RoleIDKey); err == nil {
		in.credential, err = one(SecretIDKey)
	}
	return err
}

// open signs in.
func (v *Vaults) open(ctx context.Context, in signIn) (vault.Session, error) {
	by := vault.SignIn{Method: in.method, Path: in.path, Role: in.role, Identity: in.credential, RoleID: in.roleID.Reveal()}
	with := "the Secret " + in.credentials
	if !in.method.Kept() {
		token, err := v.Accounts.Token(ctx, in.account, v.Config.Audience)
		if err != nil {
			return vault.Session{}, fmt.Errorf("signing in to the Vault %s: making a token of %s: %w", v.Config.Server, as(in.account), err)
		}
		by.Identity, with = token, "a token for "+cmp.Or(v.Config.Audience, "the API server")
	}
	s, err := v.Config.Server.SignIn(ctx, by)
	if err != nil {
		return vault.Session{}, fmt.Errorf("%s, with %s: %w", as(in.account), with, err)
	}
	return s, nil
}
