package audit

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// everything is all of a log, the oldest first.
func everything(t interface{ Fatal(...any) }, j *Log) []Entry {
	entries, _, err := j.Since(0, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

// secretOf is the entry of a secret that was read for an object of a namespace.
func secretOf(namespace string, n int) Entry {
	name := fmt.Sprint("s", n)
	return Entry{What: SecretRead, Via: ViaController, Object: Object{Kind: "ExternalSecret", Namespace: namespace, Name: name, UID: name}}
}

// A namespace that has Terrier read thousands of secrets gets a bounded number of lines, which
// say how many there were. Other lines are all there.
func TestANamespaceHasAQuota(t *testing.T) {
	now := time.Date(2026, 11, 28, 9, 0, 0, 0, time.UTC)
	dir := t.TempDir()
	start := func() *Log {
		j, err := Open(dir, Options{Now: func() time.Time { return now }})
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	j := start()
	var batch []*pendingEntry
	for n := range 4 * mostOfObjects {
		batch = append(batch, &pendingEntry{entry: secretOf("apps", n)})
	}
	if err := j.write(batch, false); err != nil {
		t.Fatal(err)
	}
	record(t, j, secretOf("other", 1), Entry{What: Changed, Who: "ann", Via: ViaKubectl, Object: Object{Namespace: "apps", Name: "net"}})
	sums := func() (begun, counted, objects int) {
		t.Helper()
		for _, e := range everything(t, j) {
			if e.What != SummedUp {
				continue
			}
			if e.Object.Namespace != "apps" || e.Details["what"] != "secret-read" || e.Details["of"] != "" {
				t.Errorf("a sum of others: %+v", e)
			}
			if e.Details["until"] != "" {
				begun++
				continue
			}
			n, err := strconv.Atoi(e.Details["count"])
			if err != nil || e.Details["first"] == "" || e.Details["last"] == "" || e.Details["objects"] == "" {
				t.Errorf("a sum says too little: %+v, %v", e, err)
			}
			counted += n
			objects++
		}
		return begun, counted, objects
	}
	if begun, counted, lines := sums(); begun != 1 || counted != 3*sumEvery || lines != 3 {
		t.Errorf("%d lines say that it begins, and %d lines count %d, want one, and 3 that count 3000", begun, lines, counted)
	}
	if all := len(everything(t, j)); all != mostOfObjects+1+3+2 {
		t.Errorf("the audit log has %d lines, want a thousand, the sums and two more", all)
	}
	// The process ends, and the next one goes on within the same hour.
	once := secretOf("apps", 0)
	once.ID = "told twice"
	record(t, j, once, once)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j = start()
	record(t, j, secretOf("apps", 0), secretOf("apps", 1))
	if err := j.Sum(t.Context()); err != nil {
		t.Fatal(err)
	}
	if begun, counted, _ := sums(); begun != 1 || counted != 3*sumEvery+1 {
		t.Errorf("after a restart %d lines say that it begins, and %d are counted", begun, counted)
	}
	now = now.Add(time.Hour)
	if err := j.Sum(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, counted, _ := sums(); counted != 3*sumEvery+3 {
		t.Errorf("once the hour is over %d are counted, want 3003", counted)
	}
	head := j.Head()
	if err := errors.Join(j.Sum(t.Context()), j.Close()); err != nil || j.Head() != head {
		t.Errorf("without anything to say the head is %+v, want %+v: %v", j.Head(), head, err)
	}
	j = start()
	record(t, j, secretOf("apps", 5))
	if last := everything(t, j); last[len(last)-1].What != SecretRead {
		t.Errorf("in the next hour the last line is %+v, want the secret", last[len(last)-1])
	}
	sound(t, dir, j.Head())
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

// What could not be written is not counted, either.
func TestAQuotaOfWhatWasNotWritten(t *testing.T) {
	q := newQuota()
	at := time.Date(2026, 11, 28, 9, 59, 59, 0, time.UTC)
	take := func(n int, written bool) (recorded bool, notes int) {
		for i := range n {
			q.turn(at)
			more, told := q.take(secretOf("apps", i), at)
			q.end(written)
			recorded, notes = more, notes+len(told)
		}
		return recorded, notes
	}
	take(2*mostOfObjects, false)
	if recorded, notes := take(mostOfObjects, true); !recorded || notes != 0 {
		t.Errorf("lines that were not written count: recorded %v, %d notes", recorded, notes)
	}
	take(10, false)
	if recorded, notes := take(1, true); recorded || notes != 1 {
		t.Errorf("the first one beyond the quota: recorded %v, %d notes, want it counted and one note", recorded, notes)
	}
	at = at.Add(time.Second)
	sums := q.sums(at, false)
	q.turn(at)
	q.end(false)
	if again := q.sums(at, false); len(sums) != 1 || len(again) != 1 {
		t.Errorf("%d sums, and %d after they were not written, want one each", len(sums), len(again))
	}
	q.turn(at)
	q.end(true)
	if again := q.sums(at, true); len(again) != 0 {
		t.Errorf("%d sums after they were written, want none", len(again))
	}
}

// What one user does again and again with one object gets a bounded number of lines, which say how
// often it was. What another user does, with another object, or as another act has lines of its own,
// and so has each act that decides what becomes of resources.
func TestAUserHasAQuota(t *testing.T) {
	now := time.Date(2026, 11, 28, 9, 0, 0, 0, time.UTC)
	dir := t.TempDir()
	j, err := Open(dir, Options{Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	act := func(who string, what What, name, uid string) Entry {
		return Entry{What: what, Who: who, Via: ViaKubectl, Object: Object{Kind: "Terraform", Namespace: "apps", Name: name, UID: uid}}
	}
	write := func(n int, of func(n int) Entry) {
		t.Helper()
		var batch []*pendingEntry
		for i := range n {
			batch = append(batch, &pendingEntry{entry: of(i)})
		}
		if err := j.write(batch, false); err != nil {
			t.Fatal(err)
		}
	}
	there := func(of Entry) (lines, counted, begun int) {
		t.Helper()
		for _, e := range everything(t, j) {
			switch {
			case e.Who != of.Who || e.Object.Name != of.Object.Name:
			case e.What == of.What:
				lines++
			case e.What != SummedUp || e.Details["what"] != string(of.What):
			case e.Details["until"] != "":
				begun++
			default:
				n, err := strconv.Atoi(e.Details["count"])
				if err != nil || e.Details["first"] == "" || e.Details["last"] == "" || e.Object.Kind != "Terraform" {
					t.Errorf("a sum says too little: %+v, %v", e, err)
				}
				counted += n
			}
		}
		return lines, counted, begun
	}
	// Names that an object claims, and objects that are created again, are no way around it.
	write(5000, func(n int) Entry {
		e := act("", Changed, "net", fmt.Sprint(n))
		e.Claimed = fmt.Sprint("user", n)
		return e
	})
	write(5000, func(int) Entry { return act("ann", StateRead, "net", "u") })
	write(50, func(int) Entry { return act("bob", StateRead, "net", "u") })
	write(300, func(n int) Entry { return act("ann", StateRead, fmt.Sprint("net", n), "u") })
	for _, what := range []What{Approved, Rejected, WindowOverridden, StateAccepted, UntrackedIgnored, RollbackAsked, DeletionAsked, BreakGlassCommand, StatePushed, TokenCreated} {
		write(300, func(int) Entry { return act("ann", what, "net", "u") })
		if lines, _, begun := there(act("ann", what, "net", "u")); lines != 300 || begun != 0 {
			t.Errorf("of 300 times %s there are %d lines", what, lines)
		}
	}
	for _, who := range []Entry{act("", Changed, "net", ""), act("ann", StateRead, "net", "")} {
		if lines, counted, begun := there(who); lines != mostOfActs || counted != 4*sumEvery || begun != 1 {
			t.Errorf("of 5000 times %s there are %d lines and %d are counted, %d lines say that it begins", who.What, lines, counted, begun)
		}
	}
	if lines, _, _ := there(act("bob", StateRead, "net", "")); lines != 50 {
		t.Errorf("another user has %d lines, want 50", lines)
	}
	for _, n := range []int{0, 150, 299} {
		if lines, _, _ := there(act("ann", StateRead, fmt.Sprint("net", n), "")); lines != 1 {
			t.Fatalf("another object has %d lines, want one", lines)
		}
	}
	// A process that begins within the hour goes on counting.
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if j, err = Open(dir, Options{Now: func() time.Time { return now }}); err != nil {
		t.Fatal(err)
	}
	write(10, func(int) Entry { return act("ann", StateRead, "net", "u") })
	now = now.Add(time.Hour)
	if err := j.Sum(t.Context()); err != nil {
		t.Fatal(err)
	}
	if lines, counted, begun := there(act("ann", StateRead, "net", "")); lines != mostOfActs || counted != 5000-mostOfActs+10 || begun != 1 {
		t.Errorf("after a restart there are %d lines and %d are counted, %d lines say that it begins", lines, counted, begun)
	}
	page, err := j.Read(Query{Who: "ann", ByUsers: true, What: []What{SummedUp}})
	if err != nil || len(page.Items) != 7 {
		t.Errorf("of the acts of ann there are %d sums, %v; want that it begins, one for each of four thousand, the rest, and the rest after the restart", len(page.Items), err)
	}
	sound(t, dir, j.Head())
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

// However many different acts there are, a bounded number is remembered, and the others have lines.
func TestQuotasOfActsAreBounded(t *testing.T) {
	q := newQuota()
	at := time.Date(2026, 11, 28, 9, 0, 0, 0, time.UTC)
	q.turn(at)
	for n := range actsMost + 100 {
		e := Entry{What: Changed, Who: "ann", Object: Object{Namespace: "apps", Name: fmt.Sprint(n)}}
		if recorded, notes := q.take(e, at); !recorded || len(notes) > 0 {
			t.Fatal("an act that was not done before is not recorded")
		}
	}
	q.end(true)
	if len(q.counts) != actsMost || len(q.before) != 0 {
		t.Errorf("%d acts are remembered, want %d", len(q.counts), actsMost)
	}
	last := Entry{What: Changed, Who: "ann", Object: Object{Namespace: "apps", Name: fmt.Sprint(actsMost + 1)}}
	for range 2 * mostOfActs {
		if recorded, _ := q.take(last, at); !recorded {
			t.Fatal("an act that is not counted is not recorded")
		}
	}
	if recorded, _ := q.take(secretOf("apps", 1), at); !recorded || len(q.counts) != actsMost+1 {
		t.Error("lines of machines are not counted any more")
	}
}

// Whatever is recorded, and whenever the process ends or is killed: each line of a decision and of a
// deletion is there, the chain is whole, no namespace has more lines in an hour than its quota and
// its sums, no user has more of one act with one object, and of the others each is there or counted,
// but for those of a process that was killed.
func TestQuotasLoseNothingInSilence(t *testing.T) {
	namespaces := []string{"a", "b"}
	rapid.Check(t, func(rt *rapid.T) {
		dir := t.TempDir()
		now := time.Date(2026, 11, 28, 9, 0, 0, 0, time.UTC)
		var j *Log
		start := func() {
			var err error
			if j, err = Open(dir, Options{Now: func() time.Time { return now }}); err != nil {
				rt.Fatal(err)
			}
		}
		start()
		machine, acts, users, kills := map[string]int{}, map[string]int{}, 0, 0
		for range rapid.IntRange(1, 8).Draw(rt, "steps") {
			switch rapid.SampledFrom([]string{"machine", "machine", "act", "act", "user", "revoked", "time", "end", "kill"}).Draw(rt, "what") {
			case "machine":
				ns := rapid.SampledFrom(namespaces).Draw(rt, "namespace")
				n := rapid.IntRange(1, 1600).Draw(rt, "lines")
				var batch []*pendingEntry
				for i := range n {
					batch = append(batch, &pendingEntry{entry: secretOf(ns, i)})
				}
				if err := j.write(batch, false); err != nil {
					rt.Fatal(err)
				}
				machine[ns] += n
			case "act":
				who := rapid.SampledFrom([]string{"ann", "bob"}).Draw(rt, "who")
				n := rapid.IntRange(1, 1600).Draw(rt, "times")
				var batch []*pendingEntry
				for range n {
					batch = append(batch, &pendingEntry{entry: Entry{What: Changed, Who: who, Via: ViaKubectl, Object: Object{Namespace: "a", Name: "net"}}})
				}
				if err := j.write(batch, false); err != nil {
					rt.Fatal(err)
				}
				acts[who] += n
			case "user", "revoked":
				e := Entry{What: Approved, Who: "ann", Via: ViaKubectl, Object: Object{Namespace: "a"}}
				if rapid.Bool().Draw(rt, "revoked") {
					e = Entry{What: SecretRevoked, Via: ViaController, Object: Object{Namespace: "a"}}
				}
				var batch []*pendingEntry
				for range 40 {
					batch = append(batch, &pendingEntry{entry: e})
				}
				if err := j.write(batch, false); err != nil {
					rt.Fatal(err)
				}
				users += 40
			case "time":
				now = now.Add(time.Duration(rapid.IntRange(1, 90).Draw(rt, "minutes")) * time.Minute)
			case "end":
				if err := j.Close(); err != nil {
					rt.Fatal(err)
				}
				start()
			case "kill":
				kills++
				if err := errors.Join(j.file.Close(), j.lock.Close()); err != nil {
					rt.Fatal(err)
				}
				start()
			}
		}
		if err := j.Close(); err != nil {
			rt.Fatal(err)
		}
		start()
		there, counted, ofUsers, hours, acted := map[string]int{}, map[string]int{}, 0, map[string]int{}, map[string]int{}
		for _, e := range everything(rt, j) {
			switch e.What {
			case SecretRead:
				there[e.Object.Namespace]++
				hours[e.Object.Namespace+e.At.Truncate(time.Hour).String()]++
			case SummedUp:
				if e.Details["until"] == "" {
					n, err := strconv.Atoi(e.Details["count"])
					if err != nil || n > sumEvery {
						rt.Fatalf("a sum of %q: %v", e.Details["count"], err)
					}
					counted[e.Object.Namespace+e.Who] += n
				}
			case Changed:
				there[e.Object.Namespace+e.Who]++
				acted[e.Who+e.At.Truncate(time.Hour).String()]++
			case Approved, SecretRevoked:
				ofUsers++
			}
		}
		if ofUsers != users {
			rt.Fatalf("%d lines of users and revocations are there, want %d", ofUsers, users)
		}
		for hour, n := range hours {
			if n > mostOfObjects {
				rt.Fatalf("%s has %d lines, and may have %d", hour, n, mostOfObjects)
			}
		}
		for hour, n := range acted {
			if n > mostOfActs {
				rt.Fatalf("%s has %d lines, and may have %d", hour, n, mostOfActs)
			}
		}
		for who, n := range acts {
			machine["a"+who] = n
		}
		for ns := range machine {
			if got := there[ns] + counted[ns]; got > machine[ns] || got < machine[ns]-kills*sumEvery || kills == 0 && got != machine[ns] {
				rt.Fatalf("of %d lines of %s %d are there and %d are counted", machine[ns], ns, there[ns], counted[ns])
			}
		}
		if err := j.Close(); err != nil {
			rt.Fatal(err)
		}
		if r, err := Verify(dir); err != nil || r.Bad != nil {
			rt.Fatalf("the chain: %+v, %v", r.Bad, err)
		}
	})
}
