package rows

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/terrier-iac/terrier/internal/fault"
)

// explainPostgres knows the errors by SQLSTATE; see
// https://www.postgresql.org/docs/current/errcodes-appendix.html.
func explainPostgres(err error, c Config) error {
	answer, ok := errors.AsType[*pgconn.PgError](err)
	_, early := errors.AsType[connecting](err)
	if !ok {
		if _, large := errors.AsType[*pgproto3.ExceededMaxBodyLenErr](err); large && !early {
			return refuse(ReadTooLarge, "one answer is larger than all rows may be: map fewer columns, or read a view with fewer rows")
		}
		return nil
	}
	words := said(answer.Code+": "+answer.Message, c)
	code := answer.Code
	in := func(prefixes ...string) bool {
		for _, p := range prefixes {
			if strings.HasPrefix(code, p) {
				return true
			}
		}
		return false
	}
	switch {
	case in("28"), early && in("42501"):
		return fault.New(fault.Denied, DatabaseDenied, fmt.Errorf("the database does not let user %s in: check username, password and pg_hba.conf: %s", quoted(c.User), words))
	case in("3D000"):
		return fault.New(fault.Missing, DatabaseMissing, fmt.Errorf("there is no database %s: %s", quoted(c.Database), words))
	case in("42P01", "3F000"):
		return fault.New(fault.Missing, TableMissing, fmt.Errorf("a table or view does not exist: %s", words))
	case in("42501"):
		return fault.New(fault.Denied, TableDenied, fmt.Errorf("user %s may not read this: grant USAGE on the schema and SELECT on the table: %s", quoted(c.User), words))
	case in("42703"):
		return refuse(ColumnMissing, "a column does not exist: %s", words)
	case in("57014"):
		return fault.New(fault.Later, ReadTimedOut, fmt.Errorf("the database gave up after %s: raise timeout, or read a smaller view: %s", c.timeout(), words))
	case in("57P01", "57P02"):
		return fault.New(fault.Later, ReadIncomplete, fmt.Errorf("the connection was ended: %s", words))
	case in("40", "53", "55", "57"):
		return fault.New(fault.Later, DatabaseBusy, fmt.Errorf("the database cannot do it now: %s", words))
	case in("22021", "22P05"):
		return refuse(ValueNotText, "a value is no UTF-8: map another column, or make it a text in a view: %s", words)
	case in("22", "25006", "26", "2F", "34", "38", "39", "42", "54", "0A"):
		return refuse(QueryRefused, "the database cannot run this: %s", words)
	}
	return fault.New(fault.Later, ReadFailed, fmt.Errorf("the database says %s", words))
}
