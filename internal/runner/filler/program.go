package filler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/sandbox"
)

// Argument is the one argument of terrier-runner that makes it a filler.
const Argument = "providers"

// The environment of a filler. All other variables are those of the engine.
const (
	EnvDir   = "TERRIER_PROVIDERS_DIR"   // the cache
	EnvLock  = "TERRIER_PROVIDERS_LOCK"  // the lock file
	EnvEvery = "TERRIER_PROVIDERS_EVERY" // between two rounds, as 1h; one round if it is empty
)

// Program is the main function of a filler, but for sandbox.Main. It returns the exit code.
func Program(log io.Writer) int {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	o, err := fromEnvironment(ctx, log)
	if err == nil {
		err = Run(ctx, o)
	}
	if err != nil {
		fmt.Fprintln(log, "terrier-runner:", err)
		return 1
	}
	return 0
}

func fromEnvironment(ctx context.Context, log io.Writer) (Options, error) {
	o := Options{Dir: os.Getenv(EnvDir), Lock: os.Getenv(EnvLock), Log: slog.New(slog.NewTextHandler(log, nil))}
	if o.Dir == "" || o.Lock == "" {
		return o, errors.New(EnvDir + " and " + EnvLock + " are not set: they name the cache of providers and its lock file")
	}
	if every := os.Getenv(EnvEvery); every != "" {
		var err error
		if o.Every, err = time.ParseDuration(every); err != nil || o.Every <= 0 {
			return o, fmt.Errorf("%s is %q, want a time such as 1h", EnvEvery, every)
		}
	}
	o.Environ = slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "TERRIER_") })
	self, err := os.Executable()
	if err != nil {
		return o, err
	}
	find := &engine.Finder{Run: sandbox.Output, Beside: filepath.Dir(self), Path: os.Getenv("PATH")}
	found, err := find.Named(ctx, "")
	o.Engine = found.Path
	return o, err
}
