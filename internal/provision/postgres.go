package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/terrier-iac/terrier/internal/backend"
)

// postgres is a schema of PostgreSQL. The engine makes its tables; beside them lies one that
// names the owners of the states.
//
//	"team/network".states          name of the workspace, state     the engine's
//	"team/network".terrier_owners  name of the workspace, owner     ours
type postgres struct {
	conn      *pgconn.PgConn
	schema    string
	workspace string
	skip      bool // the engine does not make the schema
}

const (
	statesTable = "states"
	ownersTable = "terrier_owners"
)

// Errors of PostgreSQL, by their codes.
const (
	pgDenied      = "42501"
	pgNoTable     = "42P01"
	pgNoSchema    = "3F000"
	pgTableExists = "42P07"
	pgUnique      = "23505" // of its own tables, if two create one table at once
	pgNeeded      = "2BP01" // something else is in what is dropped
)

func (p Plugins) openPostgres(ctx context.Context, r backend.Request) (place, error) {
	b, _ := backend.Find(backend.Postgres)
	block, err := b.Render(r)
	if err != nil {
		return nil, err
	}
	config, err := pgconn.ParseConfig(cmp.Or(block.Text("conn_str"), p.Environ("PG_CONN_STR")))
	if err != nil {
		return nil, errors.New("conn_str, or PG_CONN_STR in the environment of the run, cannot be read: it is a URL such as postgres://db.example.org/states, or pairs such as host=db.example.org dbname=states")
	}
	for _, ofTheEngine := range []string{"binary_parameters", "disable_prepared_binary_result"} {
		delete(config.RuntimeParams, ofTheEngine) // its client knows them, and the server does not
	}
	conn, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connecting to PostgreSQL: %w", err)
	}
	skip, _ := block.Configuration["skip_schema_creation"].(bool)
	return &postgres{conn: conn, schema: block.Text("schema_name"), workspace: cmp.Or(r.Stack.Workspace, "default"), skip: skip}, nil
}

// Close ends the connection.
func (g *postgres) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second) // that of the request may be over
	defer cancel()
	return g.conn.Close(ctx)
}

func (g *postgres) what() string { return "the schema " + g.schema }

func (g *postgres) state() string { return statesTable + "/" + g.workspace }

func (g *postgres) owner() string { return ownersTable + "/" + g.workspace }

// table is the name of a table in SQL.
func (g *postgres) table(name string) string { return quoted(g.schema) + "." + quoted(name) }

func quoted(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// rows are those that a statement returns, by their first column, and how many it changed.
func (g *postgres) rows(ctx context.Context, statement string, args ...string) (first [][]byte, changed int64, err error) {
	values := make([][]byte, len(args))
	for i, a := range args {
		values[i] = []byte(a)
	}
	r := g.conn.ExecParams(ctx, statement, values, nil, nil, nil).Read()
	for _, row := range r.Rows {
		first = append(first, row[0])
	}
	if code(r.Err) == pgDenied {
		return nil, 0, fmt.Errorf("%w: %s", errDenied, r.Err)
	}
	return first, r.CommandTag.RowsAffected(), r.Err
}

// code is that of an error of PostgreSQL; empty if it is none.
func code(err error) string {
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return ""
	}
	return e.Code
}

// absent reports whether a statement failed because its table does not exist.
func absent(err error) bool { return code(err) == pgNoTable || code(err) == pgNoSchema }

func (g *postgres) there(ctx context.Context) (bool, error) {
	found, _, err := g.rows(ctx, "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1", g.schema)
	return len(found) > 0, err
}

func (g *postgres) create(ctx context.Context) error {
	if g.skip {
		return fmt.Errorf("%s does not exist, and skip_schema_creation has it made by its operator: create it", g.what())
	}
	if _, _, err := g.rows(ctx, "CREATE SCHEMA IF NOT EXISTS "+quoted(g.schema)); err != nil && code(err) != pgUnique {
		return fmt.Errorf("creating %s: %w", g.what(), err)
	}
	return nil
}

func (g *postgres) traits() []trait { return nil }

// Only a place with traits is asked.
func (g *postgres) vacant(context.Context) (bool, error) { return false, nil }

func (g *postgres) hasState(ctx context.Context) (bool, error) {
	found, _, err := g.rows(ctx, "SELECT 1 FROM "+g.table(statesTable)+" WHERE name = $1", g.workspace)
	if absent(err) {
		return false, nil
	}
	return len(found) > 0, err
}

func (g *postgres) objects() objects { return g }

func (g *postgres) get(ctx context.Context, object string) ([]byte, error) {
	_, name, _ := strings.Cut(object, "/")
	found, _, err := g.rows(ctx, "SELECT owner FROM "+g.table(ownersTable)+" WHERE name = $1", name)
	if absent(err) || err == nil && len(found) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return found[0], nil
}

func (g *postgres) put(ctx context.Context, object string, data []byte, absentOnly bool) (bool, error) {
	_, name, _ := strings.Cut(object, "/")
	statement := "INSERT INTO " + g.table(ownersTable) + " (name, owner) VALUES ($1, $2) ON CONFLICT (name) DO "
	if absentOnly {
		statement += "NOTHING"
	} else {
		statement += "UPDATE SET owner = excluded.owner"
	}
	_, changed, err := g.rows(ctx, statement, name, string(data))
	if absent(err) {
		_, _, err = g.rows(ctx, "CREATE TABLE "+g.table(ownersTable)+" (name text PRIMARY KEY, owner text NOT NULL)")
		if c := code(err); err == nil || c == pgTableExists || c == pgUnique {
			_, changed, err = g.rows(ctx, statement, name, string(data))
		}
	}
	return changed > 0, err
}

func (g *postgres) remove(ctx context.Context, object string) error {
	table, name, _ := strings.Cut(object, "/")
	_, _, err := g.rows(ctx, "DELETE FROM "+g.table(table)+" WHERE name = $1", name)
	if absent(err) {
		return nil
	}
	return err
}

// removePlace removes the schema with the two tables, if they are empty and nothing else is in
// it.
func (g *postgres) removePlace(ctx context.Context) (bool, error) {
	for _, table := range []string{statesTable, ownersTable} {
		found, _, err := g.rows(ctx, "SELECT 1 FROM "+g.table(table)+" LIMIT 1")
		if err != nil && !absent(err) {
			return false, err
		}
		if len(found) > 0 {
			return false, nil
		}
	}
	if _, _, err := g.rows(ctx, "BEGIN"); err != nil {
		return false, err
	}
	for _, statement := range []string{
		"DROP TABLE IF EXISTS " + g.table(statesTable) + ", " + g.table(ownersTable), "DROP SCHEMA " + quoted(g.schema), "COMMIT",
	} {
		if _, _, err := g.rows(ctx, statement); err != nil {
			_, _, undone := g.rows(ctx, "ROLLBACK")
			if code(err) == pgNeeded {
				return false, undone
			}
			return false, errors.Join(fmt.Errorf("removing %s: %w", g.what(), err), undone)
		}
	}
	return true, nil
}
