package app

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// joinEvery is how often the board asks for a kind that the cluster did not have.
const joinEvery = 15 * time.Second

// keepBoard has the board follow the controllers' cache, and then
// read from the records how long drift checks took before this process started.
func keepBoard(mgr ctrl.Manager, kinds query.Kinds, board *query.Board, records *query.Blobs, log *slog.Logger) error {
	return mgr.Add(kube.Everywhere(func(ctx context.Context) error {
		f := &feeder{stacks: mgr.GetCache(), kinds: kinds, board: board, log: log}
		missing, err := f.begin(ctx)
		if err != nil {
			return errors.Join(err, f.stop())
		}
		if err := board.Measure(ctx, records); err != nil && ctx.Err() == nil {
			log.Warn("run times not read", "err", err) // they are measured again, run by run
		}
		again := time.NewTicker(joinEvery)
		defer again.Stop()
		f.join(ctx, missing, again.C)
		<-ctx.Done()
		return f.stop()
	}))
}

// feeder passes every stack of every kind in a cache to the board, and every change from
// then on.
type feeder struct {
	stacks cache.Cache
	kinds  query.Kinds
	board  *query.Board
	log    *slog.Logger
	stops  []func() error
}

func (f *feeder) stop() error {
	var errs []error
	for _, s := range f.stops {
		errs = append(errs, s())
	}
	return errors.Join(errs...)
}

// begin returns once the board knows all stacks. A kind that the cluster does not have is
// missing: the others are shown.
func (f *feeder) begin(ctx context.Context) (missing []dialect.Dialect, err error) {
	var synced []toolscache.InformerSynced
	for _, d := range f.kinds.All() {
		has, err := f.follow(ctx, d)
		switch {
		case meta.IsNoMatchError(err):
			f.log.Warn("kind of stack not installed, pages and lists leave it out until it is", "kind", dialect.KindOf(d), "err", err)
			missing = append(missing, d)
		case err != nil:
			return nil, err
		default:
			synced = append(synced, has)
		}
	}
	if toolscache.WaitForCacheSync(ctx.Done(), synced...) {
		f.board.Synced()
	}
	return missing, nil
}

// join has the board follow each kind that is missing once the cluster has it, until none is
// missing or ctx ends. It asks again with each tick.
func (f *feeder) join(ctx context.Context, missing []dialect.Dialect, again <-chan time.Time) {
	for len(missing) > 0 {
		select {
		case <-ctx.Done():
			return
		case <-again:
		}
		missing = slices.DeleteFunc(missing, func(d dialect.Dialect) bool {
			_, err := f.follow(ctx, d)
			switch {
			case err == nil:
				f.log.Info("kind of stack installed, pages and lists have it from now on", "kind", dialect.KindOf(d))
			case !meta.IsNoMatchError(err) && ctx.Err() == nil:
				f.log.Warn("kind of stack not followed yet, pages and lists leave it out", "kind", dialect.KindOf(d), "err", err)
			}
			return err == nil
		})
	}
}

// follow has the board follow one kind.
func (f *feeder) follow(ctx context.Context, d dialect.Dialect) (synced toolscache.InformerSynced, err error) {
	informer, err := f.stacks.GetInformer(ctx, d.New(), cache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	fed, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { set(f.board, o) },
		UpdateFunc: func(_, o any) { set(f.board, o) },
		DeleteFunc: func(o any) { drop(f.board, f.kinds.Word(d), o) },
	})
	if err != nil {
		return nil, err
	}
	f.stops = append(f.stops, func() error { return informer.RemoveEventHandler(fed) })
	return fed.HasSynced, nil
}

func set(board *query.Board, o any) {
	if s, ok := o.(client.Object); ok {
		board.Set(s)
	}
}

// drop also handles the tombstone of a cache that missed the deletion and found it
// when it listed again: only the name in it is certain.
func drop(board *query.Board, kind string, o any) {
	key, err := toolscache.DeletionHandlingMetaNamespaceKeyFunc(o)
	if err != nil {
		return // neither an object nor a tombstone: informers send nothing else
	}
	namespace, name, err := toolscache.SplitMetaNamespaceKey(key)
	if err == nil {
		board.Drop(query.Key{Namespace: namespace, Name: name, Kind: kind})
	}
}

// timedRuns tells of the runs that ended.
type timedRuns struct {
	fencedRuns
	ended func(runner.Report)
}

// Forget implements runner.Runner. It is called once for each run that
// ended, after everything else about it was recorded.
func (t timedRuns) Forget(id, run string) error {
	if r, err := t.Current(id); err == nil && r != nil && r.ID == run {
		t.ended(*r)
	}
	return t.fencedRuns.Forget(id, run)
}

// counting counts a run that ended: in the figures, and for how long the runs of its stack
// take.
func counting(board *query.Board, figures *query.Figures) func(runner.Report) {
	return func(r runner.Report) {
		figures.Ran(r)
		if r.Outcome == stack.Succeeded {
			board.Ran(r.Stack, r.Kind, r.Finished.Sub(r.Started))
		}
	}
}

// figuresEvery is how often the figures of runs are saved: a crash loses no more.
const figuresEvery = time.Minute

// figuresEnd bounds the last save when the process ends.
const figuresEnd = 5 * time.Second

// keepFigures reads the figures of runs from the records, and saves them from then on.
func keepFigures(figures *query.Figures, board *query.Board, records query.FigureStore, log *slog.Logger) manager.RunnableFunc {
	return func(ctx context.Context) error {
		if err := figures.Load(ctx, records); err != nil && ctx.Err() == nil {
			log.Warn("figures of runs not read", "err", err) // the charts begin again
		}
		tick := time.NewTicker(figuresEvery)
		defer tick.Stop()
		save := func(ctx context.Context) {
			figures.Sample()
			if err := figures.Save(ctx, records); err != nil {
				log.Warn("figures of runs not saved", "err", err) // they are saved with the next ones
			}
		}
		select {
		case <-board.Full():
			save(ctx)
		case <-ctx.Done():
		}
		for {
			select {
			case <-tick.C:
				save(ctx)
			case <-ctx.Done():
				end, cancel := context.WithTimeout(context.WithoutCancel(ctx), figuresEnd)
				defer cancel()
				save(end)
				return nil
			}
		}
	}
}
