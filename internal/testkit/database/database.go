// Package database starts real MariaDB and PostgreSQL servers for tests: private
// ones, on loopback and on a socket, each in a directory of its own, gone with
// the test. It pretends nothing: what a test wants to see go wrong it does to a
// real server, by stopping it, by SQL, or by a proxy that cuts connections.
//
// It does not install anything: make deps does. Start reading at StartMariaDB.
package database

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/testkit/port"
)

// What a reader of a fresh server needs. The password holds what escapes in
// URLs and in shells.
const (
	Database = "tenants"
	Reader   = "reader"
	Password = "c@nary/pass:word %41?"
)

// within bounds the start of a server, and everything that is done to it.
const within = 5 * time.Minute

// Server is one running server. Reader may read every table of Database.
type Server struct {
	Host   string // 127.0.0.1
	Port   int
	Socket string // as a client names it: a file for MariaDB, its directory for PostgreSQL

	// With TLS: the authority that the server's certificate is of, whose name is
	// localhost, and a client's certificate.
	CA, ClientCert, ClientKey []byte

	engine  engine
	dir     string
	command *exec.Cmd
	ended   chan struct{}
}

// Option changes how a server is started.
type Option int

// TLS makes a server offer TLS.
const TLS Option = 1

// engine is what the two kinds of servers differ in.
type engine interface {
	// prepare makes a data directory in which Database is empty, and Reader may
	// read what will be there.
	prepare(ctx context.Context, dir string) error
	// start returns the program that serves, not started yet.
	start(s *Server) *exec.Cmd
	// exec runs statements as an administrator.
	exec(ctx context.Context, s *Server, statements ...string) error
	// users are those whose names begin with a prefix, each with the end of its password.
	users(ctx context.Context, s *Server, prefix string) (map[string]time.Time, error)
	// as runs a statement as a user who signs in over TCP.
	as(ctx context.Context, s *Server, user, password, statement string) error
	// version names what a data directory is good for.
	version(ctx context.Context) (string, error)
	socket(dir string) string
	stop() os.Signal
}

// StartMariaDB starts a MariaDB server for one test.
func StartMariaDB(tb testing.TB, options ...Option) *Server {
	tb.Helper()
	return start(tb, mariadb{}, options)
}

// StartPostgreSQL starts a PostgreSQL server for one test.
func StartPostgreSQL(tb testing.TB, options ...Option) *Server {
	tb.Helper()
	return start(tb, postgres{}, options)
}

func start(tb testing.TB, e engine, options []Option) *Server {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), within)
	defer cancel()
	template, err := template(ctx, e)
	if err != nil {
		tb.Fatalf("preparing a database: %v; make deps installs what it needs", err)
	}
	// Not below TB.TempDir, which only its owner may enter.
	dir, err := os.MkdirTemp("", "database-")
	if err != nil {
		tb.Fatal(err)
	}
	const host = "127.0.0.1"
	s := &Server{Host: host, Port: port.Reserve(tb, host), engine: e, dir: dir, Socket: e.socket(dir)}
	tb.Cleanup(func() {
		s.halt()
		if err := os.RemoveAll(dir); err != nil {
			tb.Errorf("removing a database: %v", err)
		}
	})
	if err := clone(template, filepath.Join(dir, "data")); err != nil {
		tb.Fatal(err)
	}
	for _, o := range options {
		if o == TLS {
			s.certify(tb)
		}
	}
	if err := own(dir); err != nil {
		tb.Fatal(err)
	}
	s.Start(tb)
	return s
}

// Exec runs statements as an administrator, in Database.
func (s *Server) Exec(tb testing.TB, statements ...string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), within)
	defer cancel()
	if err := s.engine.exec(ctx, s, statements...); err != nil {
		tb.Fatalf("running SQL: %v", err)
	}
}

// Users are the users of the server whose names begin with a prefix, each with the end of its
// password. In MariaDB there is none.
func (s *Server) Users(tb testing.TB, prefix string) map[string]time.Time {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), within)
	defer cancel()
	all, err := s.engine.users(ctx, s, prefix)
	if err != nil {
		tb.Fatalf("reading the users: %v", err)
	}
	return all
}

// As runs a statement as a user, who signs in with a password.
func (s *Server) As(tb testing.TB, user, password, statement string) error {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), within)
	defer cancel()
	return s.engine.as(ctx, s, user, password, statement)
}

// Start starts a server that was stopped, where it was. It listens when Start
// returns.
func (s *Server) Start(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), within)
	defer cancel()
	if err := s.launch(ctx); err != nil {
		log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
		tb.Fatalf("starting a database: %v\n%s", err, log)
	}
}

// Stop ends the server as a crash would. Its data stay.
func (s *Server) Stop(testing.TB) { s.halt() }

// Address is where the server listens.
func (s *Server) Address() string { return net.JoinHostPort(s.Host, strconv.Itoa(s.Port)) }

// errEnded is that of a server that ends before it listens.
var errEnded = errors.New("it ended")

func (s *Server) launch(ctx context.Context) error {
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	command := s.engine.start(s)
	command.Dir, command.Stdout, command.Stderr = s.dir, log, log
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=America/Caracas"}
	command.SysProcAttr = &syscall.SysProcAttr{Credential: servant(), Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = command.Wait()
	}()
	s.command, s.ended = command, ended
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := s.engine.exec(ctx, s)
		if err == nil {
			return nil
		}
		select {
		case <-ended:
			s.command = nil
			return errEnded
		case <-ctx.Done():
			return fmt.Errorf("waiting for it: %w", errors.Join(ctx.Err(), err))
		case <-tick.C:
		}
	}
}

func (s *Server) halt() {
	if s.command == nil {
		return
	}
	_ = s.command.Process.Signal(s.engine.stop())
	select {
	case <-s.ended:
	case <-time.After(10 * time.Second):
		_ = s.command.Process.Kill()
		<-s.ended
	}
	s.command = nil
}
