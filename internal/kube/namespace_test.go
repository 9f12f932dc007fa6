package kube

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A namespace is created again and again under one name, and stacks come and go in it. A record
// of a stack of a former namespace is never one of the namespace that there is, whatever the
// record knows. One of a stack in that namespace is, unless its record says too little.
func TestARecordIsOfOneNamespace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		second := func(least, most int, what string) time.Duration {
			return time.Duration(rapid.IntRange(least, most).Draw(t, what)) * time.Second
		}
		type history struct {
			Namespace
			stack, gone time.Time // when a stack in it was created and deleted
		}
		now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		var all []history
		for i := range rapid.IntRange(1, 4).Draw(t, "namespaces") {
			h := history{Namespace: Namespace{UID: string(rune('a' + i)), Created: now}}
			h.stack = h.Created.Add(second(0, 90, "until the stack is created"))
			h.gone = h.stack.Add(second(0, 90, "until it is deleted"))
			now = h.gone.Add(second(1, 90, "until the next namespace is created"))
			all = append(all, h)
		}
		last := all[len(all)-1].Namespace
		for i, h := range all {
			skew := second(0, int(clockSkew/time.Second)-1, "difference of two clocks")
			existed := h.gone.Add(skew * time.Duration(1-2*rapid.IntRange(0, 1).Draw(t, "behind")))
			later := all[rapid.IntRange(i, len(all)-1).Draw(t, "the namespace when its controller noticed")].Namespace
			current := i == len(all)-1
			for how, tt := range map[string]struct {
				origin  Origin
				existed time.Time
				sure    bool // it is recognised in its namespace
			}{
				"released":                           {OriginOf(h.Namespace, h.stack, existed, true), existed, true},
				"released, two API servers":          {OriginOf(h.Namespace, h.stack.Add(-skew), existed, true), existed, true},
				"released, no right to namespaces":   {OriginOf(Namespace{}, h.stack, existed, true), existed, true},
				"removed by force":                   {OriginOf(later, h.stack, time.Time{}, false), time.Time{}, true},
				"removed by force, nothing there":    {OriginOf(Namespace{}, h.stack, time.Time{}, false), time.Time{}, true},
				"removed by force, known by its run": {OriginOf(later, time.Time{}, existed, false), existed, !existed.Before(h.Created.Add(clockSkew))},
				"removed by force, known by its UID": {OriginOf(later, time.Time{}, time.Time{}, false), time.Time{}, false},
				"released by an earlier release":     {Origin{}, existed, !existed.Before(h.Created.Add(clockSkew))},
				"left in the database":               {OriginOf(later, h.stack, time.Time{}, true), time.Time{}, current},
			} {
				if how == "left in the database" && !current && later.Created.Sub(h.stack) <= clockSkew {
					continue // its object is in the new namespace: its users read it there
				}
				if got := tt.origin.In(last, tt.existed); got && !current || !got && current && tt.sure {
					t.Errorf("%s: In() = %v of a stack of the namespace %d of %d: %+v, existed %s, now %+v", how, got, i+1, len(all), tt.origin, tt.existed, last)
				}
				if tt.origin.In(Namespace{}, tt.existed) {
					t.Errorf("%s: it is of a namespace that does not exist", how)
				}
			}
		}
	})
}
