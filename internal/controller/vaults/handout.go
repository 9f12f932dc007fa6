package vaults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/vault"
)

// Records keep what is handed out, sealed.
type Records interface {
	Put(ctx context.Context, key string, r io.Reader) error
	Get(ctx context.Context, key string) (io.ReadCloser, error)
	Delete(ctx context.Context, key string) error
}

// handout is the session of one run: what is needed to renew and to end it. A stack has
// one run at a time, and so one handout.
type handout struct {
	Run       string    `json:"run"`
	URL       string    `json:"url"` // the server as it was then
	Namespace string    `json:"namespace,omitempty"`
	Token     string    `json:"token"`
	Accessor  string    `json:"accessor,omitempty"`
	Leases    []string  `json:"leases,omitempty"`
	Renewable []string  `json:"renewable,omitempty"` // those of the leases that can be renewed
	Session   bool      `json:"session,omitempty"`   // the session can be renewed
	Began     time.Time `json:"began"`
	Renewed   time.Time `json:"renewed,omitzero"`
	Until     time.Time `json:"until,omitzero"` // the first of it ends then; zero if nothing does
}

// lasts notes that something of it ends.
func (h *handout) lasts(now time.Time, long time.Duration) {
	if end := now.Add(long); long > 0 && (h.Until.IsZero() || end.Before(h.Until)) {
		h.Until = end
	}
}

// due is when it has to be renewed: at two thirds.
func (h handout) due() time.Time {
	began := h.Began
	if h.Renewed.After(began) {
		began = h.Renewed
	}
	if h.Until.IsZero() {
		return time.Time{}
	}
	return began.Add(h.Until.Sub(began) * 2 / 3)
}

// retryRenewal counts as the time that is left of what could not be renewed: at two thirds of
// it the next attempt is made.
const retryRenewal = 45 * time.Second

// recordOf is the key of the record of a handout.
func recordOf(v *Vaults, uid string) string {
	if v.Logins {
		return record.LoggedIn(uid)
	}
	return record.HandedOut(uid)
}

func (v *Vaults) keep(ctx context.Context, uid string, h handout) error {
	if err := record.At[handout](recordOf(v, uid)).Write(ctx, v.Records, h); err != nil {
		return fmt.Errorf("recording the session of run %s at the Vault: %w", h.Run, err)
	}
	return nil
}

// handedOut is what was handed out for a stack; nil if nothing is.
func (v *Vaults) handedOut(ctx context.Context, uid string) (*handout, error) {
	h, err := record.At[handout](recordOf(v, uid)).Read(ctx, v.Records)
	if fault.Of(err) == fault.Missing {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the session of a run at the Vault: %w", err)
	}
	return &h, nil
}

// session is that of a handout, at the server where it was made.
func (h handout) session(client *http.Client) (vault.Session, error) {
	at, err := url.Parse(h.URL)
	if err != nil {
		return vault.Session{}, fmt.Errorf("the session of run %s names no server: %w", h.Run, err)
	}
	server := vault.Server{URL: at, Namespace: h.Namespace, HTTP: client}
	return server.Resume(secret.New(h.Token), h.Accessor), nil
}

// Renew renews what was handed out for a run of a stack if it is time, and returns when it
// is time again; zero if it need not be renewed. What cannot be renewed ends when it ends:
// the run fails then as it would with any other credential that has expired.
func (v *Vaults) Renew(ctx context.Context, uid string) (time.Time, error) {
	h, err := v.handedOut(ctx, uid)
	if err != nil || h == nil || h.due().IsZero() {
		return time.Time{}, err
	}
	now := v.Now()
	if due := h.due(); now.Before(due) {
		return due, nil
	}
	s, err := h.session(v.Config.Server.HTTP)
	if err != nil {
		return time.Time{}, err
	}
	next := *h
	next.Renewed, next.Until = now, time.Time{}
	var failed []error
	again := func(long time.Duration, err error) { // what cannot be renewed keeps nothing else from it
		if err != nil {
			failed, long = append(failed, err), retryRenewal
		}
		next.lasts(now, long)
	}
	ask := func(renew func() (time.Duration, error)) {
		var long time.Duration
		err := h.asking(ctx, v, func() (err error) {
			long, err = renew()
			return err
		})
		again(long, err)
	}
	if h.Session {
		ask(func() (time.Duration, error) { return s.Renew(ctx) })
	}
	for _, lease := range h.Renewable {
		ask(func() (time.Duration, error) { return s.RenewLease(ctx, lease) })
	}
	return next.due(), errors.Join(append(failed, v.keep(ctx, uid, next))...)
}

// End ends what was handed out for a stack, if anything was. What was ended is forgotten
// afterwards, so that a crash between ends it again.
func (v *Vaults) End(ctx context.Context, uid string) error {
	h, err := v.handedOut(ctx, uid)
	if err != nil || h == nil {
		return err
	}
	return h.asking(ctx, v, func() error { return v.finish(ctx, uid, *h) })
}

// asking asks the server of a handout, unless that did not answer a moment ago.
func (h handout) asking(ctx context.Context, v *Vaults, ask func() error) error {
	err := v.gates.of(h.URL).through(ctx, v.Now, ask)
	if _, ok := errors.AsType[notEnded](err); !ok && fault.Reason(err, "") == vault.ReasonUnreachable {
		return notEnded{err}
	}
	return err
}

func (v *Vaults) finish(ctx context.Context, uid string, h handout) error {
	s, err := h.session(v.Config.Server.HTTP)
	if err == nil {
		err = s.End(ctx, h.Leases)
	}
	if err != nil {
		return notEnded{fmt.Errorf("giving back what run %s had of the Vault: %w", h.Run, err)}
	}
	return v.Records.Delete(ctx, recordOf(v, uid))
}

// notEnded is an error of a server about a session, and not of the records.
type notEnded struct{ error }

func (n notEnded) Unwrap() error { return n.error }

// EndOrForget is End for what must not wait for a server: what cannot be ended is forgotten,
// and ends by itself. Only an error of the records is returned.
func (v *Vaults) EndOrForget(ctx context.Context, uid string) error {
	h, err := v.handedOut(ctx, uid)
	if err == nil && h != nil {
		err = v.finish(ctx, uid, *h) // asked again even if the server did not answer a moment ago
	}
	if _, ok := errors.AsType[notEnded](err); !ok {
		return err
	}
	v.Log.Warn("credentials of a run are not given back: they end by themselves", "stack", uid, "err", err)
	return v.Records.Delete(ctx, recordOf(v, uid))
}

// trimAuth is the mount of a method, with or without auth/ before it.
func trimAuth(path string) string {
	return strings.TrimPrefix(strings.Trim(path, "/"), "auth/")
}
