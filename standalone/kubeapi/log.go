package kubeapi

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"

	_ "github.com/terrier-iac/terrier/standalone/kubeapi/quiet" // must come before the etcd client, see there
)

// routeKubernetesLog sends what Kubernetes logs, and would print on standard
// error, to log. The sink is the process's: with several servers the last wins.
func routeKubernetesLog(log *slog.Logger, calm *atomic.Bool) {
	klog.SetSlogLogger(slog.New(kubernetesLog{log.Handler().WithAttrs([]slog.Attr{slog.String("from", "kubernetes")}), calm}))
}

// kubernetesLog converts Kubernetes' levels. Kubernetes logs no error that an
// operator must act on at once, and while it starts or stops its parts complain about
// each other's absence: those lines are for developers.
type kubernetesLog struct {
	slog.Handler
	calm *atomic.Bool
}

func (l kubernetesLog) level(theirs slog.Level) slog.Level {
	switch {
	case theirs < slog.LevelWarn:
		return slog.LevelDebug - 4
	case l.calm.Load():
		return slog.LevelWarn
	default:
		return slog.LevelDebug
	}
}

func (l kubernetesLog) Enabled(ctx context.Context, theirs slog.Level) bool {
	return l.Handler.Enabled(ctx, l.level(theirs))
}

// Handle asks again, because errors come here without being asked about.
func (l kubernetesLog) Handle(ctx context.Context, r slog.Record) error {
	r.Level = l.level(r.Level)
	if hungUp(r) {
		r.Level = slog.LevelDebug
	}
	if !l.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return l.Handler.Handle(ctx, r)
}

// hungUp reports whether r is about a client that disconnected in the middle of an
// answer, which every client that stops watching does.
func hungUp(r slog.Record) bool {
	gone := false
	r.Attrs(func(a slog.Attr) bool {
		text := a.Value.String()
		gone = strings.Contains(text, "http2: stream closed") || strings.Contains(text, "client disconnected")
		return !gone
	})
	return gone
}

func (l kubernetesLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return kubernetesLog{l.Handler.WithAttrs(attrs), l.calm}
}

func (l kubernetesLog) WithGroup(name string) slog.Handler {
	return kubernetesLog{l.Handler.WithGroup(name), l.calm}
}

// storeLog passes on only what etcd dies of; it calls its every normal end an
// error. Dying while it opens is a panic, which the opener catches; later it
// ends the process, as it must when it can no longer write.
type storeLog struct {
	log     *slog.Logger
	settled atomic.Bool
	last    atomic.Value // what it died of while it opened, a string: a panic has the message alone
}

func newStoreLog(log *slog.Logger) *storeLog { return &storeLog{log: log.With("from", "etcd")} }

func (l *storeLog) logger() *zap.Logger { return zap.New(storeCore{l, nil}, zap.WithFatalHook(l)) }

// OnWrite is called instead of os.Exit.
func (l *storeLog) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	if !l.settled.Load() {
		panic(describe(entry.Message, fields))
	}
	os.Exit(1)
}

// storeCore is the part of storeLog that zap derives loggers from.
type storeCore struct {
	*storeLog
	fields []zapcore.Field
}

func (storeCore) Enabled(level zapcore.Level) bool { return level >= zapcore.DPanicLevel }
func (storeCore) Sync() error                      { return nil }

func (c storeCore) With(fields []zapcore.Field) zapcore.Core {
	return storeCore{c.storeLog, slices.Concat(c.fields, fields)}
}

func (c storeCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if !c.Enabled(entry.Level) {
		return checked
	}
	return checked.AddCore(entry, c)
}

func (c storeCore) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	text := describe(entry.Message, slices.Concat(c.fields, fields))
	if c.settled.Load() {
		c.log.Error("the store failed", "err", text)
	} else {
		c.last.Store(text) // it is the opener's error
	}
	return nil
}

func describe(message string, fields []zapcore.Field) string {
	values := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		f.AddTo(values)
	}
	for _, key := range slices.Sorted(maps.Keys(values.Fields)) {
		message += fmt.Sprintf(", %s: %v", key, values.Fields[key])
	}
	return message
}
