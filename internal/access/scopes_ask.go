package access

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
)

// lane bounds how many questions of one kind are on their way at once, of all
// persons together.
type lane struct {
	slots chan struct{}
	rests bool // it takes a small part of the cluster's time only
}

func newLane(width int) lane { return lane{slots: make(chan struct{}, width)} }

// Of ten parts of time a lane that rests takes one. It never rests long: how
// long a question takes also says how far away the cluster is.
const (
	restsFor   = 9
	restsShort = 20 * time.Millisecond
)

// round is some questions that are on their way.
type round struct {
	done chan struct{}
	err  error // once done
}

// askAbout asks about each of some namespaces, in this order, and tells of what
// it hears. It gives up at the first that cannot be answered.
func (s *Scopes) askAbout(u User, namespaces []string, l lane, of *sight) error {
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

func (s *Scopes) askOne(ctx context.Context, u User, namespace string, l lane, of *sight) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	asked := s.Now()
	allowed, err := s.may(ctx, u, namespace)
	if err != nil {
		return err
	}
	of.heard(namespace, verdict{asked.UnixNano(), allowed})
	if rest := min(restsFor*s.Now().Sub(asked), restsShort); l.rests && rest > 0 {
		select {
		case <-time.After(rest):
		case <-ctx.Done():
		}
	}
	return nil
}
