package identity_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/terrier-iac/terrier/internal/identity"
)

var times = identity.Times{Period: 90 * time.Hour, Before: 15 * time.Hour, After: 2 * time.Hour}

const life = time.Hour // of a token

// However long the controllers are off, and whenever they look: no token is signed with a key
// that was not published for long enough before, the first one excepted, and no key goes
// while a token of it is valid.
func TestNoValidTokenIsEverUnverifiable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		var keys []identity.Key
		valid := map[string]time.Time{} // by key: when its last token expires
		made := 0
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 200*60).Draw(t, "minutes")) * time.Minute)
			r := identity.Rotate(keys, now, times)
			if r.Make != nil {
				if r.Make.From.Before(now.Add(times.Before)) && made > 0 {
					t.Fatalf("a key is made at %s and signs from %s on", now, r.Make.From)
				}
				made++
				k := *r.Make
				k.ID = fmt.Sprint(made)
				keys = append(keys, k)
			}
			for _, d := range r.Drop {
				if end := valid[d.ID]; now.Before(end) {
					t.Fatalf("the key %s is dropped at %s, and a token of it is valid until %s", d.ID, now, end)
				}
				keys = slices.DeleteFunc(keys, func(k identity.Key) bool { return k.ID == d.ID })
			}
			if r = identity.Rotate(keys, now, times); r.Active == nil {
				t.Fatalf("no key signs at %s", now)
			}
			valid[r.Active.ID] = now.Add(life)
			if !r.Next.After(now) {
				t.Fatalf("something has to be done at %s, and it is %s", r.Next, now)
			}
			if len(keys) > 4 {
				t.Fatalf("there are %d keys", len(keys))
			}
		}
	})
}

func TestRotation(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	a := identity.Key{ID: "a", Created: start, From: start}
	b := identity.Key{ID: "b", Created: start, From: start.Add(90 * time.Hour)}
	at := func(h int) time.Time { return start.Add(time.Duration(h) * time.Hour) }
	for name, tt := range map[string]struct {
		keys         []identity.Key
		now          time.Time
		active, drop string
		makes        time.Time // when the key signs that is made
		next         time.Time
	}{
		"the first key signs at once":                   {nil, start, "", "", start, at(75)},
		"nothing to do":                                 {[]identity.Key{a}, at(10), "a", "", time.Time{}, at(75)},
		"the next key is published":                     {[]identity.Key{a}, at(75), "a", "", at(90), at(90)},
		"later, it is published as long":                {[]identity.Key{a}, at(89), "a", "", at(104), at(104)},
		"it is not used yet":                            {[]identity.Key{a, b}, at(89), "a", "", time.Time{}, at(90)},
		"it signs, and the former one is published":     {[]identity.Key{b, a}, at(90), "b", "", time.Time{}, at(92)},
		"the former one goes":                           {[]identity.Key{a, b}, at(92), "b", "a", time.Time{}, at(165)},
		"two that were made at once: the smaller signs": {[]identity.Key{{ID: "y", From: start}, {ID: "x", From: start}}, at(1), "x", "", time.Time{}, at(2)},
		"a clock that was set back":                     {[]identity.Key{b}, start, "b", "", time.Time{}, at(90)},
	} {
		r := identity.Rotate(tt.keys, tt.now, times)
		active, drop := "", ""
		var makes time.Time
		if r.Active != nil {
			active = r.Active.ID
		}
		if r.Make != nil {
			makes = r.Make.From
		}
		for _, k := range r.Drop {
			drop += k.ID
		}
		if active != tt.active || drop != tt.drop || !makes.Equal(tt.makes) || !r.Next.Equal(tt.next) {
			t.Errorf("%s: active %q, drops %q, makes %s, next %s; want %q, %q, %s, %s", name, active, drop, makes, r.Next, tt.active, tt.drop, tt.makes, tt.next)
		}
	}
}
