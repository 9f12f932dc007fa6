package rows

// Reasons of the errors of this package; each has its way out in docs/rows.md.
const (
	ConfigInvalid       = "DatabaseConfigInvalid" // Invalid: something is missing or contradicts itself
	DatabaseUnreachable = "DatabaseUnreachable"   // Later: no such database answers
	DatabaseBusy        = "DatabaseBusy"          // Later: too many connections, starting, locked
	DatabaseDenied      = "DatabaseDenied"        // Denied: wrong user or password, or not from here
	DatabaseMissing     = "DatabaseMissing"       // Missing: no such database or file
	PathRefused         = "PathRefused"           // Denied: a file outside the directories that are allowed
	AddressRefused      = "AddressRefused"        // Denied: an address that no database has
	TLSNotOffered       = "TLSNotOffered"         // Denied: the server would talk in clear
	TLSNotTrusted       = "TLSNotTrusted"         // Denied: a certificate, of the server or the client, was not accepted
	TableRefused        = "TableRefused"          // Invalid: table is not a name
	TableMissing        = "TableMissing"          // Missing: no such table or view
	TableDenied         = "TableDenied"           // Denied: the user may not read it
	ColumnMissing       = "ColumnMissing"         // Invalid: no such column
	QueryRefused        = "QueryRefused"          // Invalid: not one SELECT, or the database cannot run it
	TooManyRows         = "TooManyRows"           // Invalid: more than maxRows
	ReadTooLarge        = "ReadTooLarge"          // Invalid: more bytes than may be read
	CellTooLarge        = "CellTooLarge"          // Invalid: one value is too large
	ValueNotText        = "ValueNotText"          // Invalid: one value is no UTF-8
	ReadTimedOut        = "ReadTimedOut"          // Later: longer than timeout
	ReadIncomplete      = "ReadIncomplete"        // Later: cut off, or not all from one moment
	ReadFailed          = "ReadFailed"            // Later: the database says so, in its own words
)
