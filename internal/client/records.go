package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/plan/usage"
	"github.com/terrier-iac/terrier/internal/query"
)

// Records are the records that a server keeps of runs and states.
type Records struct{ *conn }

var _ query.Records = (*Records)(nil)

// NewRecords returns the records of the server at base. The http.Client is as for
// Dial.
func NewRecords(base *url.URL, c *http.Client) *Records {
	return &Records{newConn(peer{base: base, http: c})}
}

func (r *Records) Runs(ctx context.Context, id query.StackID) ([]query.Report, error) {
	return listed[query.Report](ctx, r.conn, r.path(id, nil, "runs"))
}

func (r *Records) Run(ctx context.Context, id query.StackID, run string) (query.Report, error) {
	return get[query.Report](ctx, r.conn, r.path(id, nil, "runs", run, "report"))
}

func (r *Records) Log(ctx context.Context, id query.StackID, run string, o query.LogOptions) (io.ReadCloser, error) {
	if !o.Follow {
		return r.open(ctx, requestTime, r.path(id, logParams(o), "runs", run, "log"))
	}
	return r.follow(ctx, id, run, o)
}

func logParams(o query.LogOptions) url.Values {
	params := url.Values{}
	if o.Follow {
		params.Set("follow", "true")
	}
	if o.Timestamps {
		params.Set("timestamps", "true")
	}
	return params
}

func (r *Records) Plan(ctx context.Context, id query.StackID, digest string) (io.ReadCloser, error) {
	return r.open(ctx, requestTime, r.path(id, url.Values{"digest": {digest}}, "plan", "document"))
}

func (r *Records) path(id query.StackID, params url.Values, more ...string) endpoint {
	return r.at(params, object(id.Key, "stacks", more...)...)
}

func (r *Records) States(ctx context.Context, id query.StackID) (query.KeptStates, error) {
	return get[query.KeptStates](ctx, r.conn, r.path(id, nil, "states"))
}

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

func (r *Records) SecretPrints(ctx context.Context, id query.StackID) (plan.Prints, error) {
	return get[plan.Prints](ctx, r.conn, r.path(id, nil, "secret-prints"))
}

func (r *Records) Uses(ctx context.Context, id query.StackID) (usage.Record, error) {
	return get[usage.Record](ctx, r.conn, r.path(id, nil, "uses"))
}

// Applied implements Records.
func (r *Records) Applied(ctx context.Context, id query.StackID) ([]query.AppliedPlan, error) {
	list, err := get[items[query.AppliedPlan]](ctx, r.conn, r.path(id, nil, "applied"))
	return list.Items, err
}

// ProposeDrift implements Records. The server knows the configuration.
func (r *Records) ProposeDrift(ctx context.Context, id query.StackID, _ query.Configured, o query.DriftOrder) (query.DriftPatch, error) {
	return get[query.DriftPatch](ctx, r.conn, r.path(id, driftParams(o), "drift", "patch"))
}

// NextCheck implements Records.
func (r *Records) NextCheck(ctx context.Context, id query.StackID) (query.DriftCheck, error) {
	return get[query.DriftCheck](ctx, r.conn, r.path(id, nil, "drift", "next"))
}

func driftParams(o query.DriftOrder) url.Values {
	params := url.Values{}
	for _, a := range o.Addresses {
		params.Add("address", a)
	}
	for _, a := range o.Attributes {
		params.Add("attribute", a)
	}
	flag(params, "ignoreChanges", o.IgnoreChanges)
	return params
}

// Verdict implements Records.
func (r *Records) Verdict(ctx context.Context, id query.StackID, digest string) (query.Verdict, error) {
	v, err := get[*query.Verdict](ctx, r.conn, r.path(id, url.Values{"digest": {digest}}, "plan", "verdict"))
	if err == nil && v == nil {
		err = fault.New(fault.Missing, query.ReasonNoVerdict, fmt.Errorf("policies found nothing in the plan %s of the stack %s", digest, id.Key))
	}
	if err != nil {
		return query.Verdict{}, err
	}
	return *v, nil
}

// EncryptState implements Records. The server knows where the state of the stack is.
func (r *Records) EncryptState(ctx context.Context, id query.StackID, _ kube.StateRef, state []byte) ([]byte, error) {
	return r.exactly(ctx, r.path(id, nil, "state", "encrypt"), state)
}

// DecryptState implements Records.
func (r *Records) DecryptState(ctx context.Context, id query.StackID, _ kube.StateRef, document []byte) ([]byte, error) {
	return r.exactly(ctx, r.path(id, nil, "state", "decrypt"), document)
}

// StateKeys implements Records. The server knows the place.
func (r *Records) StateKeys(ctx context.Context, id query.StackID, _, reason string) (out query.StateKeys, err error) {
	body, err := json.Marshal(query.KeyReason{Reason: reason})
	if err == nil {
		err = r.send(ctx, requestTime, http.MethodPost, r.path(id, nil, "state", "keys"), body, &out)
	}
	return out, err
}

// exactly sends a state, and returns the answer byte by byte: states have digests.
func (r *Records) exactly(ctx context.Context, to endpoint, state []byte) ([]byte, error) {
	return query.ReadState(r.do(ctx, requestTime, http.MethodPost, to, state))
}

func (r *Records) KeepOutgrown(ctx context.Context, id query.StackID, _ kube.StateRef, state []byte) error {
	return r.send(ctx, requestTime, http.MethodPut, r.path(id, nil, "outgrown"), state, nil)
}

// StateInGit implements Records. The server knows where the state of the stack is.
func (r *Records) StateInGit(ctx context.Context, id query.StackID, _ kube.StateRef) (out query.StateInGit, err error) {
	err = r.send(ctx, transferTime, http.MethodGet, r.path(id, nil, "state", "git"), nil, &out)
	return out, err
}

// ReplaceInGit implements Records. The server knows the user, and where the state is.
func (r *Records) ReplaceInGit(ctx context.Context, id query.StackID, _ kube.StateRef, with kube.Replacement) error {
	return r.send(ctx, transferTime, http.MethodPut, r.path(id, url.Values{"over": {with.Over}}, "state", "git"), with.State, nil)
}
