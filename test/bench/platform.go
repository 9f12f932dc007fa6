package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/testkit"
)

const (
	starts = 3
	rest   = 30 * time.Second
)

// platform measures `terrier up`, started several times on new directories.
func (b *bench) platform(ctx context.Context, out io.Writer) error {
	f := newFacts(out, fmt.Sprintf("terrier up, started %d times", starts))
	var up, first []time.Duration
	for i := range starts {
		p, err := testkit.NewPlatform(testkit.PlatformOptions{Dir: filepath.Join(b.scratch, fmt.Sprint("up-", i))})
		if err != nil {
			return err
		}
		took, err := firstStack(ctx, p)
		if err == nil {
			up, first = append(up, p.Started), append(first, p.Started+took)
			if i == starts-1 {
				err = idle(ctx, f, p.PID())
			}
		}
		if err := errors.Join(err, p.Close()); err != nil {
			return err
		}
	}
	f.fact("to ready", each(up), "4 s")
	f.fact("to the first ready stack", each(first), "10 s")
	return f.err
}

// firstStack says how long the first stack takes to be ready.
func firstStack(ctx context.Context, p *testkit.Platform) (time.Duration, error) {
	c, err := connect(p.Kubeconfig)
	if err != nil {
		return 0, err
	}
	s, err := inline("default", "first", builtin)
	if err != nil {
		return 0, err
	}
	return built(ctx, c, s)
}

// idle prints what a process holds in memory once it has nothing to do.
func idle(ctx context.Context, f *facts, pid int) error {
	if err := sleep(ctx, rest); err != nil {
		return err
	}
	held, err := rssOf(pid)
	if err != nil {
		return err
	}
	f.fact(fmt.Sprintf("memory with one stack after %s at rest", rest), mib(held), "")
	return nil
}

func each(all []time.Duration) string {
	var parts []string
	for _, d := range all {
		parts = append(parts, seconds(d))
	}
	return strings.Join(parts, ", ")
}
