package access

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
)

// lane bounds how many questions of one kind are asked at once, for all users
// together.
type lane struct {
	slots  chan struct{}
	pauses bool // it takes a small part of the cluster's time only
}

func newLane(width int) lane { return lane{slots: make(chan struct{}, width)} }

// A lane that pauses asks during one tenth of the time. It never pauses for long:
// how long a question takes also depends on how far away the cluster is.
const (
	pauseFactor = 9
	pauseMax    = 20 * time.Millisecond
)

// round is a number of questions that are being asked.
type round struct {
	done chan struct{}
	err  error // once done
}

// askAbout asks about each namespace, in this order, and records the answers. It
// gives up at the first question that cannot be answered.
func (s *Scopes) askAbout(u User, namespaces []string, l lane, of *answers) error {
	g, ctx := errgroup.WithContext(context.Background())
	g.SetLimit(cap(l.slots))
	for _, namespace := range namespaces {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error {
			select {
			case l.slots <- struct{}{}:
			case <-ctx.Done():
				return ctx.Err()
			}
			defer func() { <-l.slots }()
			return s.askOne(ctx, u, namespace, l, of)
		})
	}
	return g.Wait()
}

func (s *Scopes) askOne(ctx context.Context, u User, namespace string, l lane, of *answers) error {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	asked := s.Now()
	allowed, err := s.may(ctx, u, namespace)
	if err != nil {
		return err
	}
	of.record(namespace, answer{asked.UnixNano(), allowed})
	if pause := min(pauseFactor*s.Now().Sub(asked), pauseMax); l.pauses && pause > 0 {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
	return nil
}
