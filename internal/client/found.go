package client

import (
	"context"
	"io"

	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/query"
)

// found are Records whose server is found at the first question.
type found struct{ find func() (query.Records, error) }

func (f *found) Runs(ctx context.Context, id query.StackID) ([]query.Report, error) {
	r, err := f.find()
	if err != nil {
		return nil, err
	}
	return r.Runs(ctx, id)
}

func (f *found) Run(ctx context.Context, id query.StackID, run string) (query.Report, error) {
	r, err := f.find()
	if err != nil {
		return query.Report{}, err
	}
	return r.Run(ctx, id, run)
}

func (f *found) Log(ctx context.Context, id query.StackID, run string, follow bool) (io.ReadCloser, error) {
	r, err := f.find()
	if err != nil {
		return nil, err
	}
	return r.Log(ctx, id, run, follow)
}

func (f *found) Plan(ctx context.Context, id query.StackID, digest string) (io.ReadCloser, error) {
	r, err := f.find()
	if err != nil {
		return nil, err
	}
	return r.Plan(ctx, id, digest)
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
