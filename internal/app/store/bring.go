package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/blob/bucket"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/record"
)

// moved says where the records of a data directory went. It lies beside them, so that
// copies that are old are not taken for records later.
type moved struct {
	To   string `json:"to"`   // a place, as place names it
	Done bool   `json:"done"` // all of them are there
}

// movedFile is the name of the file below the data directory.
const movedFile = "records-moved.json"

// place names the place of records: what differs between two places differs in the names.
func (o Options) place() (string, error) {
	if o.Records == "" || o.inFiles() {
		return filepath.Clean(o.Records), nil
	}
	p, err := bucket.Parse(o.Records, o.Environ)
	return p.String(), err
}

// stale refuses the records of the data directory once they have moved: they are old.
// A copy that did not end leaves the data directory in use, and what was copied by then
// grows old.
func (o Options) stale() error {
	if !o.inDataDirectory() {
		return nil
	}
	was, err := o.moved()
	if err != nil || was == (moved{}) {
		return err
	}
	if was.Done {
		return fault.New(fault.Denied, ReasonMoved, fmt.Errorf(
			"the records of this data directory moved to %s, and those in %s are old copies: name that place with --records; to go on with the old copies, delete %s",
			was.To, o.Dir("records"), o.Dir(movedFile)))
	}
	return os.Remove(o.Dir(movedFile))
}

func (o Options) moved() (m moved, err error) {
	b, err := os.ReadFile(o.Dir(movedFile))
	if os.IsNotExist(err) {
		return m, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &m)
	}
	if err != nil {
		return m, fmt.Errorf("reading where the records of this data directory are: %s: %w", o.Dir(movedFile), err)
	}
	return m, nil
}

func (o Options) setMoved(m moved) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	partial := o.Dir(movedFile + ".partial")
	file, err := os.OpenFile(partial, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(b)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	return os.Rename(partial, o.Dir(movedFile))
}

// bring copies the records of the data directory to a place that has none. Only a copy
// that did not end goes on in a place that has some, and it replaces none. Once it has
// ended, the data directory says so, and is never copied again.
func (o Options) bring(ctx context.Context, to blob.Store, keys blob.Keys) (err error) {
	if o.inDataDirectory() {
		return nil
	}
	there, err := recordsIn(ctx, to)
	if err != nil {
		return err
	}
	place, err := o.place()
	if err != nil {
		return err
	}
	was, err := o.moved()
	switch {
	case err != nil:
		return err
	case was.Done && len(there) > 0:
		return nil // a user copied them from where they were, or the mark of the cluster went
	case was.Done: // whether the old copies are still there or not
		return fault.New(fault.Denied, ReasonMoved, fmt.Errorf(
			"%s holds no records, and the records of this data directory moved to %s: name that place with --records, or copy them from there; to go on with what is left in %s instead, delete %s",
			place, was.To, o.Dir("records"), o.Dir(movedFile)))
	}
	from, here, err := o.leftBehind(ctx, keys)
	if err != nil || from == nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	if len(here) == 0 {
		return nil
	}
	if len(there) > 0 && was.To != place {
		return o.inTwoPlaces(place)
	}
	if err := o.setMoved(moved{To: place}); err != nil {
		return err
	}
	o.Progress("copying the records in %s: %d", o.Dir("records"), len(here))
	for _, k := range here {
		if slices.Contains(there, k) {
			continue
		}
		if err := copyOne(ctx, to, from, k); err != nil {
			return fmt.Errorf("copying the record %s from %s: %w", k, o.Dir("records"), err)
		}
	}
	if err := o.setMoved(moved{To: place, Done: true}); err != nil {
		return err
	}
	o.Progress("the records in %s are copied, and are not used any more: delete them", o.Dir("records"))
	return nil
}

// leavesNone refuses to use the records of a place beside those of the data directory, unless
// these are known to be old: nothing else would ever look at them again.
func (o Options) leavesNone(ctx context.Context, keys blob.Keys) error {
	was, err := o.moved()
	if err != nil || was.Done {
		return err
	}
	from, here, err := o.leftBehind(ctx, keys)
	if err != nil || from == nil {
		return err
	}
	err = from.Close()
	if err != nil || len(here) == 0 {
		return err
	}
	place, err := o.place()
	if err != nil {
		return err
	}
	return o.inTwoPlaces(place)
}

func (o Options) inTwoPlaces(place string) error {
	return fault.New(fault.Denied, ReasonMoved, fmt.Errorf(
		"there are records in %s and in %s, and nothing says which are newer: to use those in %s, move %s away; to use those of the data directory, name a place without records with --records",
		place, o.Dir("records"), place, o.Dir("records")))
}

// inDataDirectory reports whether the records in use are those of the data directory.
func (o Options) inDataDirectory() bool {
	switch {
	case !o.inFiles():
		return false
	case o.Records == "" || filepath.Clean(o.Records) == o.Dir("records"):
		return true
	}
	dir, err := os.Stat(o.Dir("records"))
	if err != nil {
		return false
	}
	used, err := os.Stat(o.Records)
	return err == nil && os.SameFile(dir, used)
}

// left are the records of the data directory that are not in use.
type left struct {
	blob.Store
	io.Closer
}

// leftBehind opens the records of the data directory with every key that may open them, and
// lists them; nil if the directory is not there, or is the one in use.
func (o Options) leftBehind(ctx context.Context, keys blob.Keys) (from *left, here []string, err error) {
	if o.inDataDirectory() {
		return nil, nil, nil
	}
	if _, err := os.Stat(o.Dir("records")); err != nil {
		if os.IsNotExist(err) {
			return nil, nil, nil
		}
		return nil, nil, err
	}
	if _, err = os.Stat(o.Dir("secrets", "records")); err == nil {
		var file blob.Key
		if file, err = blob.LoadKey(o.Dir("secrets", "records")); err == nil {
			keys = also{keys, file}
		}
	}
	if err != nil && !os.IsNotExist(err) {
		return nil, nil, err
	}
	files, err := blob.OpenFiles(o.Dir("records"), valueBytes)
	if err != nil {
		return nil, nil, err
	}
	from = &left{blob.SealWith(files, keys), files}
	here, err = recordsIn(ctx, from)
	if err != nil {
		return nil, nil, errors.Join(err, files.Close())
	}
	return from, slices.DeleteFunc(here, func(k string) bool { return strings.HasPrefix(k, record.Witnesses()) }), nil // those of another key
}

// also is keys and one more, which seals nothing.
type also struct {
	blob.Keys
	more blob.Key
}

func (a also) Find(ctx context.Context, id string) (blob.Key, bool, error) {
	if a.more.ID() == id {
		return a.more, true, nil
	}
	return a.Keys.Find(ctx, id)
}

// recordsIn lists what is a record, without the mark of a cluster.
func recordsIn(ctx context.Context, s blob.Store) ([]string, error) {
	keys, err := s.List(ctx, "")
	return slices.DeleteFunc(keys, func(k string) bool { return k == record.Marker().Key || !record.Known(k) }), err
}

func copyOne(ctx context.Context, to, from blob.Store, key string) error {
	r, err := from.Get(ctx, key)
	if err == nil {
		err = errors.Join(to.Put(ctx, key, r), r.Close())
	}
	if fault.Reason(err, "") == blob.KeyUnknown {
		err = fault.New(fault.Denied, ReasonKey, fmt.Errorf("%w, or name its place with --records-key", err))
	}
	return err
}
