// Package kubeapi runs a whole Kubernetes control plane inside this process: the
// full kube-apiserver, etcd on a unix socket, and the few controllers without
// which deleting a namespace or an owner would leave things hanging.
//
//	Start ── openDir ─ listen ─ ensureKeys ─ writeKubeconfig
//	            │                                │
//	            └─ startStore ─ startAPI ─ waitReady ─ startControllers ─ *Server
//
// It refuses to listen beyond loopback, to share its data directory with anyone
// or with a second instance, to answer a caller without a token or one that used
// a host name that is not its own, and to open a store whose keys are gone. It
// runs no workloads: there are no nodes. Start reading at Start.
//
// Kubernetes keeps its feature gates, metrics and log sink per process, so
// servers in one process share those; they share nothing else.
package kubeapi

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
)

// A process that is stopped has ten seconds in all.
const (
	startWithin           = 2 * time.Minute
	callOffWithin         = 5 * time.Second // a start that is called off may go on
	stopAPIWithin         = 5 * time.Second
	stopWatchesWithin     = 1 * time.Second // of clients, which would hold the server up for all of stopAPIWithin
	stopControllersWithin = 2 * time.Second
	stopStoreWithin       = 2 * time.Second
)

// Options says where the control plane lives. Dir is required.
type Options struct {
	// Dir holds everything: the kubeconfig, the keys, the store. It is made if it
	// is missing, and must otherwise belong to this user alone.
	Dir string
	// Address is a loopback address, 127.0.0.1:0 if empty. Port 0 means the port
	// of the last start if it is free, else any.
	Address string
	// Log receives what an operator would act on; nothing if nil.
	Log *slog.Logger
	// Now is the clock that certificates are judged by; time.Now if nil.
	Now func() time.Time
	// Authentication is the path of an AuthenticationConfiguration: issuers whose tokens open
	// the server besides its own. None if empty.
	Authentication string
	// UnsafeNoFsync trades durability for speed. It is for tests.
	UnsafeNoFsync bool
	// UnsafeNoStamps leaves the users of changes unrecorded, as the API server of a
	// cluster does. It is for tests.
	UnsafeNoStamps bool

	renewals <-chan time.Time // when the certificate is looked at, in place of renewEvery: for tests
}

// Server is a running control plane.
type Server struct {
	config     *rest.Config
	kubeconfig string
	address    string
	keys       keys

	undo   []func() // what Start did, to be undone from the last to the first
	failed <-chan error
	calm   atomic.Bool // neither starting nor stopping
	ended  chan struct{}
	err    error // why it ended, readable once ended is closed
}

// Start returns when the API server says that it is ready and the controllers
// run. The server lives until ctx ends. An error is a sentence for the user, and
// nothing is left running behind it, unless ctx ends first: then a start that takes
// longer than callOffWithin ends by itself, or with the process, which may end at any moment.
func Start(ctx context.Context, o Options) (*Server, error) {
	o = o.withDefaults()
	s := &Server{ended: make(chan struct{})}
	// The API server takes no end while it starts: what it does then fails, and has the process
	// end with a trace. So a start that is called off goes on, and is undone as a whole.
	started := make(chan error, 1)
	go func() { started <- s.start(context.WithoutCancel(ctx), o) }()
	select {
	case err := <-started:
		if err != nil {
			s.unwind()
			return nil, err
		}
	case <-ctx.Done():
		undone := make(chan struct{})
		go func() {
			defer close(undone)
			<-started
			s.unwind()
		}()
		select {
		case <-undone:
		case <-time.After(callOffWithin):
		}
		return nil, fmt.Errorf("the control plane was stopped while it started: %w", context.Cause(ctx))
	}
	s.calm.Store(true)
	o.Log.Info("control plane ready", "address", s.address, "kubeconfig", s.kubeconfig)
	go s.supervise(ctx)
	return s, nil
}

// Config reaches the API server as its own administrator, from this process
// only: its credential is new at every start and written nowhere.
func (s *Server) Config() *rest.Config { return rest.CopyConfig(s.config) }

// Kubeconfig is the path of the file that opens the API server to its owner.
func (s *Server) Kubeconfig() string { return s.kubeconfig }

// Address is the host and port that the API server listens on.
func (s *Server) Address() string { return s.address }

// Certificate is the API server's as it is now, with the certificate of the authority
// that signed it, in PEM. It is for other servers of this process: who trusts the
// kubeconfig trusts them. It is renewed a month before its end, and its authority is not.
func (s *Server) Certificate() (serving tls.Certificate, authority []byte, err error) {
	serving, err = tls.LoadX509KeyPair(s.keys.server, s.keys.server)
	if err != nil {
		return tls.Certificate{}, nil, fmt.Errorf("reading the serving certificate: %w", err)
	}
	return serving, s.keys.authority, nil
}

// Wait blocks until the server has ended and everything it started with it. It
// returns nil if it was asked to end.
func (s *Server) Wait() error {
	<-s.ended
	return s.err
}

func (o Options) withDefaults() Options {
	if o.Address == "" {
		o.Address = "127.0.0.1:0"
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

func (s *Server) start(ctx context.Context, o Options) error {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()

	dir, err := openDir(o.Dir)
	if err != nil {
		return err
	}
	s.undo = append(s.undo, dir.close)

	listener, err := listen(dir, o.Address, o.Log)
	if err != nil {
		return err
	}
	s.undo = append(s.undo, func() { _ = listener.Close() })
	s.address = listener.Addr().String()

	if s.keys, err = ensureKeys(dir, s.address, o.Now()); err != nil {
		return err
	}
	if s.kubeconfig, err = writeKubeconfig(dir, s.address, s.keys); err != nil {
		return err
	}

	o.Log.Info("opening the store", "path", dir.store())
	store, err := startStore(ctx, dir, o.Log, o.UnsafeNoFsync)
	if err != nil {
		return err
	}
	s.undo = append(s.undo, store.close)

	o.Log.Info("starting the kubernetes api", "address", s.address)
	routeKubernetesLog(o.Log, &s.calm)
	if o.UnsafeNoStamps {
		s.keys.epoch = ""
	}
	api, err := startAPI(ctx, listener, store.endpoint, s.keys, o.Authentication)
	if err != nil {
		return fmt.Errorf("starting the Kubernetes API server: %w", err)
	}
	s.undo = append(s.undo, api.close)
	if err := api.waitReady(ctx); err != nil {
		return err
	}

	stop, err := startControllers(ctx, api.config)
	if err != nil {
		return fmt.Errorf("starting the Kubernetes controllers: %w", err)
	}
	s.undo = append(s.undo, stop)
	s.undo = append(s.undo, s.keepCertificate(ctx, dir, o))
	s.config, s.failed = api.config, api.failed
	return nil
}

// supervise ends everything when ctx does, or when the API server fails.
func (s *Server) supervise(ctx context.Context) {
	defer close(s.ended)
	select {
	case <-ctx.Done():
	case err := <-s.failed:
		s.err = fmt.Errorf("the Kubernetes API server ended by itself: %w", err)
	}
	s.calm.Store(false)
	s.unwind()
}

func (s *Server) unwind() {
	for len(s.undo) > 0 {
		last := len(s.undo) - 1
		s.undo[last]()
		s.undo = s.undo[:last]
	}
}

// waitFor waits for group, but no longer than limit.
func waitFor(group *sync.WaitGroup, limit time.Duration) {
	done := make(chan struct{})
	go func() {
		group.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(limit):
	}
}
