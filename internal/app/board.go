package app

import (
	"context"
	"errors"
	"log/slog"
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

// keepBoard has the board follow the controllers' cache, and then
// read from the records how long drift checks took before this process started.
func keepBoard(mgr ctrl.Manager, kinds query.Kinds, board *query.Board, records *query.Blobs, log *slog.Logger) error {
	return mgr.Add(kube.Everywhere(func(ctx context.Context) error {
		stop, err := feed(ctx, mgr.GetCache(), kinds, board, log)
		if err != nil {
			return err
		}
		if err := board.Measure(ctx, records); err != nil && ctx.Err() == nil {
			log.Warn("run times not read", "err", err) // they are measured again, run by run
		}
		<-ctx.Done()
		return stop()
	}))
}

// feed passes every stack of every kind in a cache to the board, and every change from then on.
// It returns once the board knows all of them. A kind that the cluster does not have is
// left out until the next start: the others are shown.
func feed(ctx context.Context, stacks cache.Cache, kinds query.Kinds, board *query.Board, log *slog.Logger) (stop func() error, err error) {
	var stops []func() error
	stop = func() error {
		var errs []error
		for _, s := range stops {
			errs = append(errs, s())
		}
		return errors.Join(errs...)
	}
	var synced []toolscache.InformerSynced
	for _, d := range kinds.All() {
		informer, err := stacks.GetInformer(ctx, d.New())
		if meta.IsNoMatchError(err) {
			log.Warn("kind of stack not installed, pages and lists leave it out until the next start", "kind", dialect.KindOf(d), "err", err)
			continue
		}
		if err != nil {
			return nil, errors.Join(err, stop())
		}
		fed, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { set(board, o) },
			UpdateFunc: func(_, o any) { set(board, o) },
			DeleteFunc: func(o any) { drop(board, kinds.Word(d), o) },
		})
		if err != nil {
			return nil, errors.Join(err, stop())
		}
		stops = append(stops, func() error { return informer.RemoveEventHandler(fed) })
		synced = append(synced, fed.HasSynced)
	}
	if toolscache.WaitForCacheSync(ctx.Done(), synced...) {
		board.Synced()
	}
	return stop, nil
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
