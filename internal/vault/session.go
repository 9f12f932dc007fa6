package vault

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/secret"
)

// Method is a way to sign in.
type Method string

// The methods.
const (
	Kubernetes Method = "kubernetes" // with the token of a ServiceAccount, which the server shows to the API server
	JWT        Method = "jwt"        // with a token of an issuer, whose signature the server verifies
	AppRole    Method = "approle"    // with the ID of a role and a secret ID
	Token      Method = "token"      // with a token that another program was given
)

// Kept reports whether a method signs in with a credential that is kept somewhere, and not with
// a token that is made for the sign-in.
func (m Method) Kept() bool { return m == AppRole || m == Token }

// SignIn is who signs in, and how.
type SignIn struct {
	Method   Method
	Path     string      // where the method is mounted; empty for its own name
	Role     string      // of kubernetes and jwt
	Identity secret.Text // the token of kubernetes and jwt; the secret ID of approle; the token of token
	RoleID   string      // of approle
}

// Session is one sign-in.
type Session struct {
	server Server
	token  secret.Text
	who    string

	// Accessor ends the session without its token; it is no secret. It is empty for a
	// token that another program was given, which is not ours to end.
	Accessor  string
	For       time.Duration // how long it lasts, from the sign-in on; 0 without an end
	Renewable bool
}

// SignIn signs in. An identity that the server does not accept is Denied.
func (s Server) SignIn(ctx context.Context, by SignIn) (Session, error) {
	path := by.Path
	if path == "" {
		path = string(by.Method)
	}
	if !isPath(path) { // Denied, as whatever is wrong with who signs in: another object than the one that is reconciled names it
		return Session{}, fault.New(fault.Denied, ReasonSignIn, fmt.Errorf("signing in to the Vault %s: %.80q is no path of a method below auth/: name the mount of the method, as vault auth list shows it", s, path))
	}
	r := request{method: http.MethodPost, path: "auth/" + path + "/login"}
	who := "the role " + by.Role
	switch by.Method {
	case Kubernetes, JWT:
		r.in = map[string]string{"role": by.Role, "jwt": by.Identity.Reveal()}
	case AppRole:
		who = "the AppRole at auth/" + path
		r.in = map[string]string{"role_id": by.RoleID, "secret_id": by.Identity.Reveal()}
	case Token:
		return s.child(ctx, by.Identity)
	default:
		return Session{}, fault.New(fault.Invalid, ReasonSignIn, fmt.Errorf("there is no way to sign in to a Vault that is called %.40q: use %s, %s, %s or %s", by.Method, Kubernetes, JWT, AppRole, Token))
	}
	doing := fmt.Sprintf("signing in with %s at auth/%s", who, path)
	out, err := s.do(ctx, r)
	if refused, ok := errors.AsType[refusal](err); ok && (refused.code/100 == 4 && refused.code != http.StatusTooManyRequests || refused.misconfigured()) {
		return Session{}, fault.New(fault.Denied, ReasonSignIn, fmt.Errorf("%s, to the Vault %s: %w: %s", doing, s, err, diagnosis(by, path, refused)))
	}
	if err == nil && (out.Auth == nil || out.Auth.Token == "") {
		err = errors.New("the answer has no token")
	}
	if err != nil {
		return Session{}, s.explain(err, doing, "")
	}
	return Session{server: s, token: secret.New(out.Auth.Token), who: who, Accessor: out.Auth.Accessor, For: seconds(out.Auth.Duration), Renewable: out.Auth.Renewable}, nil
}

// childLasts is how long a token that child makes lasts without being renewed. The
// controller that would end it may be gone, and the default of a server is 32 days.
const childLasts = "1h"

// child makes a token below one that another program was given, so that its leases can be
// ended without it. Where that may not be done, the token itself is used.
func (s Server) child(ctx context.Context, parent secret.Text) (Session, error) {
	const who = "a token"
	out, err := s.do(ctx, request{method: http.MethodPost, path: "auth/token/create", token: parent, in: map[string]any{"display_name": "terrier", "ttl": childLasts}})
	if err == nil && out.Auth != nil && out.Auth.Token != "" {
		return Session{server: s, token: secret.New(out.Auth.Token), who: who, Accessor: out.Auth.Accessor, For: seconds(out.Auth.Duration), Renewable: out.Auth.Renewable}, nil
	}
	if refused, ok := errors.AsType[refusal](err); err != nil && (!ok || refused.code != http.StatusForbidden) {
		return Session{}, s.explain(err, "signing in with a token", "")
	}
	if _, err := s.do(ctx, request{method: http.MethodGet, path: "auth/token/lookup-self", token: parent}); err != nil {
		if refused, ok := errors.AsType[refusal](err); ok && refused.code == http.StatusForbidden {
			return Session{}, fault.New(fault.Denied, ReasonSignIn, fmt.Errorf("signing in with a token, to the Vault %s: %w: the token is not known there, or has expired: write another one", s, err))
		}
		return Session{}, s.explain(err, "signing in with a token", "")
	}
	return Session{server: s, token: parent, who: who}, nil
}

// Resume is a session whose token is known from before.
func (s Server) Resume(token secret.Text, accessor string) Session {
	return Session{server: s, token: token, who: "a session of before", Accessor: accessor}
}

// Use is a session with a token that another program was given, as it is: it is for reading
// what stays, and is neither renewed nor ended.
func (s Server) Use(token secret.Text) Session {
	return Session{server: s, token: token, who: "the token"}
}

// Token is what the session is known by at the server.
func (s Session) Token() secret.Text { return s.token }

// Renew lets the session last longer, and returns for how long from now. Leases of the
// session are renewed by themselves, with RenewLease.
func (s Session) Renew(ctx context.Context) (time.Duration, error) {
	out, err := s.server.do(ctx, request{method: http.MethodPost, path: "auth/token/renew-self", token: s.token, in: map[string]any{}})
	if err == nil && out.Auth == nil {
		err = errors.New("the answer says no duration")
	}
	if err != nil {
		return 0, s.server.explain(err, "renewing the session of "+s.who, "it has ended. The next run signs in again")
	}
	return seconds(out.Auth.Duration), nil
}

// Known reports whether the server still knows the session. One that may not ask is known.
func (s Session) Known(ctx context.Context) (bool, error) {
	_, err := s.server.do(ctx, request{method: http.MethodGet, path: "auth/token/lookup-self", token: s.token})
	refused, ok := errors.AsType[refusal](err)
	switch {
	case err == nil:
		return true, nil
	case ok && refused.code == http.StatusForbidden:
		return gone(err) != nil, nil
	}
	return false, s.server.explain(err, "looking up the session of "+s.who, "")
}

// RenewLease lets a lease last longer, and returns for how long from now: a lease does not
// outlast the maximum of its role.
func (s Session) RenewLease(ctx context.Context, lease string) (time.Duration, error) {
	out, err := s.server.do(ctx, request{method: http.MethodPost, path: "sys/leases/renew", token: s.token, in: map[string]string{"lease_id": lease}})
	if err != nil {
		return 0, s.server.explain(err, "renewing the lease "+lease, "it has ended, or the policy of "+s.who+" does not allow sys/leases/renew")
	}
	return seconds(out.Duration), nil
}

// End ends the session with all that was made with it. Leases names those of a session
// without an accessor, which are ended one by one. What has ended already is ended.
func (s Session) End(ctx context.Context, leases []string) error {
	var all []error
	if s.Accessor == "" {
		for _, lease := range leases {
			_, err := s.server.do(ctx, request{method: http.MethodPost, path: "sys/leases/revoke", token: s.token, in: map[string]any{"lease_id": lease, "sync": true}})
			all = append(all, s.server.explain(gone(err), "giving back the lease "+lease, "allow sys/leases/revoke to the policy of "+s.who+", or wait: it ends by itself"))
		}
		return errors.Join(all...)
	}
	_, err := s.server.do(ctx, request{method: http.MethodPost, path: "auth/token/revoke-self", token: s.token})
	return s.server.explain(gone(err), "ending the session of "+s.who, "allow auth/token/revoke-self to its policy, as the policy default does, or wait: it ends by itself")
}

// Ended reports whether err says that a session or a lease is not there any more, so that what
// it was for has ended.
func Ended(err error) bool { return err != nil && gone(err) == nil }

// gone is nil for an answer that says that a token or a lease is not there any more. A
// server answers a token that it does not know with these words alone; where a policy lacks,
// it counts errors before them.
func gone(err error) error {
	r, ok := errors.AsType[refusal](err)
	switch {
	case !ok:
		return err
	case r.code == http.StatusForbidden && (r.says("bad token", "invalid token") || len(r.errors) == 1 && r.errors[0] == "permission denied"):
		return nil
	case r.code == http.StatusBadRequest && r.says("lease not found", "invalid lease"):
		return nil
	}
	return err
}
