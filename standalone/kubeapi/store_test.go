package kubeapi

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	bolt "go.etcd.io/bbolt"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.uber.org/zap"

	"github.com/terrier-iac/terrier/internal/fault"
)

// TestDamagedStore takes something from a store that was closed properly, and wants
// the next start to say so rather than crash or begin with an empty store.
func TestDamagedStore(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, store string){
		"the last page of the database is cut off": func(t *testing.T, store string) {
			file := filepath.Join(store, "member", "snap", "db")
			info, err := os.Stat(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(file, info.Size()-4096); err != nil {
				t.Fatal(err)
			}
		},
		"the database is empty": func(t *testing.T, store string) {
			if err := os.WriteFile(filepath.Join(store, "member", "snap", "db"), make([]byte, 1<<16), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"the log is gone": func(t *testing.T, store string) {
			if err := os.RemoveAll(filepath.Join(store, "member", "wal")); err != nil {
				t.Fatal(err)
			}
		},
		"the log is garbage": func(t *testing.T, store string) {
			logs, err := filepath.Glob(filepath.Join(store, "member", "wal", "*.wal"))
			if err != nil || len(logs) == 0 {
				t.Fatalf("there is no log in %s: %v", store, err)
			}
			for _, log := range logs {
				if err := os.WriteFile(log, []byte(strings.Repeat("garbage", 1000)), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDir(t)
			openAndClose(t, d)
			damage(t, d.store())
			s, err := startStore(t.Context(), d, slog.New(slog.DiscardHandler), true)
			if err == nil {
				s.close()
				t.Fatal("startStore() = nil, want it to refuse")
			}
			if !strings.Contains(err.Error(), d.store()) || !strings.Contains(err.Error(), "copy") {
				t.Errorf("startStore() = %v, want it to say what to do with %s", err, d.store())
			}
		})
	}
}

func openAndClose(t *testing.T, d dir) {
	t.Helper()
	s, err := startStore(t.Context(), d, slog.New(slog.DiscardHandler), true)
	if err != nil {
		t.Fatalf("startStore() = %v", err)
	}
	s.close()
}

func TestSocketOfALongPath(t *testing.T) {
	path := filepath.Join(t.TempDir(), strings.Repeat("long", 20), strings.Repeat("longer", 20))
	d, err := openDir(path)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	socket, err := socketPath(d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(filepath.Dir(socket)) })
	if again, err := socketPath(d); again != socket || err != nil {
		t.Errorf("socketPath() again = %s, %v, want %s", again, err, socket)
	}
	openAndClose(t, d)
	if _, err := os.Stat(filepath.Dir(socket)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory of the socket is left behind: %v", err)
	}

	if err := mkdir(filepath.Dir(socket), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := socketPath(d); fault.Of(err) != fault.Denied {
		t.Errorf("socketPath() in an open directory = %v, want it denied", err)
	}
	t.Setenv("TMPDIR", path)
	if _, err := socketPath(d); err == nil || !strings.Contains(err.Error(), "shorter") {
		t.Errorf("socketPath() without a short directory = %v, want it to ask for one", err)
	}
}

// TestDatabaseGone deletes the database of a store that has written count times.
// While the log is whole, nothing is lost; after the log was cut, as it is every
// ten thousand writes, there is something to lose, and the store must say so.
func TestDatabaseGone(t *testing.T) {
	for name, c := range map[string]struct {
		count   int
		rebuilt bool
	}{
		"rebuilt from a whole log": {10, true},
		"refused after a snapshot": {10_100, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDir(t)
			withStore(t, d, func(client *clientv3.Client) { putMany(t, client, c.count) })
			if err := os.Remove(filepath.Join(d.store(), "member", "snap", "db")); err != nil {
				t.Fatal(err)
			}
			if !c.rebuilt {
				s, err := startStore(t.Context(), d, slog.New(slog.DiscardHandler), true)
				if err == nil {
					s.close()
					t.Error("startStore() = nil, want it to refuse")
				}
				return
			}
			withStore(t, d, func(client *clientv3.Client) {
				got, err := client.Get(t.Context(), "key", clientv3.WithPrefix(), clientv3.WithCountOnly())
				if err != nil || got.Count != int64(c.count) {
					t.Errorf("after it was rebuilt the store has %v keys, %v, want %d", got, err, c.count)
				}
			})
		})
	}
}

func withStore(t *testing.T, d dir, use func(*clientv3.Client)) {
	t.Helper()
	s, err := startStore(t.Context(), d, slog.New(slog.DiscardHandler), true)
	if err != nil {
		t.Fatalf("startStore() = %v", err)
	}
	defer s.close()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{s.endpoint}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	use(client)
}

func putMany(t *testing.T, client *clientv3.Client, count int) {
	t.Helper()
	var writers sync.WaitGroup
	for w := range 50 {
		writers.Go(func() {
			for i := w; i < count; i += 50 {
				if _, err := client.Put(t.Context(), fmt.Sprintf("key-%d", i), "value"); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	writers.Wait()
}

// TestAFirstStartThatWasCutShort has a log that says nothing yet, which is what
// is left when the first start is killed just after it made the log.
func TestAFirstStartThatWasCutShort(t *testing.T) {
	for name, withDatabase := range map[string]bool{"after the database was made": true, "without a database": false} {
		t.Run(name, func(t *testing.T) {
			d := newDir(t)
			emptyLog(t, d)
			if withDatabase {
				db, err := bolt.Open(filepath.Join(d.store(), "member", "snap", "db"), 0o600, nil)
				if err != nil {
					t.Fatal(err)
				}
				if err := db.Close(); err != nil {
					t.Fatal(err)
				}
			}
			withStore(t, d, func(client *clientv3.Client) { putMany(t, client, 10) })
			withStore(t, d, func(client *clientv3.Client) {
				got, err := client.Get(t.Context(), "key", clientv3.WithPrefix(), clientv3.WithCountOnly())
				if err != nil || got.Count != 10 {
					t.Errorf("the store has %v keys, %v, want 10", got, err)
				}
			})
		})
	}
}

// emptyLog makes a log as a member does that has joined nothing yet.
func emptyLog(t *testing.T, d dir) {
	t.Helper()
	openAndClose(t, d)
	logs := filepath.Join(d.store(), "member", "wal")
	used, err := wal.OpenForRead(zap.NewNop(), logs, &walpb.Snapshot{})
	if err != nil {
		t.Fatal(err)
	}
	member, _, _, err := used.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	_ = used.Close()
	if err := os.RemoveAll(filepath.Join(d.store(), "member")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(d.store(), "member", "snap"), 0o700); err != nil {
		t.Fatal(err)
	}
	made, err := wal.Create(zap.NewNop(), logs, member)
	if err != nil {
		t.Fatal(err)
	}
	if err := made.Close(); err != nil {
		t.Fatal(err)
	}
}
