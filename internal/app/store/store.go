// Package store opens the records of a platform: it finds out where they are, with which
// keys they are sealed, and whether they belong to this cluster.
//
// It refuses records that no key opens, and those of another cluster, before anything is
// written. It deletes nothing.
//
// Start reading at Open. Where keys come from is in keys.go.
package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/blob/bucket"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/record"
)

// valueBytes bounds one record.
const valueBytes = 1 << 30

// Options say where records and keys are.
type Options struct {
	Records string   // --records: a URL or an absolute path; empty for the data directory
	Key     string   // --records-key
	KMS     []string // --records-kms
	Adopt   bool     // --adopt-records
	Allow   []string // --allow-host

	Dir       func(parts ...string) string // below the data directory
	Namespace string                       // of the platform
	Lease     string                       // of the controller; empty without one
	InCluster bool                         // the control plane is not in this process
	REST      *rest.Config
	Environ   func(string) string
	Leads     func() error // nil while no other process can be active; without it this one always is
	Now       func() time.Time
	Progress  func(format string, args ...any)
}

// Records are the opened records.
type Records struct {
	blob.Store
	closer  io.Closer
	raw     blob.Versions // behind the seal
	cluster client.Client
	keys    *ring
	marked  bool // they belong to one cluster
	now     func() time.Time

	leads  func() error
	joined atomic.Bool // whose they are is known

	is    record.Installation // this one; without a cluster if that is unknown
	mu    sync.Mutex
	seen  time.Time // when the marker was read last
	taken error     // that they belong to another one

	checked error // of the last check

	resealing record.Resealing // as it was found or made last
	settled   settled

	witnessed string // the newest key that left a witness

	lease  client.ObjectKey // of this controller; without a name if it has none
	place  string           // of the records; empty for the data directory
	placed bool             // the Lease names the place
}

// The reasons of this package's faults.
const (
	ReasonKey     = "RecordsKeyMissing"
	ReasonCluster = "RecordsOfAnotherCluster"
	ReasonMoved   = "RecordsMoved"
)

// Open opens the records. An error names the flag, and says what to do.
func Open(ctx context.Context, o Options) (_ *Records, err error) {
	if err := o.stale(); err != nil {
		return nil, err
	}
	r := &Records{now: o.Now, leads: o.Leads, lease: o.lease()}
	raw, err := o.raw(ctx, r.mayWrite)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, raw.Close())
		}
	}()
	r.closer, r.raw = raw, raw
	if !o.inDataDirectory() {
		if r.place, err = o.place(); err != nil {
			return nil, err
		}
	}
	if r.cluster, err = client.New(o.REST, client.Options{}); err != nil {
		return nil, err
	}
	some := false
	if !o.beside() {
		if some, err = used(ctx, raw); err != nil {
			return nil, fmt.Errorf("reading the records: %w", err)
		}
	}
	was, err := r.remembered(ctx, o)
	if err == nil && was != "" && (r.place == "" || !some) {
		err = r.expected(was)
	}
	if err != nil {
		return nil, err
	}
	keys, err := o.keys(ctx, r.cluster, raw, some)
	if err != nil {
		return nil, err
	}
	r.keys = keys
	r.Store = noting{blob.SealWith(raw, keys), keys}
	if some {
		if err := o.opens(ctx, r.Store); err != nil {
			return nil, err
		}
	}
	if err := r.join(ctx, o, was); err != nil {
		return nil, err
	}
	r.joined.Store(true)
	return r, errors.Join(r.witness(ctx), r.remember(ctx))
}

// mayWrite is nil while this process may change records. A bucket asks before each of its
// attempts.
func (r *Records) mayWrite(ctx context.Context) error {
	if r.joined.Load() {
		if err := r.Held(ctx); err != nil {
			return err
		}
	}
	if r.leads == nil {
		return nil
	}
	return r.leads() // last, since the other check may take a while
}

// Close closes what the records are in.
func (r *Records) Close() error { return r.closer.Close() }

type closingStore interface {
	blob.Versions
	io.Closer
}

// raw opens the store behind the seal.
func (o Options) raw(ctx context.Context, mayWrite func(context.Context) error) (closingStore, error) {
	if o.inFiles() {
		dir := o.Records
		if dir == "" {
			dir = o.Dir("records")
		}
		return blob.OpenVersionedFiles(dir, valueBytes)
	}
	place, err := bucket.Parse(o.Records, o.Environ)
	if err != nil {
		return nil, usage("--records %s: %w", shown(o.Records), err)
	}
	if err := os.MkdirAll(o.Dir("scratch"), 0o700); err != nil {
		return nil, err
	}
	s, err := bucket.Open(place, bucket.Options{Limit: valueBytes, Scratch: o.Dir("scratch"), Environ: o.Environ, Allow: o.Allow, Fence: mayWrite})
	if err != nil {
		return nil, err
	}
	if err := s.Check(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Check reports flags that cannot be.
func Check(records, key string, kms []string, environ func(string) string) error {
	if key != "" && key != string(keyInFile) && key != string(keyInSecret) {
		return usage("--records-key: %q is neither file nor secret", key)
	}
	if err := checkKMS(kms, key, environ); err != nil {
		return err
	}
	if records == "" || filepath.IsAbs(records) {
		return nil
	}
	if _, err := bucket.Parse(records, environ); err != nil {
		return usage("--records %s: %w: it is the absolute path of a directory, or the URL of a bucket: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or azblob://CONTAINER/PREFIX", shown(records), err)
	}
	return nil
}

// shown is a URL without what may be secret in it: a user may have put credentials
// before the host, or into a parameter.
func shown(records string) string {
	u, err := url.Parse(records)
	if err != nil || u.Opaque != "" {
		return "URL"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

func usage(format string, args ...any) error {
	return fault.New(fault.Invalid, "Usage", fmt.Errorf(format, args...))
}

// inFiles reports whether records are files, in the data directory or on a volume.
func (o Options) inFiles() bool { return o.Records == "" || filepath.IsAbs(o.Records) }

// beside reports whether records and their key lie beside one another in the data
// directory, as they always did.
func (o Options) beside() bool {
	_, err := os.Stat(o.Dir("secrets", "records"))
	return err == nil && o.Records == "" && o.keySource() == keyInFile
}

// used reports whether there are records. The marker is the first of them, except where
// an earlier release began.
func used(ctx context.Context, raw blob.Store) (bool, error) {
	switch v, err := raw.Get(ctx, record.Marker().Key); fault.Of(err) {
	case fault.None:
		return true, v.Close()
	case fault.Missing:
	default:
		return false, err
	}
	keys, err := recordsIn(ctx, raw)
	return len(keys) > 0, err
}

// opens checks that the keys open the marker or, before there is one, any record. They
// open what each key that was ever in use left as a witness, too: the marker alone was
// encrypted with the oldest one.
func (o Options) opens(ctx context.Context, sealed blob.Store) error {
	witnesses, err := sealed.List(ctx, record.Witnesses())
	if err != nil {
		return err
	}
	_, err = record.Read(ctx, sealed, record.Marker().Key)
	if fault.Of(err) == fault.Missing {
		var keys []string
		if keys, err = recordsIn(ctx, sealed); err == nil && len(keys) > 0 {
			_, err = record.Read(ctx, sealed, keys[0])
		}
	}
	for _, w := range witnesses {
		if err == nil || fault.Of(err) == fault.Missing {
			_, err = record.Read(ctx, sealed, w)
		}
	}
	switch {
	case fault.Of(err) == fault.Missing: // there is none, or it was removed meanwhile
		return nil
	case fault.Reason(err, "") == blob.KeyUnknown:
		return fault.New(fault.Denied, ReasonKey, fmt.Errorf("the records exist, and %s does not hold the key that opens them: %w, or name the place of the key with --records-key", o.describe(o.keySource()), err))
	}
	return err
}
