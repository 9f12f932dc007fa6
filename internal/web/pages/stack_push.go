package pages

import (
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

// An uploaded state is stored in two steps: the page shows its changes, and the
// user confirms them. In between it is kept in memory, for the user who uploaded
// it and for a few minutes, so that the file need not be uploaded twice and no
// other file takes its place.

// Bounds of what is kept.
const (
	pushKept  = 10 * time.Minute
	pushesMax = 16
	pushBytes = 128 << 20
)

// keptPushes are uploaded states.
type keptPushes struct {
	mu sync.Mutex
	by map[string]*keptPush
}

type keptPush struct {
	who    access.User
	key    query.Key
	force  bool
	until  time.Time
	size   int
	change command.StateChange

	mu     sync.Mutex // of what follows: the second of two clicks waits for the first
	stored bool
}

// keep returns the token by which a push is found again. The oldest make room.
func (k *keptPushes) keep(p *keptPush, now time.Time) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.by == nil {
		k.by = map[string]*keptPush{}
	}
	token := rand.Text()
	k.by[token] = p
	for {
		oldest, bytes := "", 0
		for t, one := range k.by {
			bytes += one.size
			if t != token && (oldest == "" || one.until.Before(k.by[oldest].until)) {
				oldest = t
			}
		}
		if oldest == "" || len(k.by) <= pushesMax && bytes <= pushBytes && now.Before(k.by[oldest].until) {
			return token
		}
		delete(k.by, oldest)
	}
}

// find returns the state that the visitor uploaded for the stack, by its token.
func (k *keptPushes) find(v *Visit, token string) (*keptPush, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.by[token]
	if p == nil || p.who.Name != v.User.Name || p.who.UID != v.User.UID || p.key != v.Key() || !v.Now.Before(p.until) {
		return nil, fault.New(fault.Missing, "PushForgotten", errors.New("the uploaded state has expired; nothing was stored"))
	}
	return p, nil
}

// pushed is the question whether to store an uploaded state.
type pushed struct {
	Token  string
	Change command.StateChange
	Size   int64
	Force  bool
	Same   bool
	To     string
}

// askPush prepares that question.
func (l *stateList) askPush(v *Visit, token string) {
	p, err := v.Backend.pushes.find(v, token)
	if err != nil {
		l.Problem = problemOf("The state cannot be stored", err)
		return
	}
	d := p.change.Diff
	l.Push = &pushed{
		Token: token, Change: p.change, Size: int64(p.size), Force: p.force, To: stackPath(v.Key(), tabStates, "store"),
		Same: len(d.Gone)+len(d.Added)+len(d.Changed) == 0,
	}
}

// PushState takes a state from a file and leads to the review of its changes.
func PushState(v *Visit) (Done, error) {
	if len(v.File) == 0 {
		return Done{}, fault.New(fault.Invalid, "FileMissing", errors.New("no file was selected, or it is empty"))
	}
	force := v.Form.Get("force") == "yes"
	change, err := v.Person.Stacks.PlanPush(v.Context, v.Key(), v.File, force)
	if err != nil {
		return Done{}, err
	}
	p := &keptPush{who: v.User, key: v.Key(), force: force, until: v.Now.Add(pushKept), size: len(v.File), change: change}
	token := v.Backend.pushes.keep(p, v.Now)
	return Done{To: ui.With(stackPath(v.Key(), tabStates), nil, "push", token) + "#push"}, nil
}

// StoreState stores the uploaded state, if the name of the stack was
// typed. It is stored once, however often the form is sent.
func StoreState(v *Visit) (Done, error) {
	if err := confirmed(v); err != nil {
		return Done{}, err
	}
	p, err := v.Backend.pushes.find(v, v.Form.Get("push"))
	if err != nil {
		return Done{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.stored {
		if err := v.Person.Stacks.WriteState(v.Context, p.change); err != nil {
			return Done{}, err
		}
		p.stored = true
	}
	return Done{To: stackPath(v.Key(), tabStates), Said: "state-pushed"}, nil
}

var _ = says(map[Said]string{
	"state-pushed": "The uploaded state was stored. The next run uses it.",
})
