package secretsync

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/terrier-iac/terrier/internal/cache"
)

// pace bounds how often the secrets of one object are read, whatever asks for it: each reading is
// an entry of the audit log, which nothing removes, and programs may change a Secret or an object
// as often as they like. Two readings are let through at once, so that what a user asks for need
// not wait for an interval that has just begun.
type pace struct {
	least time.Duration                      // between a reading and the next but one
	last  cache.Map[types.UID, [2]time.Time] // the last two readings
}

// pacedMost is for how many objects that is known.
const pacedMost = 1 << 14

// next is when the next reading may be; a time that is over if it may be now.
func (c *pace) next(uid types.UID) time.Time {
	last, ok := c.last.Get(uid)
	if !ok {
		return time.Time{}
	}
	return last[0].Add(c.least)
}

// note notes a reading.
func (c *pace) note(uid types.UID, now time.Time) {
	last, _ := c.last.Get(uid)
	c.last.Put(uid, [2]time.Time{last[1], now})
}
