package sources

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/terrier-iac/terrier/internal/source"
)

// janitor removes artifacts of objects that were deleted while the controller did not
// run. It reads each object by name, so that an incomplete list removes nothing.
type janitor struct {
	reader client.Reader
	store  *source.Store
	log    *slog.Logger
	every  time.Duration
}

// Start sweeps now and then until ctx ends. The manager calls it.
func (j *janitor) Start(ctx context.Context) error {
	ticker := time.NewTicker(j.every)
	defer ticker.Stop()
	for {
		if err := j.sweep(ctx); err != nil && ctx.Err() == nil {
			j.log.Warn("artifacts without an object not removed", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (j *janitor) sweep(ctx context.Context) error {
	var failures []error
	for _, k := range kinds() {
		keys, err := j.store.Keys(k.key("", "").Kind)
		if err != nil {
			failures = append(failures, err)
			continue
		}
		for _, key := range keys {
			err := j.reader.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: key.Name}, k.make())
			switch {
			case apierrors.IsNotFound(err):
				failures = append(failures, j.store.Remove(key))
			case err != nil:
				failures = append(failures, fmt.Errorf("looking for %v: %w", key, err))
			}
		}
	}
	return errors.Join(failures...)
}
