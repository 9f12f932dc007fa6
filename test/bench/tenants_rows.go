package main

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/terrier-iac/terrier/internal/testkit/database"
)

// rowsOf is a database of its own, and counts what it is asked.
type rowsOf struct {
	tb     *bed
	server *database.Server
	db     *sql.DB // as its reader
}

// bed is as much of a test as a database needs to be started for.
type bed struct {
	testing.TB // nil: nothing else of a test is asked for
	ctx        context.Context
	after      []func()
}

// failure is what Fatal ends a bed with.
type failure struct{ text string }

func (b *bed) Helper()                  {}
func (b *bed) Context() context.Context { return b.ctx }
func (b *bed) Cleanup(f func())         { b.after = append(b.after, f) }
func (b *bed) Fatal(args ...any)        { panic(failure{fmt.Sprint(args...)}) }
func (b *bed) Errorf(format string, args ...any) {
	panic(failure{fmt.Sprintf(format, args...)})
}
func (b *bed) Fatalf(format string, args ...any) {
	panic(failure{fmt.Sprintf(format, args...)})
}

// withDatabase runs f with a MariaDB server, which ends with it.
func withDatabase(ctx context.Context, f func(*rowsOf) error) (err error) {
	b := &bed{ctx: ctx}
	defer func() {
		if r := recover(); r != nil {
			said, ok := r.(failure)
			if !ok {
				panic(r)
			}
			err = fmt.Errorf("the database: %s", said.text)
		}
	}()
	defer func() {
		for _, last := range slices.Backward(b.after) {
			last()
		}
	}()
	r := &rowsOf{tb: b, server: database.StartMariaDB(b)}
	cfg := mysql.NewConfig()
	cfg.User, cfg.Passwd, cfg.Net, cfg.Addr = database.Reader, database.Password, "unix", r.server.Socket
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return err
	}
	r.db = sql.OpenDB(connector)
	defer r.db.Close()
	return f(r)
}

func (r *rowsOf) exec(statement string) { r.server.Exec(r.tb, statement) }

// reads counts the transactions of registries: each read of the rows is one, and
// there are no others.
func (r *rowsOf) reads() (int, error) { return r.status("Com_begin") }

// statements counts what was selected.
func (r *rowsOf) statements() (int, error) { return r.status("Com_select") }

// status is a counter of the server, which it does not count itself.
func (r *rowsOf) status(name string) (int, error) {
	var n int
	err := r.db.QueryRowContext(r.tb.ctx, "SHOW GLOBAL STATUS LIKE '"+name+"'").Scan(&name, &n)
	return n, err
}
