// Package peers is what the replicas of one installation say to one another: calls with
// an answer in JSON, and the requests of users and agents that another replica answers.
//
//	user, agent ──▶ replica A ── Forward ──▶ replica B, which answers
//	                replica A ── Call ─────▶ replica B, Handle
//
// A replica knows another one by the installation's key, and by a certificate of the
// installation's authority for its one server name: the address alone says nothing.
//
// It refuses to forward a request twice, to believe what an outsider says about the
// client of a request, and to deliver a call to another member than the one it is for.
// It knows no Kubernetes, and decides neither who is a member nor which one answers.
//
// Start reading at Peers, then Call and Forward.
package peers

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/shard"
)

// Prefix is where replicas call one another on their HTTP API.
const Prefix = "/-/replica/"

// The reasons of this package's faults.
const (
	ReasonUnreachable = "ReplicaUnreachable" // the replica does not answer
	ReasonMoved       = "ReplicaMoved"       // another replica has taken its place, or its work
	ReasonUnknown     = "ReplicaUnknownCall" // the replica is of another version
	ReasonStranger    = "ReplicaDenied"      // the replica has another key
)

// Config is what Peers need.
type Config struct {
	Me         func() shard.Member // this replica; without an ID it takes no calls
	Key        []byte              // the installation's: 32 bytes, the same for all replicas
	CA         []byte              // PEM: the authority of the certificates of all replicas
	ServerName string              // the name in these certificates
	Log        *slog.Logger        // nil discards

	alive time.Duration // in place of signEvery, for tests
}

// Peers are the other replicas, as one replica sees them.
type Peers struct {
	config   Config
	calls    *http.Client
	forwards *http.Client
	out      *outbound.Client
	token    string // of calls
	hop      string // of forwarded requests
	handlers handlers
}

// How long another replica may take. A connection over which nothing comes while an
// answer is awaited is asked for a sign of life.
const (
	dialLimit = 3 * time.Second
	signEvery = 5 * time.Second // then the other replica has as long to give it
)

// maxForwarded bounds an answer that is passed on, in bytes. Its replica has bounds of
// its own.
const maxForwarded = 1 << 50

// New returns the peers of a replica.
func New(c Config) (*Peers, error) {
	if len(c.Key) < sha256.Size {
		return nil, errors.New("replicas need the key of their installation")
	}
	if c.Me == nil || c.ServerName == "" {
		return nil, errors.New("replicas need their own name, and the name in their certificates")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(c.CA) {
		return nil, errors.New("the certificate authority of the replicas holds no PEM certificate")
	}
	// The addresses are those of pods, as the members wrote them down. Whatever is at
	// one of them gets nothing without a certificate of the authority.
	all, err := outbound.ParseAllow("0.0.0.0/0", "::/0")
	if err != nil {
		return nil, err
	}
	p := &Peers{config: c, token: derived(c.Key, "call"), hop: derived(c.Key, "forward")}
	p.out = outbound.New(outbound.Policy{Allow: all, Roots: roots, MaxBytes: maxForwarded, Dial: dialLimit, Alive: cmp.Or(c.alive, signEvery), ServerName: c.ServerName})
	if p.calls, err = p.out.HTTP(outbound.Options{MaxBytes: MaxMessage, UserAgent: "terrier-replica"}); err != nil {
		return nil, err
	}
	p.calls.Timeout = 0 // each call has a deadline
	p.calls.CheckRedirect = func(*http.Request, []*http.Request) error { return errors.New("a replica redirects no call") }
	p.forwards, err = p.out.HTTP(outbound.Options{Forwards: true})
	return p, err
}

// Close drops idle connections.
func (p *Peers) Close() { p.out.Close() }

// derived is a token for one purpose.
func derived(key []byte, purpose string) string {
	h := hmac.New(sha256.New, key)
	h.Write([]byte("terrier replica v1 " + purpose))
	return hex.EncodeToString(h.Sum(nil))
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// failure is an error between replicas: its kind survives the way.
type failure struct {
	Error  string        `json:"error"`
	Kind   fault.Kind    `json:"kind"`
	Reason string        `json:"reason,omitempty"`
	After  time.Duration `json:"after,omitempty"`
}

// maxError bounds the text of an error, in bytes.
const maxError = 2 << 10

func failed(err error) failure {
	f := failure{Error: fault.Shorten(err.Error(), maxError), Kind: fault.Of(err), Reason: fault.Reason(err, "")}
	if marked, ok := errors.AsType[*fault.Fault](err); ok {
		f.After = marked.After
	}
	return f
}

// known are the kinds that an answer may name.
func (f failure) known() bool {
	switch f.Kind {
	case fault.Invalid, fault.Denied, fault.Missing, fault.Conflict, fault.Later, fault.Broken:
		return true
	default:
		return false
	}
}

func (f failure) err() error {
	return &fault.Fault{Kind: f.Kind, Reason: f.Reason, After: f.After, Err: errors.New(f.Error)}
}

func answer(w http.ResponseWriter, status int, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encoding an answer: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(data) // a caller that is gone asks again
	return nil
}

// refuse answers a request that was not forwarded with a sentence.
func refuse(w http.ResponseWriter, err error) {
	f := failed(err)
	status := f.Kind.Meaning().HTTP
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", strconv.Itoa(max(1, int(cmp.Or(f.After, retryAfter)/time.Second))))
	}
	http.Error(w, f.Error, status)
}

// retryAfter is when a request that was not forwarded may come again.
const retryAfter = 2 * time.Second
