package identity

import (
	"slices"
	"strings"
	"time"
)

// Key is one key of the issuer, without its secret.
type Key struct {
	ID      string    `json:"id"`
	Created time.Time `json:"created"`
	From    time.Time `json:"from"` // tokens are signed with it from then on, until the next key's time
}

// Times are the times of the keys of an issuer. The zero value has defaults.
type Times struct {
	Period time.Duration // how long tokens are signed with one key
	Before time.Duration // how long a key is published before the first token is signed with it
	After  time.Duration // how long it is published after the last one
}

// Defaults of Times. Verifiers keep a copy of the keys: that of the most patient one, a file
// in a bucket that an operator renews each week, has the next key in time. No token is valid
// for longer than a key is published after it.
const (
	defaultPeriod = 90 * 24 * time.Hour
	defaultBefore = 15 * 24 * time.Hour
	defaultAfter  = 2 * 24 * time.Hour
)

func (t Times) filled() Times {
	if t.Period <= 0 {
		t.Period = defaultPeriod
	}
	if t.Before <= 0 {
		t.Before = defaultBefore
	}
	if t.After <= 0 {
		t.After = defaultAfter
	}
	return t
}

// Rotation is what has to be done with the keys of an issuer now.
type Rotation struct {
	Active *Key      // tokens are signed with this one; nil if there is none yet
	Make   *Key      // this one has to be made, with an ID; nil for none
	Drop   []Key     // no valid token is signed with these any more
	Next   time.Time // when something else has to be done
}

// Rotate decides about the keys of an issuer. The answer follows from the keys and the time
// alone, so all controllers of an installation come to the same one. Where two of them made
// a key at once, both are published, and the one with the smaller ID signs.
func Rotate(keys []Key, now time.Time, t Times) Rotation {
	t = t.filled()
	keys = slices.Clone(keys)
	slices.SortFunc(keys, func(a, b Key) int {
		if c := a.From.Compare(b.From); c != 0 {
			return c
		}
		return strings.Compare(b.ID, a.ID)
	})
	active := -1
	for i, k := range keys {
		if !k.From.After(now) {
			active = i
		}
	}
	if active < 0 {
		if len(keys) == 0 {
			first := Key{Created: now, From: now}
			return Rotation{Make: &first, Next: now.Add(t.Period - t.Before)}
		}
		// A clock that was set back: the key that is used first is the only one there is.
		return Rotation{Active: &keys[0], Next: keys[0].From}
	}
	r := Rotation{Active: &keys[active]}
	next := keys[active].From.Add(t.Period) // the time of the next key
	if active == len(keys)-1 {
		if due := next.Add(-t.Before); now.Before(due) {
			r.Next = due
		} else {
			// Where the controller was off for long, the next key is published as long before its
			// first token as any other.
			from := next
			if earliest := now.Add(t.Before); from.Before(earliest) {
				from = earliest
			}
			r.Make, r.Next = &Key{Created: now, From: from}, from
		}
	} else {
		r.Next = keys[active+1].From
	}
	for i, k := range keys[:active] {
		last := keys[i+1].From // no token is signed with it from then on
		if end := last.Add(t.After); now.Before(end) {
			if end.Before(r.Next) {
				r.Next = end
			}
		} else {
			r.Drop = append(r.Drop, k)
		}
	}
	return r
}
