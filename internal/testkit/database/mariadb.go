package database

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"
)

type mariadb struct{}

func (mariadb) server() (string, error) {
	return find("/usr/sbin/mariadbd", "/usr/local/sbin/mariadbd", "/usr/bin/mariadbd")
}

func (m mariadb) version(ctx context.Context) (string, error) {
	path, err := m.server()
	if err != nil {
		return "", err
	}
	return versionOf(ctx, path)
}

// small keeps a server from reserving what a test does not need, and from a directory
// for temporary files that another server empties at its start. It comes before all
// other arguments.
func (mariadb) small(dir string) []string {
	return []string{"--no-defaults", "--datadir=" + dir, "--tmpdir=" + filepath.Dir(dir), "--innodb-log-file-size=4M", "--innodb-buffer-pool-size=8M", "--innodb-flush-log-at-trx-commit=0", "--skip-performance-schema", "--skip-log-bin", "--skip-name-resolve", "--character-set-server=utf8mb4"}
}

// prepare runs the scripts that mariadb-install-db would, which insists on more
// programs than the server needs.
func (m mariadb) prepare(ctx context.Context, dir string) error {
	path, err := m.server()
	if err != nil {
		return err
	}
	script := bytes.NewBufferString("CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket=NULL;\n")
	for _, name := range []string{"mysql_system_tables.sql", "mysql_performance_tables.sql", "mysql_system_tables_data.sql"} {
		content, err := os.ReadFile(filepath.Join("/usr/share/mysql", name))
		if err != nil {
			return err
		}
		script.Write(content)
	}
	fmt.Fprintf(script, "\nFLUSH PRIVILEGES;\nCREATE DATABASE %s;\nCREATE USER admin@localhost;\nGRANT ALL ON *.* TO admin@localhost WITH GRANT OPTION;\nCREATE USER %s@'%%' IDENTIFIED BY '%s';\nGRANT SELECT ON %[1]s.* TO %[2]s@'%%';\nCREATE USER certified@'%%' IDENTIFIED BY '%[3]s' REQUIRE X509;\nGRANT SELECT ON %[1]s.* TO certified@'%%';\n", Database, Reader, Password)
	if err := helper(ctx, filepath.Dir(dir), nil, "/bin/mkdir", dir); err != nil {
		return err
	}
	return helper(ctx, filepath.Dir(dir), script.Bytes(), path, append(m.small(dir), "--bootstrap", "--log-warnings=0", "--enforce-storage-engine=", "--max-allowed-packet=8M")...)
}

func (m mariadb) start(s *Server) *exec.Cmd {
	path, _ := m.server()
	args := append(m.small(filepath.Join(s.dir, "data")), "--bind-address="+s.Host, "--port="+strconv.Itoa(s.Port), "--socket="+s.Socket, "--pid-file="+filepath.Join(s.dir, "pid"))
	if s.CA != nil {
		args = append(args, "--ssl-ca="+filepath.Join(s.dir, "ca.crt"), "--ssl-cert="+filepath.Join(s.dir, "server.crt"), "--ssl-key="+filepath.Join(s.dir, "server.key"))
	} else {
		args = append(args, "--skip-ssl")
	}
	return exec.Command(path, args...)
}

// open connects to a server.
func (mariadb) open(ctx context.Context, change func(*mysql.Config)) (*sql.DB, error) {
	cfg := mysql.NewConfig()
	cfg.DBName, cfg.Logger = Database, &mysql.NopLogger{}
	change(cfg)
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(1)
	if err := db.PingContext(ctx); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

func (m mariadb) administer(ctx context.Context, s *Server) (*sql.DB, error) {
	return m.open(ctx, func(c *mysql.Config) { c.User, c.Net, c.Addr = "admin", "unix", s.Socket })
}

// users have no end there.
func (m mariadb) users(ctx context.Context, s *Server, prefix string) (map[string]time.Time, error) {
	db, err := m.administer(ctx, s)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	rows, err := db.QueryContext(ctx, "SELECT User FROM mysql.user WHERE left(User, ?) = ?", len(prefix), prefix)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := map[string]time.Time{}
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		all[name] = time.Time{}
	}
	return all, rows.Err()
}

func (m mariadb) as(ctx context.Context, s *Server, user, password, statement string) error {
	db, err := m.open(ctx, func(c *mysql.Config) { c.User, c.Passwd, c.Net, c.Addr = user, password, "tcp", s.Address() })
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.ExecContext(ctx, statement)
	return err
}

func (m mariadb) exec(ctx context.Context, s *Server, statements ...string) error {
	db, err := m.administer(ctx, s)
	if err != nil {
		return err
	}
	defer db.Close()
	for _, statement := range statements {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

func (mariadb) socket(dir string) string { return filepath.Join(dir, "sock") }

func (mariadb) stop() os.Signal { return syscall.SIGKILL }
