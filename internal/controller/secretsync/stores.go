package secretsync

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/externalsecret"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/vault"
)

// stores signs in to the servers of stores.
type stores struct {
	Options
	cache client.Reader

	sessions cache.Map[signIn, vault.Session]
	clients  cache.Map[connection, *http.Client]
}

// Bounds of what is remembered, and of one request.
const (
	sessionsKept   = 1024
	clientsKept    = 256
	requestTimeout = 15 * time.Second
	sessionMost    = time.Hour
)

func newStores(o Options, cached client.Reader) *stores {
	s := &stores{Options: o, cache: cached}
	s.sessions.Now, s.sessions.Size = o.Now, sessionsKept
	s.clients.Now, s.clients.Size = o.Now, clientsKept
	return s
}

// usable is a store that an object may use.
type usable struct {
	kind, name, namespace string // the namespace is that of the object
	spec                  externalsecret.StoreSpec
	vault                 *externalsecret.Vault
	server                vault.Server
	in                    signIn
	ca                    []byte
	by                    func(context.Context) (vault.SignIn, error)
	identity              map[string]string // who signs in, for the audit log
}

// signIn is all that a session depends on.
type signIn struct {
	connection
	namespace  string // of the server
	method     vault.Method
	path, role string
	account    types.NamespacedName
	audiences  string
	credential [sha256.Size]byte // of what is in Secrets
}

// who names who signs in, and where. What lies in Secrets is no part of it: it may be renewed.
func (in signIn) who() string {
	return stack.Digest([]string{in.url, in.namespace, string(in.method), in.path, in.role, in.account.String(), in.audiences})
}

// connection is all that a client of HTTP depends on.
type connection struct {
	url string
	ca  [sha256.Size]byte
}

// find returns a store that objects of a namespace may use.
func (s *stores) find(ctx context.Context, ref externalsecret.StoreRef, namespace string) (*usable, error) {
	u := &usable{kind: ref.Kind, name: ref.Name, namespace: namespace}
	at := client.ObjectKey{Name: ref.Name}
	if ref.Kind == externalsecret.SecretStore {
		at.Namespace = namespace
	}
	said := func(err error) error {
		return fault.New(fault.Of(err), fault.Reason(err, externalsecret.ReasonStore), fmt.Errorf("the %s %s: %w", ref.Kind, ref.Name, err))
	}
	found := object(ref.Kind)
	if err := s.cache.Get(ctx, at, found); apierrors.IsNotFound(err) {
		return nil, said(fault.New(fault.Missing, externalsecret.ReasonStore, errors.New("there is none: create it, or correct spec.secretStoreRef")))
	} else if err != nil {
		return nil, err
	}
	spec, err := decode[externalsecret.StoreSpec](found)
	if err == nil {
		err = spec.Check(at.Namespace, s.Out.PlainHTTP())
	}
	if err == nil && spec.Controller != "" && spec.Controller != externalsecret.Controller {
		err = fault.New(fault.Invalid, externalsecret.ReasonStore, fmt.Errorf("its spec.controller is %.80q, which is not this program: use another store", spec.Controller))
	}
	if err == nil {
		err = spec.Uses(namespace, func(by externalsecret.Selector) (bool, error) { return s.selects(ctx, by, namespace) })
	}
	if err != nil {
		return nil, said(err)
	}
	u.spec, u.vault = spec, spec.Provider.Vault
	if err := s.connect(ctx, u); err != nil {
		return nil, said(err)
	}
	if err := s.identify(ctx, u); err != nil {
		return nil, said(err)
	}
	return u, nil
}

// audited says who signs in, for the audit log.
func (u *usable) audited() map[string]string {
	details := maps.Clone(u.identity)
	if details == nil {
		details = map[string]string{}
	}
	details["vault"], details["store"] = u.server.String(), u.kind+"/"+u.name
	return details
}

// selects reports whether the labels of a namespace, as they are now, match a selector.
func (s *stores) selects(ctx context.Context, by externalsecret.Selector, namespace string) (bool, error) {
	selector := &metav1.LabelSelector{MatchLabels: by.MatchLabels}
	for _, e := range by.MatchExpressions {
		selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{Key: e.Key, Operator: metav1.LabelSelectorOperator(e.Operator), Values: e.Values})
	}
	compiled, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return false, fault.New(fault.Invalid, externalsecret.ReasonInvalid, fmt.Errorf("it is no selector: %w", err))
	}
	all := &metav1.PartialObjectMetadataList{}
	all.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := s.Live.List(ctx, all, client.MatchingFields{"metadata.name": namespace}); err != nil {
		return false, fmt.Errorf("reading the labels of the namespace %s: %w", namespace, err)
	}
	return slices.ContainsFunc(all.Items, func(n metav1.PartialObjectMetadata) bool {
		return n.Name == namespace && compiled.Matches(labels.Set(n.Labels))
	}), nil
}

// connect finds the server, and the client that reaches it.
func (s *stores) connect(ctx context.Context, u *usable) error {
	at, err := url.Parse(u.vault.Server) // checked
	if err != nil {
		return err
	}
	ca, err := s.authority(ctx, u)
	if err != nil {
		return err
	}
	u.ca, u.in.connection = ca, connection{u.vault.Server, sha256.Sum256(ca)}
	c, err := s.client(at, u.in.connection, ca)
	if err != nil {
		return err
	}
	u.server = vault.Server{URL: at, Namespace: u.vault.Namespace, HTTP: c}
	u.in.namespace = u.vault.Namespace
	return nil
}

// client is what reaches a server.
func (s *stores) client(at *url.URL, key connection, ca []byte) (*http.Client, error) {
	c, ok := s.clients.Get(key)
	if !ok {
		var err error
		if c, err = s.Out.HTTP(outbound.Options{PlainHTTP: at.Scheme == "http", CA: ca}); err != nil {
			return nil, err
		}
		c.Timeout = requestTimeout
		s.clients.Put(key, c)
	}
	return c, nil
}

// resume is the session of a handout, at the server where it was made.
func (s *stores) resume(h *handout) (vault.Session, error) {
	at, err := url.Parse(h.URL)
	if err != nil {
		return vault.Session{}, fmt.Errorf("the record of a credential names no server: %w", err)
	}
	c, err := s.client(at, connection{h.URL, sha256.Sum256(h.CA)}, h.CA)
	if err != nil {
		return vault.Session{}, err
	}
	return vault.Server{URL: at, Namespace: h.Namespace, HTTP: c}.Resume(secret.New(h.Token), h.Accessor), nil
}

// authority is what the certificate of the server is verified with, besides those of the
// system.
func (s *stores) authority(ctx context.Context, u *usable) ([]byte, error) {
	if len(u.vault.CABundle) > 0 {
		return u.vault.CABundle, nil
	}
	ref := u.vault.CAProvider
	if ref == nil {
		return nil, nil
	}
	at := types.NamespacedName{Namespace: cmp.Or(ref.Namespace, u.namespace), Name: ref.Name}
	var text []byte
	var err error
	if ref.Type == "Secret" {
		text, err = s.value(ctx, at, ref.Key)
	} else {
		found := &corev1.ConfigMap{}
		if err = s.Live.Get(ctx, at, found); err == nil {
			text = []byte(found.Data[ref.Key])
		}
	}
	if err != nil {
		return nil, missing(err, fmt.Sprintf("the %s %s of the namespace %s with the certificate authority", ref.Type, at.Name, at.Namespace))
	}
	if len(text) == 0 {
		return nil, fault.New(fault.Missing, externalsecret.ReasonStore, fmt.Errorf("the %s %s of the namespace %s has no key %.80q: write the certificate authority there", ref.Type, at.Name, at.Namespace, ref.Key))
	}
	return text, nil
}

// missing says what lacks.
func missing(err error, what string) error {
	switch {
	case apierrors.IsNotFound(err):
		return fault.New(fault.Missing, externalsecret.ReasonStore, fmt.Errorf("%s is not there: create it", what))
	case fault.Reason(err, "") != "":
		return err
	}
	return lacks(fmt.Errorf("reading %s: %w", what, err), err)
}

// value is a key of a Secret.
func (s *stores) value(ctx context.Context, at types.NamespacedName, key string) ([]byte, error) {
	found := &corev1.Secret{}
	if err := s.Live.Get(ctx, at, found); err != nil {
		return nil, err
	}
	return found.Data[key], nil
}

// credential is a key of a Secret that a store names.
func (s *stores) credential(ctx context.Context, u *usable, ref *externalsecret.KeyRef, usual string) (secret.Text, error) {
	at := types.NamespacedName{Namespace: cmp.Or(ref.Namespace, u.namespace), Name: ref.Name}
	key := cmp.Or(ref.Key, usual)
	text, err := s.value(ctx, at, key)
	what := fmt.Sprintf("the Secret %s of the namespace %s", at.Name, at.Namespace)
	if err != nil {
		return secret.Text{}, missing(err, what)
	}
	trimmed := strings.TrimSpace(string(text))
	if trimmed == "" {
		return secret.Text{}, fault.New(fault.Missing, externalsecret.ReasonStore, fmt.Errorf("%s has no key %.80q: write it there", what, key))
	}
	return secret.New(trimmed), nil
}

// identify finds who signs in. What lies in Secrets is read each time, so that a credential
// that was replaced or deleted counts at once.
func (s *stores) identify(ctx context.Context, u *usable) error {
	auth := u.vault.Auth
	u.identity = map[string]string{}
	account := func(ref externalsecret.AccountRef, audiences []string) {
		u.in.account = types.NamespacedName{Namespace: cmp.Or(ref.Namespace, u.namespace), Name: ref.Name}
		u.in.audiences = strings.Join(audiences, "\n")
		u.identity["serviceAccount"] = u.in.account.String()
	}
	fixed := func(ref *externalsecret.KeyRef, usual, id string) error {
		text, err := s.credential(ctx, u, ref, usual)
		if err != nil {
			return err
		}
		u.in.credential = sha256.Sum256([]byte(id + "\n" + text.Reveal()))
		u.identity["credentials"] = "Secret " + cmp.Or(ref.Namespace, u.namespace) + "/" + ref.Name
		by := vault.SignIn{Method: u.in.method, Path: u.in.path, Role: u.in.role, Identity: text, RoleID: id}
		u.by = func(context.Context) (vault.SignIn, error) { return by, nil }
		return nil
	}
	var err error
	switch {
	case auth.Kubernetes != nil:
		k := auth.Kubernetes
		u.in.method, u.in.path, u.in.role = vault.Kubernetes, trimAuth(k.MountPath), k.Role
		if k.ServiceAccountRef != nil {
			account(*k.ServiceAccountRef, k.ServiceAccountRef.Audiences)
		} else {
			err = fixed(k.SecretRef, "token", "")
		}
	case auth.JWT != nil:
		j := auth.JWT
		u.in.method, u.in.path, u.in.role = vault.JWT, trimAuth(j.Path), j.Role
		if j.AccountToken != nil {
			audiences := slices.Concat(j.AccountToken.Audiences, j.AccountToken.ServiceAccountRef.Audiences)
			if len(audiences) == 0 {
				audiences = []string{"vault"} // as External Secrets Operator asks
			}
			account(j.AccountToken.ServiceAccountRef, audiences)
		} else {
			err = fixed(j.SecretRef, "jwt", "")
		}
	case auth.AppRole != nil:
		a := auth.AppRole
		u.in.method, u.in.path = vault.AppRole, trimAuth(a.Path)
		id := a.RoleID
		if a.RoleRef != nil {
			var text secret.Text
			if text, err = s.credential(ctx, u, a.RoleRef, "role-id"); err != nil {
				return err
			}
			id = text.Reveal()
		}
		err = fixed(a.SecretRef, "secret-id", id)
	case auth.TokenSecretRef != nil:
		u.in.method = vault.Token
		err = fixed(auth.TokenSecretRef, "token", "")
	}
	if u.in.role != "" {
		u.identity["role"] = u.in.role
	}
	if err == nil && u.by == nil {
		u.by = func(ctx context.Context) (vault.SignIn, error) {
			var audiences []string
			if u.in.audiences != "" {
				audiences = strings.Split(u.in.audiences, "\n")
			}
			token, err := s.Accounts.TokenFor(ctx, u.in.account, audiences)
			return vault.SignIn{Method: u.in.method, Path: u.in.path, Role: u.in.role, Identity: token}, err
		}
	}
	return err
}

// session signs in, unless it did lately.
func (s *stores) session(ctx context.Context, u *usable) (vault.Session, error) {
	if found, ok := s.sessions.Get(u.in); ok {
		return found, nil
	}
	by, err := u.by(ctx)
	if err != nil {
		return vault.Session{}, fmt.Errorf("signing in to the Vault %s: %w", u.server, err)
	}
	if by.Method == vault.Token {
		return u.server.Use(by.Identity), nil
	}
	found, err := u.server.SignIn(ctx, by)
	if err != nil {
		return vault.Session{}, u.reach(err)
	}
	lasts := found.For
	if lasts == 0 || lasts > sessionMost {
		lasts = sessionMost
	}
	s.sessions.PutUntil(u.in, found, s.Now().Add(lasts/2))
	return found, nil
}

// reach says what to do if the address of the server is one that may not be reached.
func (u *usable) reach(err error) error {
	if fault.Reason(err, "") != outbound.ReasonAddress || strings.Contains(err.Error(), u.vault.Server) {
		return err
	}
	return fault.New(fault.Denied, outbound.ReasonAddress, fmt.Errorf("the server %s of the %s %s: %w: let the operator start Terrier with --allow-host=%s, or name another server", u.vault.Server, u.kind, u.name, err, u.server.URL.Host))
}

// read reads a secret that stays.
func (s *stores) read(ctx context.Context, u *usable, read externalsecret.Read) (vault.Secret, error) {
	var got vault.Secret
	err := s.ask(ctx, u, func(session vault.Session) (err error) {
		got, err = session.Read(ctx, vault.Wanted{Path: read.Path, Version: read.Version, Stays: true})
		return err
	})
	if err == nil && bytes.Equal(bytes.TrimSpace(got.Whole), []byte("null")) {
		got.Whole = nil
	}
	return got, err
}

// makes reports whether the server makes a secret for each reading. None is made.
func (s *stores) makes(ctx context.Context, u *usable, read externalsecret.Read) (makes bool, err error) {
	err = s.ask(ctx, u, func(session vault.Session) (err error) {
		makes, err = session.Makes(ctx, read.Path)
		return err
	})
	return makes, err
}

// ask asks with the session of a store.
func (s *stores) ask(ctx context.Context, u *usable, what func(vault.Session) error) error {
	once := func() error {
		session, err := s.session(ctx, u)
		if err != nil {
			return err
		}
		return what(session)
	}
	err := u.reach(once())
	if fault.Reason(err, "") == vault.ReasonDenied { // the session may have been ended; the next one tells
		s.sessions.Delete(u.in)
		err = once()
	}
	return err
}

// trimAuth is the mount of a method, with or without auth/ before it.
func trimAuth(path string) string {
	return strings.TrimPrefix(strings.Trim(path, "/"), "auth/")
}
