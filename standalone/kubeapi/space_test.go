package kubeapi

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"

	"github.com/terrier-iac/terrier/internal/testkit/apart"
)

// A full disk is not a damaged store: its content is whole, and replacing it by a
// copy would only lose something.
func TestADiskThatIsTooSmall(t *testing.T) {
	disk := apart.Disk(t, 200, 0o700)
	if disk == "" {
		return
	}
	data := func(name string) dir {
		d, err := openDir(filepath.Join(disk, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(d.close)
		return d
	}
	ballast := filepath.Join(disk, "ballast")
	leave := func(megabytes int) {
		t.Helper()
		_ = os.Remove(ballast)
		var st unix.Statfs_t
		if err := unix.Statfs(disk, &st); err != nil {
			t.Fatal(err)
		}
		f, err := os.Create(ballast)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := unix.Fallocate(int(f.Fd()), 0, 0, int64(st.Bavail)*st.Bsize-int64(megabytes)<<20); err != nil {
			t.Fatal(err)
		}
	}
	names := func(when string, d dir, err error) {
		t.Helper()
		if text := err.Error(); !strings.Contains(text, "no room") || !strings.Contains(text, "of 200 MiB free") || !strings.Contains(text, d.store()) || strings.Contains(text, "copy") {
			t.Errorf("%s: startStore() = %v, want it to say what to free for %s", when, err, d.store())
		}
	}

	d := data("first")
	leave(20)
	s, err := startStore(t.Context(), d, slog.New(slog.DiscardHandler), true)
	if err == nil {
		s.close()
		t.Fatal("startStore() = nil, want it to refuse")
	}
	names("at the first start", d, err)

	d = data("second")
	leave(storeRoom >> 20)
	withStore(t, d, func(client *clientv3.Client) { putMany(t, client, 10) })
	leave(20)
	// Whether this is enough depends on which part of etcd asks first.
	if s, err = startStore(t.Context(), d, slog.New(slog.DiscardHandler), true); err == nil {
		s.close()
	} else {
		names("with what is in it", d, err)
	}

	// It is whole: elsewhere, where there is room, it opens.
	roomy, err := openDir(filepath.Join(openTempDir(t), "data"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(roomy.close)
	if err := os.CopyFS(roomy.store(), os.DirFS(d.store())); err != nil {
		t.Fatal(err)
	}
	withStore(t, roomy, func(client *clientv3.Client) {
		got, err := client.Get(t.Context(), "key", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil || got.Count != 10 {
			t.Errorf("the store has %v keys, %v, want 10", got, err)
		}
	})
}

// etcd defragments a store when it opens, in a copy. A disk without room for the copy is no
// reason not to open a store that is whole.
func TestADiskWithoutRoomForACopy(t *testing.T) {
	disk := apart.Disk(t, 400, 0o700)
	if disk == "" {
		return
	}
	d, err := openDir(filepath.Join(disk, "data"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.close)
	withStore(t, d, func(client *clientv3.Client) { putMany(t, client, 10) })
	bloat(t, filepath.Join(d.store(), "member", "snap", "db"), 150, 70)
	room, _ := roomOn(disk)
	if room < storeAgain || room > 150<<20 {
		t.Fatalf("%d MiB are left, want room for the log and not for a copy", room>>20)
	}
	withStore(t, d, func(client *clientv3.Client) {
		got, err := client.Get(t.Context(), "key", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil || got.Count != 10 {
			t.Errorf("the store has %v keys, %v, want 10", got, err)
		}
	})
}

// bloat adds to a database that many megabytes of content, and of pages that are free.
func bloat(t *testing.T, file string, content, free int) {
	t.Helper()
	db, err := bolt.Open(file, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	value, name := make([]byte, 1<<20), []byte("ballast")
	change := func(f func(*bolt.Bucket) error) {
		t.Helper()
		if err := db.Update(func(tx *bolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists(name)
			if err != nil {
				return err
			}
			return f(b)
		}); err != nil {
			t.Fatal(err)
		}
	}
	for n := range content + free {
		change(func(b *bolt.Bucket) error { return b.Put(fmt.Appendf(nil, "%04d", n), value) })
	}
	change(func(b *bolt.Bucket) error {
		var errs []error
		for n := range free {
			errs = append(errs, b.Delete(fmt.Appendf(nil, "%04d", n)))
		}
		return errors.Join(errs...)
	})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}
