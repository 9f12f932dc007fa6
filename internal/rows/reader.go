package rows

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/tenant"
)

// reader is one checked request: where to read, and which columns.
type reader struct {
	dialect
	config  Config
	options Options
	table   []string // its parts; nil for a query
	source  string   // what follows FROM; its name there is t
	columns []string
}

// Check returns the problems of c and of the columns that can be found without the
// database. Its error is Invalid.
func (c Config) Check(columns []string) error {
	_, err := (&Pools{}).reader(c, columns)
	return err
}

// reader checks everything that can be known without a database.
func (p *Pools) reader(c Config, columns []string) (*reader, error) {
	d, ok := dialectOf(c.Kind)
	if !ok {
		return nil, refuse(ConfigInvalid, "%s is no kind of database: it is mysql, postgresql or sqlite", quoted(string(c.Kind)))
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	r := &reader{dialect: d, config: c, options: p.options, columns: columns}
	for _, name := range append([]string{c.HighWaterMark}, columns...) {
		if strings.ContainsRune(name, 0) || !utf8.ValidString(name) || len(name) > 256 {
			return nil, refuse(ColumnMissing, "no column is called %s", quoted(name))
		}
	}
	if c.Query != "" {
		query, err := d.oneSelect(c.Query)
		r.source = "(\n" + query + "\n) AS t"
		return r, err
	}
	table, err := d.tableName(c.Table)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, part := range table {
		names = append(names, d.ident(part))
	}
	r.table, r.source = table, strings.Join(names, ".")+" AS t"
	return r, nil
}

// read reads all rows in the transaction of conn. The count comes first, so that
// nothing is held of a table that is too large, and is compared in the end.
func (r *reader) read(ctx context.Context, conn conn) (tenant.Snapshot, error) {
	kinds, err := r.kinds(ctx, conn)
	if err != nil {
		return tenant.Snapshot{}, err
	}
	most := r.config.maxRows()
	count, err := r.count(ctx, conn, most+1)
	if err != nil {
		return tenant.Snapshot{}, err
	}
	if count > most {
		return tenant.Snapshot{}, r.tooMany()
	}
	s := tenant.Snapshot{Columns: r.columns, Rows: make([][]tenant.Cell, 0, count)}
	var selected []string
	for i, name := range r.columns {
		selected = append(selected, r.text(r.column(name), kinds[i]))
	}
	t := taker{reader: r, snapshot: &s}
	if _, err := conn.stream(ctx, fmt.Sprintf("SELECT %s FROM %s LIMIT %d", strings.Join(selected, ", "), r.source, most+1), t.take); err != nil {
		return tenant.Snapshot{}, err
	}
	if len(s.Rows) > most {
		return tenant.Snapshot{}, r.tooMany()
	}
	if len(s.Rows) != count {
		return tenant.Snapshot{}, fault.New(fault.Later, ReadIncomplete, fmt.Errorf("%s counted %d rows and sent %d: the rows are not all from one moment, as with a storage engine without transactions", r.config.where(r.dialect), count, len(s.Rows)))
	}
	if name := r.config.HighWaterMark; name != "" {
		s.Mark, err = r.mark(ctx, conn, r.column(name), kinds[len(kinds)-1])
	}
	return s, err
}

func (r *reader) column(name string) string { return "t." + r.ident(name) }

// kinds are the types of the columns, and of the mark's after them, where text
// depends on them.
func (r *reader) kinds(ctx context.Context, conn conn) ([]string, error) {
	names := r.columns
	if r.config.HighWaterMark != "" {
		names = append(names[:len(names):len(names)], r.config.HighWaterMark)
	}
	kinds := make([]string, len(names))
	if !r.typed {
		return kinds, nil
	}
	var selected []string
	for _, name := range names {
		selected = append(selected, r.column(name))
	}
	columns, err := conn.stream(ctx, fmt.Sprintf("SELECT %s FROM %s LIMIT 0", strings.Join(selected, ", "), r.source), ignore)
	if err != nil {
		return nil, err
	}
	for i := range kinds[:min(len(kinds), len(columns))] {
		kinds[i] = columns[i].kind
	}
	return kinds, nil
}

func ignore([][]byte) error { return nil }

// count counts rows, but no further than most.
func (r *reader) count(ctx context.Context, conn conn, most int) (int, error) {
	var text string
	_, err := conn.stream(ctx, fmt.Sprintf("SELECT COUNT(*) FROM (SELECT 1 AS one FROM %s LIMIT %d) AS c", r.source, most), only(&text))
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("counting rows: %w", err)
	}
	return n, nil
}

// mark is the greatest value of a column, in the order of the database.
func (r *reader) mark(ctx context.Context, conn conn, column, kind string) (string, error) {
	var text string
	_, err := conn.stream(ctx, fmt.Sprintf("SELECT %s FROM %s WHERE %s IS NOT NULL ORDER BY %s DESC LIMIT 1", r.text(column, kind), r.source, column, column), only(&text))
	return text, err
}

// only takes the one cell of the one row.
func only(text *string) func([][]byte) error {
	return func(cells [][]byte) error {
		*text = string(cells[0])
		return nil
	}
}

// describe lists all columns.
func (r *reader) describe(ctx context.Context, conn conn) ([]string, error) {
	if r.exists != nil && r.table != nil {
		var count string
		if _, err := conn.stream(ctx, r.exists(r.table), only(&count)); err != nil {
			return nil, err
		}
		if count == "0" {
			return nil, r.noTable()
		}
	}
	columns, err := conn.stream(ctx, fmt.Sprintf("SELECT * FROM %s LIMIT 0", r.source), ignore)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.name
	}
	return names, nil
}

// taker adds rows to a snapshot while they keep within bounds.
type taker struct {
	*reader
	snapshot *tenant.Snapshot
	bytes    int64
}

func (t *taker) take(cells [][]byte) error {
	s := t.snapshot
	if len(cells) != len(t.columns) {
		return fmt.Errorf("%d columns came where %d were asked for", len(cells), len(t.columns))
	}
	row := make([]tenant.Cell, len(cells))
	for i, cell := range cells {
		t.bytes += int64(len(cell)) + 32
		switch {
		case cell == nil:
			row[i].Null = true
		case len(cell) > t.options.MaxCell:
			row[i].Bad = fmt.Sprintf("holds %d bytes, where %d are the most: map another column, or shorten it in a view", len(cell), t.options.MaxCell)
		case !utf8.Valid(cell):
			row[i].Bad = "holds bytes that are no UTF-8: map another column, or make it a text in a view"
		default:
			row[i].Text = string(cell)
		}
	}
	if t.bytes > t.options.MaxBytes {
		return t.tooLarge()
	}
	s.Rows = append(s.Rows, row)
	return nil
}
