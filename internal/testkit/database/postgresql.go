package database

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

type postgres struct{}

func (postgres) tool(name string) (string, error) {
	return find("/usr/lib/postgresql/*/bin/"+name, "/usr/local/bin/"+name, "/usr/bin/"+name)
}

func (p postgres) version(ctx context.Context) (string, error) {
	path, err := p.tool("postgres")
	if err != nil {
		return "", err
	}
	return versionOf(ctx, path)
}

func (p postgres) prepare(ctx context.Context, dir string) error {
	initdb, err := p.tool("initdb")
	if err != nil {
		return err
	}
	server, err := p.tool("postgres")
	if err != nil {
		return err
	}
	err = helper(ctx, filepath.Dir(dir), nil, initdb, "--pgdata", dir, "--username=admin", "--auth-local=trust", "--auth-host=scram-sha-256", "--encoding=UTF8", "--no-locale", "--no-sync", "--wal-segsize=1")
	if err != nil {
		return err
	}
	// Without other users, one line is one statement.
	for _, in := range []struct{ database, lines string }{
		{"postgres", fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD '%s'\nCREATE ROLE certified LOGIN PASSWORD '%[2]s'\nCREATE DATABASE %s\n", Reader, Password, Database)},
		{Database, fmt.Sprintf("ALTER DEFAULT PRIVILEGES FOR ROLE admin GRANT SELECT ON TABLES TO %s, certified\n", Reader)},
	} {
		if err := helper(ctx, filepath.Dir(dir), []byte(in.lines), server, "--single", "-D", dir, "-c", "exit_on_error=on", in.database); err != nil {
			return err
		}
	}
	return nil
}

func (p postgres) start(s *Server) *exec.Cmd {
	path, _ := p.tool("postgres")
	args := []string{"-D", filepath.Join(s.dir, "data"), "-p", strconv.Itoa(s.Port), "-k", s.dir, "-c", "listen_addresses=" + s.Host,
		"-c", "fsync=off", "-c", "full_page_writes=off", "-c", "shared_buffers=8MB", "-c", "min_wal_size=2MB", "-c", "max_wal_size=16MB", "-c", "max_connections=20"}
	if s.CA != nil {
		args = append(args, "-c", "ssl=on", "-c", "ssl_cert_file="+filepath.Join(s.dir, "server.crt"), "-c", "ssl_key_file="+filepath.Join(s.dir, "server.key"), "-c", "ssl_ca_file="+filepath.Join(s.dir, "ca.crt"))
	}
	return exec.Command(path, args...)
}

func (postgres) exec(ctx context.Context, s *Server, statements ...string) error {
	conn, err := pgconn.Connect(ctx, postgresAdmin(s))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for _, statement := range statements {
		if err := conn.Exec(ctx, statement).Close(); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

func (postgres) users(ctx context.Context, s *Server, prefix string) (map[string]time.Time, error) {
	conn, err := pgconn.Connect(ctx, postgresAdmin(s))
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	const asked = "SELECT rolname, coalesce(extract(epoch FROM rolvaliduntil), 0)::bigint FROM pg_roles WHERE starts_with(rolname::text, $1)"
	found := conn.ExecParams(ctx, asked, [][]byte{[]byte(prefix)}, nil, nil, nil).Read()
	if found.Err != nil {
		return nil, found.Err
	}
	all := map[string]time.Time{}
	for _, row := range found.Rows {
		seconds, err := strconv.ParseInt(string(row[1]), 10, 64)
		if err != nil {
			return nil, err
		}
		all[string(row[0])] = time.Unix(seconds, 0)
	}
	return all, nil
}

func (postgres) as(ctx context.Context, s *Server, user, password, statement string) error {
	config, err := pgconn.ParseConfig(fmt.Sprintf("host=%s port=%d dbname=%s sslmode=disable", s.Host, s.Port, Database))
	if err != nil {
		return err
	}
	config.User, config.Password = user, password
	conn, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return conn.Exec(ctx, statement).Close()
}

// postgresAdmin is how the administrator of a server connects.
func postgresAdmin(s *Server) string {
	return fmt.Sprintf("host=%s port=%d user=admin dbname=%s sslmode=disable", s.dir, s.Port, Database)
}

func (postgres) socket(dir string) string { return dir }

func (postgres) stop() os.Signal { return syscall.SIGQUIT }
