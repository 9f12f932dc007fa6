// Command sql runs one statement on the table of the tenants' example, for
// users without sqlite3. It prints the rows of a query, and the number of rows
// that a statement changed. It opens existing files and creates none: a path with
// a typo is an error, and not an empty database.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	_ "modernc.org/sqlite" // the driver
)

func main() {
	file := flag.String("file", filepath.Join(".terrier", "customers.db"), "the `file` of SQLite")
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "usage: sql [-file FILE] STATEMENT\n\nfor example: sql \"SELECT * FROM customers\"\n\n")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(context.Background(), *file, flag.Arg(0), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sql:", err)
		os.Exit(1)
	}
}

// run runs one statement on a file and writes its result.
func run(ctx context.Context, file, statement string, out io.Writer) error {
	if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("there is no file %s: run it where make up was started, after it has said that the table is there, or name the file with -file", file)
	} else if err != nil {
		return err
	}
	path, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	// Terrier reads the file meanwhile; the second of two writers waits a moment.
	name := url.URL{Scheme: "file", Path: path, RawQuery: "mode=rw&_pragma=busy_timeout(5000)"}
	db, err := sql.Open("sqlite", name.String())
	if err != nil {
		return err
	}
	defer db.Close()
	// changes() is of a connection, so there is only one.
	db.SetMaxOpenConns(1)
	rows, err := db.QueryContext(ctx, statement)
	if err != nil {
		return err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	if len(columns) > 0 {
		return show(rows, columns, out)
	}
	for rows.Next() {
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	var changed int
	if err := db.QueryRowContext(ctx, "SELECT changes()").Scan(&changed); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "rows changed: %d\n", changed)
	return err
}

// show writes rows as a table.
func show(rows *sql.Rows, columns []string, out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, strings.Join(columns, "\t"))
	cells := make([]sql.NullString, len(columns))
	into := make([]any, len(columns))
	for i := range cells {
		into[i] = &cells[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		texts := make([]string, len(cells))
		for i, c := range cells {
			texts[i] = "NULL"
			if c.Valid {
				texts[i] = c.String
			}
		}
		fmt.Fprintln(table, strings.Join(texts, "\t"))
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return table.Flush()
}
