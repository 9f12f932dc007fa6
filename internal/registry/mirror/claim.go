package mirror

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/fault"
)

// claimsPrefix begins the keys of claims. Clients get nothing from there.
const claimsPrefix = "waiting/claims/"

// mostClaim bounds a claim, which is some letters.
const mostClaim = 1 << 10

// A claim is written again this many times before others take it for abandoned, and others
// look at it more often than that.
const (
	writtenIn = 4
	seenIn    = 20
)

// claim says that this process downloads an archive. Others with the same store wait for it
// meanwhile, so that one request goes to the upstream. The claim is written again and again:
// one that does not change for a while is of a process that was killed, and another one takes
// its place. No clock is compared with that of another machine.
type claim struct {
	*one
	text    string // that of this process
	version blob.Version
	stop    context.CancelFunc
	ended   chan struct{}
}

func (o *one) claimKey() string { return claimsPrefix + o.key() }

// claimed waits until this process is the one that downloads the archive, or none has to,
// since another one has stored it: then the claim is nil. If the store cannot keep claims,
// each process downloads the archive.
func (o *one) claimed(ctx context.Context, stored func() (bool, error)) (*claim, error) {
	c := &claim{one: o, text: rand.Text(), ended: make(chan struct{})}
	tick := time.NewTicker(o.options.Claim / seenIn)
	defer tick.Stop()
	var seen blob.Version // the claim of another process
	var since time.Time   // it is unchanged
	for {
		taken, err := c.take(ctx, seen, !since.IsZero() && time.Since(since) > o.options.Claim)
		switch {
		case taken:
			return c.held(ctx), nil
		case err != nil && ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			o.options.Log.Debug("archive downloaded without a claim", "key", o.key(), "err", err)
			return c, nil
		}
		now, text, err := o.claimant(ctx)
		switch {
		case fault.Of(err) == fault.Missing: // the other process has ended
			seen, since = blob.None, time.Time{}
			if there, err := stored(); there || err != nil {
				return nil, err
			}
		case err != nil:
			return nil, err
		case text == c.text: // the answer to the request was lost
			c.version = now
			return c.held(ctx), nil
		case now != seen:
			seen, since = now, time.Now()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// take writes the claim if there is none, or in place of one that was abandoned.
func (c *claim) take(ctx context.Context, seen blob.Version, abandoned bool) (bool, error) {
	if seen != blob.None && !abandoned {
		return false, nil
	}
	version, err := c.store.Replace(ctx, c.claimKey(), seen, strings.NewReader(c.text))
	if fault.Reason(err, "") == blob.Changed || fault.Of(err) == fault.Missing {
		return false, nil
	}
	c.version = version
	return err == nil, err
}

// claimant reads the claim that is there.
func (o *one) claimant(ctx context.Context) (blob.Version, string, error) {
	v, err := o.store.Open(ctx, o.claimKey())
	if err != nil {
		return blob.None, "", err
	}
	text, err := io.ReadAll(blob.Bounded(ctx, v, mostClaim))
	if err = errors.Join(err, v.Close()); err != nil {
		return blob.None, "", fmt.Errorf("reading the claim of %s: %w", o, err)
	}
	of, _, _ := strings.Cut(string(text), " ")
	return v.Version, of, nil
}

// held writes the claim again and again, until end.
func (c *claim) held(ctx context.Context) *claim {
	ctx, c.stop = context.WithCancel(ctx)
	go func() {
		defer close(c.ended)
		tick := time.NewTicker(c.options.Claim / writtenIn)
		defer tick.Stop()
		for n := 1; ; n++ {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			version, err := c.store.Replace(ctx, c.claimKey(), c.version, strings.NewReader(fmt.Sprintf("%s %d", c.text, n)))
			if fault.Reason(err, "") == blob.Changed { // another process took it: both download
				c.options.Log.Warn("claim of a download lost: another process downloads the archive, too", "key", c.key())
				return
			}
			if err == nil {
				c.version = version
			}
		}
	}()
	return c
}

// end lets other processes go on.
func (c *claim) end(ctx context.Context) {
	if c == nil || c.stop == nil {
		return
	}
	c.stop()
	<-c.ended
	if err := c.store.Delete(context.WithoutCancel(ctx), c.claimKey()); err != nil {
		c.options.Log.Warn("claim of a download not deleted: others wait until it is abandoned", "key", c.key(), "err", err)
	}
}
