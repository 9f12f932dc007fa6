package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"

	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/query"
)

// Records are the records that a server keeps of runs and states.
type Records struct{ *conn }

var _ query.Records = (*Records)(nil)

// NewRecords returns the records of the server at base. The http.Client is as for
// Dial.
func NewRecords(base *url.URL, c *http.Client) *Records { return &Records{newConn(base, c)} }

// Runs implements Records.
func (r *Records) Runs(ctx context.Context, id query.StackID) ([]query.Report, error) {
	var list items[query.Report]
	err := r.json(ctx, &list, r.path(id, nil, "runs"))
	return list.Items, err
}

// Run implements Records.
func (r *Records) Run(ctx context.Context, id query.StackID, run string) (query.Report, error) {
	var report query.Report
	err := r.json(ctx, &report, r.path(id, nil, "runs", run, "report"))
	return report, err
}

// Log implements Records.
func (r *Records) Log(ctx context.Context, id query.StackID, run string, follow bool) (io.ReadCloser, error) {
	if !follow {
		return r.open(ctx, requestTime, r.path(id, nil, "runs", run, "log"))
	}
	return r.follow(ctx, id, run)
}

// Plan implements Records.
func (r *Records) Plan(ctx context.Context, id query.StackID, digest string) (io.ReadCloser, error) {
	return r.open(ctx, requestTime, r.path(id, url.Values{"digest": {digest}}, "plan", "document"))
}

func (r *Records) path(id query.StackID, params url.Values, more ...string) string {
	return r.at(params, object(id.Key, "stacks", more...)...)
}

// States implements Records.
func (r *Records) States(ctx context.Context, id query.StackID) (query.KeptStates, error) {
	var out query.KeptStates
	err := r.json(ctx, &out, r.path(id, nil, "states"))
	return out, err
}

// State implements Records.
func (r *Records) State(ctx context.Context, id query.StackID, name string) (io.ReadCloser, error) {
	if err := query.CheckStateName(name); err != nil {
		return nil, err
	}
	return r.open(ctx, requestTime, r.path(id, nil, "states", name))
}

// Outgrown implements Records. The server knows where the state of the stack is.
func (r *Records) Outgrown(ctx context.Context, id query.StackID, _ kube.StateRef, digest string) (io.ReadCloser, error) {
	return r.open(ctx, requestTime, r.path(id, url.Values{"digest": {digest}}, "outgrown"))
}

// KeepOutgrown implements Records.
func (r *Records) KeepOutgrown(ctx context.Context, id query.StackID, _ kube.StateRef, state []byte) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, r.path(id, nil, "outgrown"), bytes.NewReader(state))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := r.http.Do(req)
	if err != nil {
		return r.unreachable(ctx, err)
	}
	if resp.StatusCode != http.StatusNoContent {
		return errors.Join(r.refusal(resp), resp.Body.Close())
	}
	return resp.Body.Close()
}
