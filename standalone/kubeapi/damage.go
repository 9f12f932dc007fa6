package kubeapi

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/terrier-iac/terrier/internal/fault"
)

// checkStore looks for what etcd does not survive or does not see:
//
//	database   log             so
//	cut short  any             refuse: the missing pages kill at the first touch
//	used       gone            refuse: it would be taken for new, and its first
//	                           writes for done already
//	not used   nothing in it   remove both: a first start was cut short, and etcd
//	                           waits for ever for an election
//
// etcd repairs or refuses everything else by itself.
func checkStore(path string, log *slog.Logger) error {
	used, err := databaseUsed(filepath.Join(path, "member", "snap", "db"))
	if err != nil {
		return damagedStore(path, err)
	}
	logs := filepath.Join(path, "member", "wal")
	switch exists := wal.Exist(logs); {
	case used && !exists:
		return damagedStore(path, fmt.Errorf("its log %s is gone", logs))
	case used || !exists:
		return nil
	}
	committed, err := logCommitted(logs)
	if err != nil {
		return damagedStore(path, err)
	}
	if committed {
		return nil
	}
	log.Info("removing a store whose first start was cut short", "path", path)
	if err := os.RemoveAll(filepath.Join(path, "member")); err != nil {
		return fmt.Errorf("removing a store whose first start was cut short: %w", err)
	}
	return nil
}

// databaseUsed reports whether anything was ever applied to the database, and an
// error if it is not all there.
func databaseUsed(file string) (used bool, err error) {
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	db, err := bolt.Open(file, 0o600, &bolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return false, err
	}
	defer db.Close()
	err = db.View(func(tx *bolt.Tx) error {
		if info.Size() < tx.Size() {
			return fmt.Errorf("%s has %d bytes of %d", file, info.Size(), tx.Size())
		}
		if meta := tx.Bucket(schema.Meta.Name()); meta != nil {
			used = len(bytes.Trim(meta.Get(schema.MetaConsistentIndexKeyName), "\x00")) > 0
		}
		return nil
	})
	return used, err
}

// logCommitted reports whether the log says that anything was committed. The
// store's first write to it says so, and nothing is acknowledged before.
func logCommitted(dir string) (bool, error) {
	log, err := wal.OpenForRead(zap.NewNop(), dir, &walpb.Snapshot{})
	if err != nil {
		return false, fmt.Errorf("opening the log %s: %w", dir, err)
	}
	defer log.Close()
	_, state, _, err := log.ReadAll()
	if err != nil {
		return false, fmt.Errorf("reading the log %s: %w", dir, err)
	}
	return state.GetCommit() > 0, nil
}

// storeRoom is about what a store takes of an empty disk at its first start: two
// pieces of its log, which are made at their full length, and the database.
const storeRoom = 160 << 20

// storeLeast is what the two pieces of its log take alone.
const storeLeast = 128 << 20

// storeAgain is what a store that is there takes when it opens: the next piece of its log, and
// some for the database.
const storeAgain = 80 << 20

// checkRoom refuses the first start of a store on a disk with less than it takes. Where etcd
// finds out by itself, one of its goroutines may end the process before the opener hears of
// it. A disk whose free space is unknown is tried.
func checkRoom(d dir) error {
	if wal.Exist(filepath.Join(d.store(), "member", "wal")) {
		return nil
	}
	if room, known := roomOn(d.path); !known || room >= storeLeast {
		return nil
	}
	return notOpened(d, roomOf(d.path), syscall.ENOSPC)
}

// roomToDefragment reports whether a disk has room for a copy of the database, which etcd makes
// to defragment it, and for the log. Where it has none, etcd would not open a store that is
// whole.
func roomToDefragment(d dir) bool {
	info, err := os.Stat(filepath.Join(d.store(), "member", "snap", "db"))
	if err != nil {
		return true // there is nothing to defragment, or etcd says what is wrong
	}
	room, known := roomOn(d.path)
	return !known || room >= info.Size()+storeAgain
}

// notOpened says why a store did not open: that its disk has no room is no
// damage, and nothing must be put in its place for it.
func notOpened(d dir, room string, err error) error {
	// The cause of etcd's end arrives as text.
	full := errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) ||
		strings.Contains(err.Error(), syscall.ENOSPC.Error()) || strings.Contains(err.Error(), syscall.EDQUOT.Error())
	if !full {
		return damagedStore(d.store(), err)
	}
	needs := storeRoom
	if wal.Exist(filepath.Join(d.store(), "member", "wal")) {
		needs = storeAgain
	}
	return fault.New(fault.Broken, "NoSpace", fmt.Errorf(
		"the disk that holds %s (%s) has no room for the store, which needs about %d MiB to open and is not damaged: free some, for instance what is in %s and %s, which is made again, or move the data directory to a larger disk: %w",
		d.store(), room, needs>>20, filepath.Join(d.path, "cache"), filepath.Join(d.path, "scratch"), err))
}

// roomOf says how much room there is on the disk of a directory.
func roomOf(path string) string {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return "its free space is unknown"
	}
	return fmt.Sprintf("%d of %d MiB free", st.Bavail*uint64(st.Bsize)>>20, st.Blocks*uint64(st.Bsize)>>20)
}

func damagedStore(path string, err error) error {
	return fmt.Errorf("the store in %s does not open: put it back from a copy that was made while the control plane was stopped, or move it away to start empty: %w", path, err)
}

// roomOn is how many bytes are free on the disk of a directory, if that is known.
func roomOn(path string) (free int64, known bool) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, false
	}
	return int64(min(st.Bavail*uint64(st.Bsize), math.MaxInt64)), true
}
