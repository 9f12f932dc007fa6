package kubeapi

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"go.etcd.io/etcd/server/v3/embed"
)

const (
	storeQuota        = 8 << 30 // bytes; beyond it the store turns read-only rather than fill the disk
	longestSocketPath = 100     // the kernel's limit is 104 or 108, by system
)

// store is etcd with one member, reachable through a unix socket only.
type store struct {
	endpoint string
	close    func()
}

// startStore opens the store, or returns why it cannot. On a damaged file etcd panics
// or ends the process; startStore returns an error instead where it can detect the
// damage before, or recover.
func startStore(ctx context.Context, d dir, log *slog.Logger, unsafeNoFsync bool) (s store, err error) {
	if err := checkStore(d.store(), log); err != nil {
		return store{}, err
	}
	if err := checkRoom(d); err != nil {
		return store{}, err
	}
	room := roomOf(d.path) // before etcd takes some
	socket, err := socketPath(d)
	if err != nil {
		return store{}, err
	}
	// Left by a killed process: the lock is free.
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return store{}, fmt.Errorf("removing the old socket of the store: %w", err)
	}
	storeLog := newStoreLog(log)
	defer func() {
		if p := recover(); p != nil {
			if text, ok := storeLog.last.Load().(string); ok {
				p = text
			}
			err = notOpened(d, room, fmt.Errorf("%v", p))
		}
	}()
	config := storeConfig(d.store(), socket, storeLog, unsafeNoFsync)
	if !roomToDefragment(d) {
		log.Info("the store is not defragmented at this start: the disk has no room for a copy", "disk", room)
		config.BootstrapDefragThresholdMegabytes = 0
	}
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		return store{}, notOpened(d, room, err)
	}
	s = store{endpoint: "unix://" + socket, close: func() {
		var closing sync.WaitGroup
		closing.Go(etcd.Close)
		waitFor(&closing, stopStoreWithin)
		if short := filepath.Dir(socket); short != d.own() {
			_ = os.Remove(short) // unless the socket is left in it; the next start takes both
		}
	}}
	select {
	case <-etcd.Server.ReadyNotify():
	case err := <-etcd.Err():
		s.close()
		return store{}, notOpened(d, room, err)
	case <-ctx.Done():
		s.close()
		return store{}, fmt.Errorf("waiting for the store in %s: %w", d.store(), context.Cause(ctx))
	}
	if err := os.Chmod(socket, 0o600); err != nil { // its directory is closed to others already
		s.close()
		return store{}, fmt.Errorf("closing the socket of the store to others: %w", err)
	}
	storeLog.settled.Store(true)
	return s, nil
}

func storeConfig(path, socket string, log *storeLog, unsafeNoFsync bool) *embed.Config {
	client := url.URL{Scheme: "unix", Path: socket}
	peer := url.URL{Scheme: "http", Host: "127.0.0.1:1"} // etcd wants one, and never listens on it
	cfg := embed.NewConfig()
	cfg.Name = "terrier"
	cfg.Dir = path
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = nil, []url.URL{peer}
	cfg.InitialCluster = cfg.Name + "=" + peer.String()
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(log.logger())
	// A single member has no rivals, so it may elect itself soon.
	// It costs one percent of a core while idle and saves a second at start.
	cfg.TickMs, cfg.ElectionMs = 20, 200
	cfg.QuotaBackendBytes = storeQuota
	cfg.BootstrapDefragThresholdMegabytes = 64 // kube-apiserver compacts, and only this frees the space
	cfg.UnsafeNoFsync = unsafeNoFsync
	return cfg
}

// socketPath is in the data directory, or if that would be too long or a URL
// would mangle it, in a private directory that is the same at every start.
func socketPath(d dir) (string, error) {
	const name = "etcd.sock"
	if path := d.own(name); fitsSocket(path) {
		return path, nil
	}
	sum := sha256.Sum256([]byte(d.path))
	short := filepath.Join(os.TempDir(), fmt.Sprintf("terrier-%d-%x", os.Geteuid(), sum[:6]))
	path := filepath.Join(short, name)
	if !fitsSocket(path) {
		return "", fmt.Errorf("the data directory %s is too long a path for a unix socket, and so is the temporary directory %s: choose a shorter one", d.path, os.TempDir())
	}
	return path, ensurePrivate(short)
}

func fitsSocket(path string) bool {
	return len(path) <= longestSocketPath && !strings.ContainsFunc(path, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune(`%?#\,;`, r)
	})
}
