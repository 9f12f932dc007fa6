package command

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
)

// Watcher yields stacks as they are, and then each one that changes.
type Watcher interface {
	Watch(context.Context, query.Filter) iter.Seq2[query.Change, error]
}

// Answered waits until the controller has answered a request and the stack is
// idle, and returns the stack as it is then.
func Answered(ctx context.Context, w Watcher, key query.Key, request string) (query.Stack, error) {
	for c, err := range w.Watch(ctx, key.Filter()) {
		switch {
		case err != nil:
			return query.Stack{}, err
		case c.Gone:
			return query.Stack{}, gone(key)
		case covers(c.Handled, request) && c.Run == nil && !c.Reconciling:
			return c.Stack, nil
		}
	}
	return query.Stack{}, Unanswered(ctx, key)
}

// RegistryReader says what is known of a registry.
type RegistryReader interface {
	Registry(context.Context, query.Key) (query.Registry, error)
}

// readPause is how long WasRead waits until it asks again.
const readPause = 300 * time.Millisecond

// WasRead waits until the controller has answered a request of ReadNow, and
// returns what is known of the registry then.
func WasRead(ctx context.Context, of RegistryReader, key query.Key, request string) (query.Registry, error) {
	why := ""
	for ctx.Err() == nil {
		r, err := of.Registry(ctx, key)
		if err != nil && ctx.Err() == nil {
			return query.Registry{}, err
		}
		if err == nil && covers(r.Handled, request) {
			return r, nil
		}
		if why = ""; err == nil && r.Ready == "False" {
			why = ": " + r.Message
		}
		select {
		case <-ctx.Done():
		case <-time.After(readPause):
		}
	}
	return query.Registry{}, errors.Join(ctx.Err(), fault.New(fault.Later, query.ReasonNotRead, fmt.Errorf("the controller has not read the rows of %s yet%s", key, why)))
}

// covers reports whether the answer to the request handled answers request as
// well: a later one does. Requests that are no times are only themselves.
func covers(handled, request string) bool {
	h, err := time.Parse(time.RFC3339Nano, handled)
	r, err2 := time.Parse(time.RFC3339Nano, request)
	if err != nil || err2 != nil {
		return handled == request
	}
	return !h.Before(r)
}

func gone(key query.Key) error {
	return fault.New(fault.Missing, access.ReasonNotFound, fmt.Errorf("the stack %s was deleted", key))
}

// Unanswered is the failure of a command whose time is over before the controller
// has answered.
func Unanswered(ctx context.Context, key query.Key) error {
	return errors.Join(ctx.Err(), fault.New(fault.Later, "NotAnswered", fmt.Errorf("the controller has not answered the request about %s yet", key)))
}
