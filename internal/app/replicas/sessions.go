package replicas

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/shard"
)

// endedSession is a session of a browser that a user ended.
type endedSession struct {
	ID    string    `json:"id"`
	Until time.Time `json:"until"`
}

// tellLimit bounds how long the end of a session waits for other replicas.
const tellLimit = 3 * time.Second

// SessionEnded tells all other replicas that a session ended. One that does not hear it
// reads it from the records within a minute.
func (r *Replicas) SessionEnded(ctx context.Context, id string, until time.Time) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellLimit)
	defer cancel()
	me := r.Members.Me().ID
	var calls sync.WaitGroup
	for _, m := range r.Members.Members() {
		if m.ID == me {
			continue
		}
		calls.Go(func() { r.tell(ctx, m, endedSession{id, until}) })
	}
	calls.Wait()
}

func (r *Replicas) tell(ctx context.Context, m shard.Member, ended endedSession) {
	if err := r.Peers.Call(ctx, m, callEnded, ended, nil); err != nil {
		r.Log.Warn("end of a session not told", "replica", m.ID, "err", err)
	}
}

// OnSessionEnded calls end for each session that another replica says has ended.
func (r *Replicas) OnSessionEnded(end func(ctx context.Context, id string, until time.Time) error) {
	r.Peers.Handle(callEnded, func(ctx context.Context, in json.RawMessage) (any, error) {
		var ended endedSession
		if err := json.Unmarshal(in, &ended); err != nil {
			return nil, fmt.Errorf("reading the end of a session: %w", err)
		}
		return nil, end(ctx, ended.ID, ended.Until)
	})
}
