package service

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// SourceReader lists what modules come from.
type SourceReader interface {
	List(context.Context, Scope) ([]Source, error)
}

// Source is one GitRepository, OCIRepository or Bucket.
type Source struct {
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	URL       string    `json:"url,omitempty"`
	Revision  string    `json:"revision,omitempty"` // that was fetched last
	Ready     string    `json:"ready"`              // True, False or Unknown
	Reason    string    `json:"reason,omitempty"`
	Message   string    `json:"message,omitempty"`
	Since     time.Time `json:"since,omitzero"` // it is Ready, or not
	Suspended bool      `json:"suspended,omitempty"`
	UsedBy    []Key     `json:"usedBy,omitempty"` // stacks that the visitor may see
}

// Sources lists sources with the stacks that use them.
type Sources struct {
	kube  client.Reader
	board *Board
}

// NewSources returns the Sources that kube knows, with the stacks of board.
func NewSources(kube client.Reader, board *Board) *Sources { return &Sources{kube: kube, board: board} }

// List implements SourceReader.
func (s *Sources) List(ctx context.Context, scope Scope) ([]Source, error) { return nil, errNotReady }
