package rows

import (
	"errors"
	"fmt"

	"modernc.org/sqlite"

	"github.com/terrier-iac/terrier/internal/fault"
)

// Result codes of SQLite; see https://www.sqlite.org/rescode.html.
const (
	sqliteError = 1 + iota
	_
	sqlitePerm
	_
	sqliteBusy
	sqliteLocked
	_
	sqliteReadonly
	sqliteInterrupt
	_
	sqliteCorrupt
	_
	_
	sqliteCantOpen
	sqliteProtocol
	_
	sqliteSchema
	sqliteTooBig

	sqliteAuth   = 23
	sqliteNotADB = 26
)

func explainSQLite(err error, c Config) error {
	answer, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return nil
	}
	words := said(answer.Error(), c)
	path := quoted(c.Path)
	switch answer.Code() & 0xff {
	case sqliteBusy, sqliteLocked, sqliteProtocol, sqliteSchema:
		return fault.New(fault.Later, DatabaseBusy, fmt.Errorf("another process has locked %s to write to it: %s", path, words))
	case sqliteInterrupt:
		return fault.New(fault.Later, ReadTimedOut, fmt.Errorf("%s took longer than %s: raise timeout, or read a smaller view", path, c.timeout()))
	case sqlitePerm, sqliteCantOpen, sqliteReadonly:
		return fault.New(fault.Denied, DatabaseDenied, fmt.Errorf("%s cannot be opened for reading; one in WAL mode needs its -wal and -shm files beside it, or a directory that this program may write to: %s", path, words))
	case sqliteCorrupt, sqliteNotADB:
		return fault.New(fault.Broken, ReadFailed, fmt.Errorf("%s is damaged, or no database of SQLite: %s", path, words))
	case sqliteTooBig:
		return refuse(CellTooLarge, "a value in %s is too large: %s", path, words)
	case sqliteError, sqliteAuth:
		// One code for everything that is wrong with a statement.
		return fault.New(fault.Invalid, QueryRefused, unclear{fmt.Errorf("SQLite cannot run this: %s", words)})
	}
	return fault.New(fault.Later, ReadFailed, fmt.Errorf("%s: SQLite says %s", path, words))
}
