package access

import (
	"hash/fnv"
	"sync"
	"time"
)

// sight is what is known of what one person may list.
type sight struct {
	mu    sync.Mutex
	all   bool
	until time.Time // what is near need not be asked about

	// Of each namespace that there was when it was looked at last.
	answers map[string]verdict
	unasked int

	in      map[string]bool // those that may be listed; never written to once it was given away
	old     *round
	near    *round
	far     *round
	stale   int       // those that may no longer be believed to be in it
	expires time.Time // in; zero if it is to be made anew
}

// verdict is one answer; the zero verdict is none. There are many of them.
type verdict struct {
	asked   int64 // when, in nanoseconds
	allowed bool
}

func (v verdict) known() bool { return v.asked != 0 }

func (v verdict) at() time.Time { return time.Unix(0, v.asked) }

func (of *sight) fresh(now time.Time) bool {
	of.mu.Lock()
	defer of.mu.Unlock()
	return now.Before(of.until)
}

func (of *sight) atNear() *round {
	of.mu.Lock()
	defer of.mu.Unlock()
	return of.near
}

func (of *sight) atFar() *round {
	of.mu.Lock()
	defer of.mu.Unlock()
	return of.far
}

func (of *sight) seesAll(until time.Time) {
	of.mu.Lock()
	defer of.mu.Unlock()
	of.all, of.until = true, until
	of.answers, of.unasked, of.in, of.expires = nil, 0, nil, time.Time{} // they would be old by the time that they are needed
}

// sort says what has to be asked about the namespaces that there are now, and
// forgets the others. Its caller holds of.
func (of *sight) sort(u User, namespaces []string, likely map[string]time.Time, now time.Time) (near, far, old []string) {
	answers := make(map[string]verdict, len(namespaces))
	of.all, of.unasked = false, 0
	for _, namespace := range namespaces {
		v := of.answers[namespace]
		answers[namespace] = v
		if !v.known() {
			of.unasked++
		}
		bound, isLikely := likely[namespace]
		switch {
		case v.allowed, isLikely && (!v.known() || v.at().Before(bound.Add(settles))):
			near = append(near, namespace)
		case !v.known():
			far = append(far, namespace)
		case !now.Before(v.at().Add(refusalAge(u, namespace))):
			old = append(old, namespace)
		}
	}
	of.answers, of.expires = answers, time.Time{}
	return near, far, old
}

// heard takes in an answer. One that was asked for before another that is known
// already is no news, and so is one about a namespace that has gone.
func (of *sight) heard(namespace string, v verdict) {
	of.mu.Lock()
	defer of.mu.Unlock()
	was, there := of.answers[namespace]
	if !there || v.asked < was.asked {
		return
	}
	if !was.known() {
		of.unasked--
	}
	of.answers[namespace] = v
	if v.allowed || was.allowed {
		of.expires = time.Time{}
	}
}

// scope is what is known now. A yes that could not be asked about again for
// long is none.
func (of *sight) scope(now time.Time) Scope {
	of.mu.Lock()
	defer of.mu.Unlock()
	if of.all {
		return Everything
	}
	if !now.Before(of.expires) {
		of.in, of.stale, of.expires = map[string]bool{}, 0, now.Add(yesShown)
		for namespace, v := range of.answers {
			ends := v.at().Add(yesShown)
			switch {
			case !v.allowed:
			case !now.Before(ends):
				of.stale++
			default:
				of.in[namespace] = true
				if ends.Before(of.expires) {
					of.expires = ends
				}
			}
		}
	}
	return Scope{In: of.in, Unasked: of.unasked + of.stale}
}

// refusalAge spreads the questions out, so that a thousand refusals are not
// asked about anew at the same moment.
func refusalAge(u User, namespace string) time.Duration {
	h := fnv.New32a()
	h.Write([]byte(u.Name + "\x00" + namespace))
	const half = refusalsKept / 2
	return half + time.Duration(h.Sum32()%uint32(half/time.Millisecond))*time.Millisecond
}
