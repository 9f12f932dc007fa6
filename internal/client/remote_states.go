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

// States implements Records.
func (r *Remote) States(ctx context.Context, id query.StackID) (query.KeptStates, error) {
	var out query.KeptStates
	err := r.json(ctx, &out, r.path(id, nil, "states"))
	return out, err
}

// State implements Records.
func (r *Remote) State(ctx context.Context, id query.StackID, name string) (io.ReadCloser, error) {
	if err := query.CheckStateName(name); err != nil {
		return nil, err
	}
	return r.open(ctx, requestTime, r.path(id, nil, "states", name))
}

// Outgrown implements Records. The server knows where the state of the stack is.
func (r *Remote) Outgrown(ctx context.Context, id query.StackID, _ kube.StateRef, digest string) (io.ReadCloser, error) {
	return r.open(ctx, requestTime, r.path(id, url.Values{"digest": {digest}}, "outgrown"))
}

// KeepOutgrown implements Records.
func (r *Remote) KeepOutgrown(ctx context.Context, id query.StackID, _ kube.StateRef, state []byte) error {
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

func (f *found) States(ctx context.Context, id query.StackID) (query.KeptStates, error) {
	r, err := f.find()
	if err != nil {
		return query.KeptStates{}, err
	}
	return r.States(ctx, id)
}

func (f *found) State(ctx context.Context, id query.StackID, name string) (io.ReadCloser, error) {
	r, err := f.find()
	if err != nil {
		return nil, err
	}
	return r.State(ctx, id, name)
}

func (f *found) Outgrown(ctx context.Context, id query.StackID, ref kube.StateRef, digest string) (io.ReadCloser, error) {
	r, err := f.find()
	if err != nil {
		return nil, err
	}
	return r.Outgrown(ctx, id, ref, digest)
}

func (f *found) KeepOutgrown(ctx context.Context, id query.StackID, ref kube.StateRef, state []byte) error {
	r, err := f.find()
	if err != nil {
		return err
	}
	return r.KeepOutgrown(ctx, id, ref, state)
}
