package access

import (
	"hash/fnv"
	"sync"
	"time"
)

// answers are what the cluster said about what one user may list.
type answers struct {
	mu    sync.Mutex
	all   bool
	until time.Time // until then no right is asked for again

	// Of each namespace that existed when the user asked last.
	of      map[string]answer
	unasked int

	in      map[string]bool // those that the user may list; not changed any more once it was returned
	near    *round          // each nil unless it goes on
	far     *round
	old     *round
	stale   int       // namespaces whose yes has expired
	expires time.Time // of in; zero if it has to be computed again
}

// answer is what the cluster said about one namespace; the zero answer is none.
// There are many of them.
type answer struct {
	asked   int64 // when, in nanoseconds
	allowed bool
}

func (v answer) known() bool { return v.asked != 0 }

func (v answer) at() time.Time { return time.Unix(0, v.asked) }

// current reports whether no right has to be asked for again, or the questions go on
// that ask: a caller that looks meanwhile does not ask once more for all namespaces.
func (of *answers) current(now time.Time) bool {
	of.mu.Lock()
	defer of.mu.Unlock()
	return now.Before(of.until) || of.near != nil
}

func (of *answers) atNear() *round {
	of.mu.Lock()
	defer of.mu.Unlock()
	return of.near
}

func (of *answers) atFar() *round {
	of.mu.Lock()
	defer of.mu.Unlock()
	return of.far
}

// size is how many answers there may be.
func (of *answers) size() int {
	of.mu.Lock()
	defer of.mu.Unlock()
	return max(1, len(of.of))
}

func (of *answers) seesAll(until time.Time) {
	of.mu.Lock()
	defer of.mu.Unlock()
	of.all, of.until = true, until
	of.of, of.unasked, of.in, of.expires = nil, 0, nil, time.Time{} // they would have expired by the time that they are needed
}

// sort says which questions have to be asked about the namespaces that exist now,
// and drops the answers about others. Its caller holds of.mu.
func (of *answers) sort(u User, namespaces []string, likely map[string]time.Time, now time.Time) (near, far, old []string) {
	kept := make(map[string]answer, len(namespaces))
	of.all, of.unasked = false, 0
	for _, namespace := range namespaces {
		v := of.of[namespace]
		kept[namespace] = v
		if !v.known() {
			of.unasked++
		}
		bound, isLikely := likely[namespace]
		switch {
		case v.allowed, isLikely && (!v.known() || v.at().Before(bound.Add(bindingDelay))):
			near = append(near, namespace)
		case !v.known():
			far = append(far, namespace)
		case !now.Before(v.at().Add(refusalAge(u, namespace))):
			old = append(old, namespace)
		}
	}
	of.of, of.expires = kept, time.Time{}
	return near, far, old
}

// record keeps an answer, unless a newer one is known or the namespace is gone.
func (of *answers) record(namespace string, v answer) {
	of.mu.Lock()
	defer of.mu.Unlock()
	was, exists := of.of[namespace]
	if !exists || v.asked < was.asked {
		return
	}
	if !was.known() {
		of.unasked--
	}
	of.of[namespace] = v
	if v.allowed || was.allowed {
		of.expires = time.Time{}
	}
}

// scope is what is known now. A yes counts only until it has to be asked for
// again.
func (of *answers) scope(now time.Time) Scope {
	of.mu.Lock()
	defer of.mu.Unlock()
	if of.all {
		return Scope{All: true}
	}
	if !now.Before(of.expires) {
		of.in, of.stale, of.expires = map[string]bool{}, 0, now.Add(yesTTL)
		for namespace, v := range of.of {
			ends := v.at().Add(yesTTL)
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
// asked for again at the same moment.
func refusalAge(u User, namespace string) time.Duration {
	h := fnv.New32a()
	h.Write([]byte(u.Name + "\x00" + namespace))
	const half = refusalTTL / 2
	return half + time.Duration(h.Sum32()%uint32(half/time.Millisecond))*time.Millisecond
}
