package audit

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
)

// How many lines of a sort one namespace may have within an hour. What Terrier does by its own rules
// again and again, as reading thousands of secrets, is summed up beyond that, and so is what one user
// does again and again with one object. What decides what becomes of resources, what became of them,
// and whatever is deleted or revoked have each a line of its own.
const (
	mostOfObjects = 1000  // about objects that are read or renewed at intervals
	mostOfRuns    = 10000 // about runs and plans
	mostOfActs    = 100   // of one user, with one object
)

// actsMost is how many different acts of users there are within an hour before further ones are
// recorded without being counted: memory is bounded, and no act is lost.
const actsMost = 50000

// limit is how many lines of a sort are recorded one by one; 0 if all are.
func (s sort) limit() int {
	if s.act {
		return mostOfActs
	}
	switch s.what {
	case SecretRead, SecretRenewed:
		if !s.runs {
			return mostOfObjects
		}
		return mostOfRuns
	case Planned, PlanFailed, Recovered, DriftFound, DriftResolved, PlanHeld, PlanRefused:
		return mostOfRuns
	default:
		return 0
	}
}

// sumEvery is after how many lines that are not recorded one by one their number is: a crash loses
// no larger one.
const sumEvery = 1000

// objectsSummed is how many different objects a sum tells apart.
const objectsSummed = 1000

// quota counts the lines of an hour. What it counts is final once end is called.
type quota struct {
	hour   time.Time
	counts map[sort]count
	before map[sort]count // as they were before; zero for what was not there
	last   *quota         // of the hour before
}

// sort is what alike lines have in common.
type sort struct {
	what      What
	namespace string
	runs      bool // about runs

	act bool   // of a user
	who string // the user; empty if not known, whatever name the object claims
	of  Object // of an act, without its UID: an object that is created again is the same one
}

// count is how many lines of a sort there were in an hour.
type count struct {
	recorded int
	told     bool // that further ones are summed up
	more     int  // since the last sum
	first    time.Time
	last     time.Time
	objects  map[string]bool
}

func newQuota() quota { return quota{counts: map[sort]count{}, before: map[sort]count{}} }

// sortOf is the sort of an entry that may be summed up.
func sortOf(e Entry) (s sort, ok bool) {
	if e.What.repeats() {
		of := e.Object
		of.UID = ""
		return sort{what: e.What, namespace: of.Namespace, act: true, who: e.Who, of: of}, true
	}
	s = sort{what: e.What, namespace: e.Object.Namespace, runs: e.Run != ""}
	return s, s.limit() > 0 && e.Via == ViaController && e.Who == "" && e.Object.Namespace != ""
}

// read counts an entry that the log has.
func (q *quota) read(e Entry) {
	q.turn(e.At)
	q.end(true)
	s, ok := sortOf(e)
	begins := e.What == SummedUp && e.Details["until"] != ""
	if begins {
		e.What = What(e.Details["what"])
		if s, _ = sortOf(e); !s.act {
			s = sort{what: e.What, namespace: e.Object.Namespace, runs: e.Details["of"] == "runs"}
		}
	} else if !ok {
		return
	}
	if q.full(s) {
		return
	}
	c := q.counts[s]
	if c.recorded++; begins {
		c.recorded, c.told = s.limit(), true
	}
	q.counts[s] = c
}

// take counts an entry at a time. Recorded is false if it is only counted; notes are recorded
// in its place.
func (q *quota) take(e Entry, at time.Time) (recorded bool, notes []Entry) {
	s, ok := sortOf(e)
	if !ok || q.full(s) {
		return true, nil
	}
	c := q.of(s)
	if c.recorded < s.limit() {
		c.recorded++
		q.counts[s] = c
		return true, nil
	}
	if !c.told {
		c.told = true
		from := "from this namespace"
		switch {
		case s.act && s.of == (Object{}):
			from = "by this user"
		case s.act:
			from = "by this user about this object"
		}
		notes = append(notes, summed(s, fmt.Sprintf("there are %d entries of this sort %s within the hour: further ones are counted, and not recorded one by one", s.limit(), from),
			map[string]string{"until": q.hour.Add(time.Hour).Format(time.RFC3339)}))
	}
	if c.more == 0 {
		c.first, c.objects = at, nil
	}
	c.more, c.last = c.more+1, at
	if id := cmp.Or(e.Object.UID, e.Object.Name); !s.act && len(c.objects) < objectsSummed && !c.objects[id] {
		known := map[string]bool{id: true} // the map before is that of a batch that may not be written
		maps.Copy(known, c.objects)
		c.objects = known
	}
	if c.more == sumEvery {
		notes = append(notes, c.sum(s))
		c.more = 0
	}
	q.counts[s] = c
	return false, notes
}

// full reports whether there is no room to count acts of a sort that was not counted yet.
func (q *quota) full(s sort) bool {
	_, counted := q.counts[s]
	return s.act && !counted && len(q.counts) >= actsMost
}

// of returns the count of a sort, and remembers it as it was.
func (q *quota) of(s sort) count {
	c := q.counts[s]
	if _, kept := q.before[s]; !kept {
		q.before[s] = c
	}
	return c
}

// turn begins to count another hour, if it is another one.
func (q *quota) turn(now time.Time) {
	if hour := now.Truncate(time.Hour); !hour.Equal(q.hour) {
		last := *q
		*q = newQuota()
		q.hour, q.last = hour, &last
	}
}

// end makes what was counted final, or takes it back: the batch was not written.
func (q *quota) end(written bool) {
	if !written && q.last != nil {
		*q = *q.last
	}
	if !written {
		maps.Copy(q.counts, q.before)
	}
	q.last = nil
	clear(q.before)
}

// sums are the entries about what was counted and not recorded: of hours that are over, or of all.
func (q *quota) sums(now time.Time, all bool) (notes []Entry) {
	if !all && now.Truncate(time.Hour).Equal(q.hour) {
		return nil
	}
	var sorts []sort
	for s, c := range q.counts {
		if c.more > 0 {
			sorts = append(sorts, s)
		}
	}
	slices.SortFunc(sorts, func(a, b sort) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.what, b.what), cmp.Compare(a.who, b.who), cmp.Compare(a.of.Kind, b.of.Kind), cmp.Compare(a.of.Name, b.of.Name))
	})
	for _, s := range sorts {
		c := q.of(s)
		notes = append(notes, c.sum(s))
		c.more = 0
		q.counts[s] = c
	}
	return notes
}

// owes reports whether there are sums.
func (q *quota) owes(now time.Time, all bool) bool {
	for _, c := range q.counts {
		if c.more > 0 && (all || !now.Truncate(time.Hour).Equal(q.hour)) {
			return true
		}
	}
	return false
}

// sum is the entry about lines that were counted and not recorded.
func (c count) sum(s sort) Entry {
	details := map[string]string{"count": strconv.Itoa(c.more), "first": c.first.UTC().Format(time.RFC3339), "last": c.last.UTC().Format(time.RFC3339)}
	if !s.act {
		details["objects"] = strconv.Itoa(len(c.objects))
		if len(c.objects) == objectsSummed {
			details["objects"] += " or more"
		}
	}
	return summed(s, "further entries of this sort", details)
}

func summed(s sort, why string, details map[string]string) Entry {
	if details["what"] = string(s.what); s.runs {
		details["of"] = "runs"
	}
	if s.act {
		return Entry{What: SummedUp, Via: ViaController, Who: s.who, Why: why, Object: s.of, Details: details}
	}
	return Entry{What: SummedUp, Via: ViaController, Why: why, Object: Object{Kind: "Namespace", Namespace: s.namespace, Name: s.namespace}, Details: details}
}

// count returns the entries of a batch that are recorded, after the sums that are due, and their
// IDs. An entry with one of the IDs that are known is not counted again.
func (q *quota) count(batch []*pendingEntry, known *recent, at time.Time, all bool) (entries []Entry, ids map[string]bool) {
	entries, ids = q.sums(at, all), map[string]bool{}
	q.turn(at)
	for _, d := range batch {
		e := d.entry
		if e.ID != "" && (ids[e.ID] || known.in[e.ID]) {
			continue
		}
		ids[e.ID] = true
		recorded, notes := q.take(e, at)
		if entries = append(entries, notes...); recorded {
			entries = append(entries, e)
		}
	}
	return entries, ids
}

// Sum records how many entries were only counted in hours that are over.
func (j *Log) Sum(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	j.writing.Lock()
	defer j.writing.Unlock()
	if j.file == nil {
		return errClosed
	}
	if !j.quota.owes(j.now(), false) {
		return nil
	}
	return j.write(nil, false)
}
