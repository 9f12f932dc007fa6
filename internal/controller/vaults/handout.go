package vaults

import (
	"context"
	"fmt"
	"io"
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

func (v *Vaults) keep(ctx context.Context, uid string, h handout) error {
	if err := record.At[handout](record.HandedOut(uid)).Write(ctx, v.Records, h); err != nil {
		return fmt.Errorf("recording the session of run %s at the Vault: %w", h.Run, err)
	}
	return nil
}

// handedOut is what was handed out for a stack; nil if nothing is.
func (v *Vaults) handedOut(ctx context.Context, uid string) (*handout, error) {
	h, err := record.At[handout](record.HandedOut(uid)).Read(ctx, v.Records)
	if fault.Of(err) == fault.Missing {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the session of a run at the Vault: %w", err)
	}
	return &h, nil
}

// session is that of a handout, at the server where it was made.
func (v *Vaults) session(h handout) (vault.Session, error) {
	at, err := url.Parse(h.URL)
	if err != nil {
		return vault.Session{}, fmt.Errorf("the session of run %s names no server: %w", h.Run, err)
	}
	server := vault.Server{URL: at, Namespace: h.Namespace, HTTP: v.Config.Server.HTTP}
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
	s, err := v.session(*h)
	if err != nil {
		return time.Time{}, err
	}
	next := *h
	next.Renewed, next.Until = now, time.Time{}
	if h.Accessor != "" {
		long, err := s.Renew(ctx)
		if err != nil {
			return time.Time{}, err
		}
		next.lasts(now, long)
	}
	for _, lease := range h.Leases {
		long, err := s.RenewLease(ctx, lease)
		if err != nil {
			return time.Time{}, err
		}
		next.lasts(now, long)
	}
	return next.due(), v.keep(ctx, uid, next)
}

// End ends what was handed out for a stack, if anything was. What was ended is forgotten
// afterwards, so that a crash between ends it again.
func (v *Vaults) End(ctx context.Context, uid string) error {
	h, err := v.handedOut(ctx, uid)
	if err != nil || h == nil {
		return err
	}
	return v.finish(ctx, uid, *h)
}

func (v *Vaults) finish(ctx context.Context, uid string, h handout) error {
	s, err := v.session(h)
	if err == nil {
		err = s.End(ctx, h.Leases)
	}
	if err != nil {
		return fmt.Errorf("giving back what run %s had of the Vault: %w", h.Run, err)
	}
	return v.Records.Delete(ctx, record.HandedOut(uid))
}

// trimAuth is the mount of a method, with or without auth/ before it.
func trimAuth(path string) string {
	return strings.TrimPrefix(strings.Trim(path, "/"), "auth/")
}
