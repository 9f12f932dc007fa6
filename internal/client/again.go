package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/peers"
)

// How long, how often and how many times a request is sent again. Of several controllers
// one that has died is missed within the duration of a Lease, which is 15 s.
const (
	againFor    = 30 * time.Second
	againPause  = time.Second
	againDialed = 3 // times in all, if the server is not reached: the next connection may lead to another controller
)

// repeat asks until there is an answer, or the reason why there is none is another one than
// that a controller has just ended. It tells the user of the first such reason. A request
// that may change something is sent again only if no controller has taken it.
func (c *conn) repeat(ctx context.Context, method string, ask func() error) error {
	if c.waiting == nil {
		return ask()
	}
	over, told := time.Now().Add(againFor), false
	for tries := 1; ; tries++ {
		err := ask()
		if !passes(method, err, tries) || !time.Now().Before(over) {
			return err
		}
		if !told {
			c.waiting(fmt.Sprintf("Asking again: %v", err))
			told = true
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(againPause):
		}
	}
}

// passes reports whether what an error says passes by itself soon.
func passes(method string, err error, tries int) bool {
	if fault.Of(err) != fault.Later || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	switch reason := fault.Reason(err, ""); {
	case reason == access.ReasonMoving || reason == peers.ReasonMoved || reason == access.ReasonNoSeat:
		return true // no controller has begun with it
	case method != http.MethodGet:
		return false
	case reason == access.ReasonUnreachable:
		return tries < againDialed
	default:
		return slices.Contains([]string{access.ReasonNoLeader, peers.ReasonUnreachable}, reason)
	}
}
