package interpreter

import (
	"context"
	"fmt"
	"io"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan/usage"
	"github.com/terrier-iac/terrier/internal/policy/document"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Records hold what runs left. The error for an absent one is Missing.
type Records interface {
	Get(ctx context.Context, key string) (io.ReadCloser, error)
}

// modules adds the modules and providers that the last plan used. A record that is absent,
// or of another plan, leaves them to the configuration, and the input says that they are not
// known as they were resolved.
func (p *Programs) modules(ctx context.Context, f *document.Facts, uid string, m stack.Status) error {
	if m.Uses == "" || p.records == nil {
		return nil
	}
	kept, err := p.record(ctx, record.Uses(uid).Key)
	if fault.Of(err) == fault.Missing {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the used modules and providers: %w", err)
	}
	r, err := record.Uses(uid).Decode(kept)
	if err != nil || r.Usage.Digest() != m.Uses {
		return nil
	}
	f.Use(r.Usage)
	return nil
}

// record reads a whole record.
func (p *Programs) record(ctx context.Context, key string) ([]byte, error) {
	r, err := p.records.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(io.LimitReader(r, 2*usage.MaxBytes))
}
