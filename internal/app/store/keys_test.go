package store

import (
	"context"
	"errors"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/blob"
)

// stuck is an API server that does not answer.
type stuck struct {
	client.Client
	asked chan struct{}
}

func (s stuck) Get(ctx context.Context, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	close(s.asked)
	<-ctx.Done()
	return ctx.Err()
}

// While the API server is asked for an unknown key, records are written with the known
// one.
func TestNoRecordWaitsForTheAPIServer(t *testing.T) {
	key, err := blob.NewKey(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	api := stuck{asked: make(chan struct{})}
	r := newRing(&secretKeys{Client: api}, nil, time.Now)
	r.known["1"], r.keys[key.ID()], r.newest = entry{key: key}, key, "1"
	ctx, cancel := context.WithCancel(t.Context())
	answered := make(chan error)
	go func() {
		_, _, err := r.Find(ctx, "unknown")
		answered <- err
	}()
	<-api.asked
	if got := r.Current(); got.ID() != key.ID() {
		t.Errorf("Current() = %v", got)
	}
	cancel()
	if err := <-answered; !errors.Is(err, context.Canceled) {
		t.Errorf("Find() = %v", err)
	}
}
