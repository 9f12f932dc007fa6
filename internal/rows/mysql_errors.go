package rows

import (
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"

	"github.com/terrier-iac/terrier/internal/fault"
)

// explainMySQL knows the errors by number: texts are in the language of the
// server. The list is at https://mariadb.com/kb/en/mariadb-error-code-reference/.
func explainMySQL(err error, c Config) error {
	answer, ok := errors.AsType[*mysql.MySQLError](err)
	if !ok {
		if errors.Is(err, mysql.ErrCleartextPassword) || errors.Is(err, mysql.ErrOldPassword) || errors.Is(err, mysql.ErrNativePassword) || errors.Is(err, mysql.ErrUnknownPlugin) {
			return fault.New(fault.Denied, DatabaseDenied, fmt.Errorf("the server wants the password in a way that would give it away: let the user authenticate with mysql_native_password, caching_sha2_password or ed25519"))
		}
		return nil
	}
	words := said(fmt.Sprintf("%d: %s", answer.Number, answer.Message), c)
	switch answer.Number {
	case 1044, 1045, 1129, 1130, 1251, 1275, 1698, 1820, 1862, 3118, 4151:
		return fault.New(fault.Denied, DatabaseDenied, fmt.Errorf("the database does not let user %s in: check username, password and what the user may connect to: %s", quoted(c.User), words))
	case 1049:
		return fault.New(fault.Missing, DatabaseMissing, fmt.Errorf("there is no database %s: %s", quoted(c.Database), words))
	case 1051, 1146:
		return fault.New(fault.Missing, TableMissing, fmt.Errorf("a table or view does not exist: %s", words))
	case 1142, 1143, 1227:
		return fault.New(fault.Denied, TableDenied, fmt.Errorf("user %s may not read this: grant SELECT on it: %s", quoted(c.User), words))
	case 1054:
		return refuse(ColumnMissing, "a column does not exist: %s", words)
	case 1040, 1053, 1105, 1158, 1159, 1160, 1161, 1203, 1205, 1213, 1226, 1412:
		return fault.New(fault.Later, DatabaseBusy, fmt.Errorf("the database cannot do it now: %s", words))
	case 1028, 1317, 1969, 3024:
		return fault.New(fault.Later, ReadTimedOut, fmt.Errorf("the database gave up after %s: raise timeout, or read a smaller view: %s", c.timeout(), words))
	case 1927, 3169:
		return fault.New(fault.Later, ReadIncomplete, fmt.Errorf("the connection was ended: %s", words))
	case 1046, 1052, 1060, 1064, 1102, 1109, 1247, 1248, 1290, 1305, 1356, 1370, 1792, 3572:
		return refuse(QueryRefused, "the database cannot run this: %s", words)
	}
	if c.Query != "" {
		return refuse(QueryRefused, "the database cannot run this: %s", words)
	}
	return fault.New(fault.Later, ReadFailed, fmt.Errorf("the database says %s", words))
}
