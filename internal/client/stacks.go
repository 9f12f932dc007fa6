package client

import (
	"context"
	"io"
	"net/url"
	"strconv"

	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/plan/usage"
	"github.com/terrier-iac/terrier/internal/query"
)

// Stacks are the stacks of a server, as it shows them to the user.
type Stacks struct {
	*questions
	*commands
	*states
	*sessions
}

func newStacks(c *conn) *Stacks {
	s := stackConn{c}
	return &Stacks{&questions{s}, &commands{s}, &states{s}, &sessions{s}}
}

// stackConn is a connection for what is about one stack.
type stackConn struct{ *conn }

// get reads what there is about one stack.
func (s stackConn) get(ctx context.Context, key query.Key, out any, params url.Values, more ...string) error {
	if err := key.Check(); err != nil {
		return err
	}
	return s.json(ctx, out, s.at(params, object(key, "stacks", more...)...))
}

func getOf[T any](ctx context.Context, s stackConn, key query.Key, params url.Values, more ...string) (T, error) {
	var out T
	err := s.get(ctx, key, &out, params, more...)
	return out, err
}

// do has one command carried out on a stack.
func (s stackConn) do(ctx context.Context, key query.Key, in, out any, more ...string) error {
	if err := key.Check(); err != nil {
		return err
	}
	return s.post(ctx, requestTime, in, out, object(key, "stacks", more...)...)
}

func doOf[T any](ctx context.Context, s stackConn, key query.Key, in any, more ...string) (T, error) {
	var out T
	err := s.do(ctx, key, in, &out, more...)
	return out, err
}

// answered is err, or that the controller has not answered yet if the time of the
// caller is over.
func answered(ctx context.Context, key query.Key, err error) error {
	if err != nil && ctx.Err() != nil {
		return command.Unanswered(ctx, key)
	}
	return err
}

// ProposeDrift implements query.StackReader.
func (s *questions) ProposeDrift(ctx context.Context, key query.Key, o query.DriftOrder) (query.DriftPatch, error) {
	return getOf[query.DriftPatch](ctx, s.stackConn, key, driftParams(o), "drift", "patch")
}

// NextCheck implements query.StackReader.
func (s *questions) NextCheck(ctx context.Context, key query.Key) (query.DriftCheck, error) {
	return getOf[query.DriftCheck](ctx, s.stackConn, key, nil, "drift", "next")
}

// questions are what a user asks about stacks.
type questions struct{ stackConn }

// List implements query.StackReader. The server knows stacks a moment later than
// the cluster does.
func (s *questions) List(ctx context.Context, f query.Filter) ([]query.Stack, error) {
	out := []query.Stack{}
	rows, _, err := s.rows(ctx, f)
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		out = append(out, row.Stack)
	}
	query.SortStacks(out)
	return out, nil
}

// rows are those that f chooses, and the cursor of the events that follow them.
func (s *questions) rows(ctx context.Context, f query.Filter) (rows []query.Row, cursor string, err error) {
	// Of all namespaces the server shows those that the user may list. A namespace
	// that is named is listed completely, or Denied.
	parts := []string{"stacks"}
	if f.Namespace != "" {
		if err := (query.Key{Namespace: f.Namespace, Name: "any"}).Check(); err != nil {
			return nil, "", err
		}
		parts = []string{"namespaces", f.Namespace, "stacks"}
	}
	q := query.BoardQuery{Selector: f.Selector, Text: f.Name, Limit: boardPage}
	for {
		page, err := s.page(ctx, q, parts...)
		if err != nil {
			return nil, "", err
		}
		if cursor == "" {
			cursor = page.Cursor // of the first page, so that no change in between is missed
		}
		for _, row := range page.Items {
			if f.Names(row.Key()) {
				rows = append(rows, row)
			}
		}
		if q.Offset += len(page.Items); len(page.Items) == 0 || q.Offset >= page.Total {
			return rows, cursor, nil
		}
	}
}

// boardPage is how many rows are asked for at once.
const boardPage = 1000

// Page returns the rows that q chooses of those that the caller may see.
func (s *questions) Page(ctx context.Context, q query.BoardQuery) (query.BoardPage, error) {
	return s.page(ctx, q, "stacks")
}

func (s *questions) page(ctx context.Context, q query.BoardQuery, parts ...string) (query.BoardPage, error) {
	var page query.BoardPage
	params := url.Values{}
	text(params, "q", q.Text)
	for _, status := range q.Statuses {
		params.Add("status", string(status))
	}
	text(params, "namespace", q.Namespace)
	text(params, "tenant", q.Tenant)
	text(params, "selector", q.Selector)
	text(params, "group", q.Group)
	text(params, "sort", q.Sort)
	if q.Offset > 0 {
		params.Set("offset", strconv.Itoa(q.Offset))
	}
	if q.Limit > 0 {
		params.Set("limit", strconv.Itoa(q.Limit))
	}
	err := s.json(ctx, &page, s.at(params, parts...))
	return page, err
}

func (s *questions) Get(ctx context.Context, key query.Key) (query.Stack, error) {
	d, err := s.Describe(ctx, key)
	return d.Stack, err
}

func (s *questions) Describe(ctx context.Context, key query.Key) (query.Detail, error) {
	return getOf[query.Detail](ctx, s.stackConn, key, nil)
}

func (s *questions) Explain(ctx context.Context, key query.Key) (query.Explanation, error) {
	return getOf[query.Explanation](ctx, s.stackConn, key, nil, "explain")
}

func (s *questions) Runs(ctx context.Context, key query.Key) ([]query.Report, error) {
	list, err := getOf[items[query.Report]](ctx, s.stackConn, key, nil, "runs")
	return list.Items, err
}

func (s *questions) Run(ctx context.Context, key query.Key, run string) (query.Report, error) {
	if err := checkRun(key, run); err != nil {
		return query.Report{}, err
	}
	return getOf[query.Report](ctx, s.stackConn, key, nil, "runs", orNewest(run))
}

// checkRun refuses what would be cleaned away in an address before it is sent:
// then something else would be asked for.
func checkRun(key query.Key, run string) error {
	if err := key.Check(); err != nil {
		return err
	}
	return query.CheckID(query.StackID{UID: "any"}, orNewest(run))
}

func orNewest(run string) string {
	if run == "" {
		return command.NewestRun
	}
	return run
}

func (s *questions) Log(ctx context.Context, key query.Key, run string, o query.LogOptions) (io.ReadCloser, error) {
	if err := checkRun(key, run); err != nil {
		return nil, err
	}
	return (&Records{s.conn}).Log(ctx, query.StackID{Key: key}, orNewest(run), o)
}

func (s *questions) Plan(ctx context.Context, key query.Key, digest string) (query.PlanDocument, error) {
	params := url.Values{}
	text(params, "digest", digest)
	return getOf[query.PlanDocument](ctx, s.stackConn, key, params, "plan")
}

func (s *questions) Outputs(ctx context.Context, key query.Key, show bool) ([]query.Output, error) {
	params := url.Values{}
	flag(params, "reveal", show)
	list, err := getOf[items[query.Output]](ctx, s.stackConn, key, params, "outputs", "secret")
	return list.Items, err
}

func (s *questions) Verdict(ctx context.Context, key query.Key, digest string) (*query.Verdict, error) {
	return getOf[*query.Verdict](ctx, s.stackConn, key, url.Values{"digest": {digest}}, "plan", "verdict")
}

func (s *questions) Applied(ctx context.Context, key query.Key) ([]query.AppliedPlan, error) {
	return (&Records{s.conn}).Applied(ctx, query.StackID{Key: key})
}

func (s *questions) Uses(ctx context.Context, key query.Key) (usage.Record, error) {
	return getOf[usage.Record](ctx, s.stackConn, key, nil, "uses")
}

// items is a list that is not a page.
type items[T any] struct {
	Items []T `json:"items"`
}
