package origin

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plural"
	"github.com/terrier-iac/terrier/internal/share"
	"github.com/terrier-iac/terrier/internal/source"
)

// Bounds of the work. A repository with many new tags, or a slow one, gives its place to the
// next one after a turn. Servers that never answer hold the places of their namespace alone.
const (
	workers      = 12
	ofNamespace  = 8               // of them, that one namespace has at most
	turnTags     = 20              // that one turn takes
	turnFailures = 3               // tags that fail, after which a turn ends
	turnTime     = 2 * time.Minute // after which a turn takes no further tag
	askedEvery   = 10 * time.Second
	restAsked    = 10 * time.Second // between two checks that webhooks ask for
	restUnread   = 10 * time.Second // between two reads of a record that fail
	mostTold     = 5                // new problems of one check that users are told of one by one
	firstRetry   = 30 * time.Second
	lastRetry    = time.Hour
)

// work is what this process knows of a repository that it checks.
type work struct {
	loaded bool      // the record was read
	said   string    // why it was not; logged once
	tried  time.Time // the last time that it was not
	record record
	busy   bool
	began  time.Time // of the last check
}

// running are the repositories that this process checks.
type running struct {
	places *share.Places[Key]

	mu  sync.Mutex
	all map[Key]*work
}

// Run checks repositories until ctx ends.
func (p *Poller) Run(ctx context.Context) error {
	if err := source.OpenScratch(p.o.Scratch); err != nil {
		return err
	}
	var wait sync.WaitGroup
	defer wait.Wait()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var hints asked
	var read time.Time
	var said string // the last failure, which is logged once
	leads := !p.o.Alone
	for {
		poked := false
		select {
		case <-ctx.Done():
			if p.o.Alone {
				wait.Wait()
				return p.lease.free(context.WithoutCancel(ctx))
			}
			return nil
		case <-p.poked:
			poked = true
		case <-tick.C:
		}
		all, err := p.o.Source.Repositories(ctx)
		if err == nil && p.o.Alone && len(all) > 0 {
			leads, err = p.lease.hold(ctx)
		}
		if err == nil && leads && len(all) > 0 && (poked || p.o.Now().Sub(read) >= askedEvery) {
			read = p.o.Now()
			hints, err = p.asked(ctx)
		}
		if err != nil {
			if text := err.Error(); text != said && ctx.Err() == nil {
				said = text
				p.o.Log.Warn("repositories not checked", "err", err) // tried again with the next tick
			}
			continue
		}
		said = ""
		if !leads {
			all = nil // they are the other replica's
		}
		p.start(ctx, all, hints, &wait)
	}
}

// start begins the checks that are due, as many as there are workers.
func (p *Poller) start(ctx context.Context, all []Repository, hints asked, wait *sync.WaitGroup) {
	p.running.mu.Lock()
	defer p.running.mu.Unlock()
	p.forget(all)
	places, due := p.running.places, map[Key]Repository{}
	for _, r := range p.due(ctx, all, hints) {
		due[r.Key] = r
		places.Wait(r.Namespace, r.Key)
	}
	for {
		// What was due and is not any more keeps its turn.
		key, ok := places.Next(func(k Key) bool { _, is := due[k]; return is })
		if !ok {
			return
		}
		r, w := due[key], p.running.all[key]
		w.busy, w.began = true, p.o.Now()
		wait.Go(func() {
			record := p.check(ctx, r, w.record, hints[r.Key.String()])
			p.running.mu.Lock()
			defer p.running.mu.Unlock()
			w.busy, w.record = false, record
			places.End(r.Namespace)
		})
	}
}

// forget drops repositories that are no longer registered. What is stored of them stays.
func (p *Poller) forget(all []Repository) {
	registered := map[Key]bool{}
	for _, r := range all {
		registered[r.Key] = true
	}
	for k, w := range p.running.all {
		if !registered[k] && !w.busy {
			delete(p.running.all, k)
			p.running.places.Withdraw(k)
			p.o.Counts.Removed(k)
		}
	}
}

// due are the repositories to check now, the one that waits longest first.
func (p *Poller) due(ctx context.Context, all []Repository, hints asked) []Repository {
	now := p.o.Now()
	var due []Repository
	for _, r := range all {
		w := p.running.all[r.Key]
		if w == nil {
			w = &work{}
			p.running.all[r.Key] = w
		}
		if w.busy || r.Suspended {
			continue
		}
		if !w.loaded && !p.load(ctx, r, w, now) {
			continue
		}
		if w.wants(r, hints[r.Key.String()], now) {
			due = append(due, r)
		}
	}
	slices.SortStableFunc(due, func(a, b Repository) int {
		return p.running.all[a.Key].began.Compare(p.running.all[b.Key].began)
	})
	return due
}

// load reads what is known of a repository, and reports whether it could.
func (p *Poller) load(ctx context.Context, r Repository, w *work, now time.Time) bool {
	if w.said != "" && now.Sub(w.tried) < restUnread {
		return false
	}
	record, err := p.store.read(ctx, r.Key)
	if err != nil {
		if text := err.Error(); text != w.said && ctx.Err() == nil {
			p.o.Log.Warn("state of a repository not read", "repository", r.Key.String(), "err", err)
			w.said = text
		}
		w.tried = now
		return false
	}
	w.record, w.loaded, w.said = record, true, ""
	if record.Settings == r.settings() && !record.Checked.IsZero() {
		p.o.Counts.Known(r.Key, record.State)
	}
	return true
}

// wants reports whether a repository is to be checked now. A webhook waits a moment after the
// check before, so that no sender of webhooks makes a load.
func (w *work) wants(r Repository, hint string, now time.Time) bool {
	switch {
	case r.settings() != w.record.Settings, r.Requested != w.record.Requested, !now.Before(w.record.Next):
		return true
	default:
		return hint != "" && hint != w.record.Asked && now.Sub(w.began) >= restAsked
	}
}

// check checks a repository once, and returns the record of it.
func (p *Poller) check(ctx context.Context, r Repository, before record, hint string) record {
	now := before
	now.follow(r)
	if hint == "" {
		hint = now.Asked
	}
	if r.Requested != now.Requested || hint != now.Asked {
		if r.Requested != now.Requested { // the user wants all of it tried again
			now.Known, now.Listed = nil, ""
		}
		now.Requested, now.Asked = r.Requested, hint
		// A webhook that comes from now on is one more, since the tags are listed after this.
		if err := p.store.write(ctx, r.Key, now); err != nil {
			p.o.Log.Warn("state of a repository not kept", "repository", r.Key.String(), "err", err)
		}
	}
	known := map[string]bool{}
	for _, problem := range now.Problems {
		known[problem.Text] = true
	}
	all := now.Contradictions()
	err := p.turn(ctx, r, &now)
	if ctx.Err() != nil {
		return before // the program ends, which says nothing of the repository
	}
	p.ended(r, &now, err)
	p.o.Counts.Checked(r.Key, now.State)
	p.complain(r, now, known, all)
	if err := p.store.write(ctx, r.Key, now); err != nil && ctx.Err() == nil {
		p.o.Log.Warn("state of a repository not kept", "repository", r.Key.String(), "err", err)
	}
	return now
}

// complain tells users of problems that are new: of the first ones by name, so that tags make
// no flood of events.
func (p *Poller) complain(r Repository, now record, known map[string]bool, before int) {
	news := slices.DeleteFunc(slices.Clone(now.Problems), func(problem Problem) bool { return known[problem.Text] })
	for _, problem := range news[:min(len(news), mostTold)] {
		p.tell(r, true, problem.Reason, problem.Text)
	}
	if all := now.Contradictions(); len(news) > mostTold || all > before && all > len(now.Problems) {
		p.tell(r, true, now.Problems[len(now.Problems)-1].Reason, fmt.Sprintf("%s of the repository in all: list the first of them with terrier module repositories %s", plural.Count(all, "problem"), r.Key))
	}
}

// ended writes down how a check ended, and when the next one is.
func (p *Poller) ended(r Repository, now *record, err error) {
	at := p.o.Now().UTC().Truncate(time.Second)
	now.Checked = at
	if err == nil {
		if now.Error != "" {
			p.tell(r, false, "RepositoryChecked", fmt.Sprintf("the tags of %s are listed again", r.URL))
		}
		now.Error, now.Failing, now.Failures = "", time.Time{}, 0
		now.Next = at.Add(jittered(r.interval()))
		if now.Pending > 0 {
			now.Next = at
		}
		return
	}
	text := source.Message(err)
	if text != now.Error {
		p.tell(r, true, fault.Reason(err, source.ReasonGit), text)
	}
	if now.Failing.IsZero() {
		now.Failing = at
	}
	now.Error, now.Failures = text, now.Failures+1
	now.Next = at.Add(jittered(retry(now.Failures, r.interval())))
}

// retry is the pause after so many failures.
func retry(failures int, interval time.Duration) time.Duration {
	return min(firstRetry<<min(failures-1, 10), max(interval, lastRetry))
}

// jittered is a duration that is up to a tenth longer or shorter, so that repositories of
// one server are not all asked at the same time.
func jittered(d time.Duration) time.Duration { return d*9/10 + rand.N(d/5+1) }

func (p *Poller) tell(r Repository, problem bool, reason, message string) {
	if problem {
		p.o.Log.Warn("repository has a problem", "repository", r.Key.String(), "reason", reason, "message", message)
	}
	if r.Tell != nil {
		r.Tell(problem, reason, message)
	}
}
