package rego

import (
	"context"

	"github.com/terrier-iac/terrier/internal/cache"
)

// Cache keeps what was compiled, by digest. Its zero value is ready; it may be used by
// several goroutines at once.
type Cache struct {
	sets cache.Map[string, *Set]
}

// Compile returns the compiled source. A source that is asked for by several callers at
// once is compiled once. Errors are not kept.
func (c *Cache) Compile(ctx context.Context, source Source) (*Set, error) {
	return c.sets.Load(ctx, source.Digest(), func(ctx context.Context) (*Set, error) { return Compile(ctx, source) })
}
