package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"
)

// fault makes calls go wrong. The zero Call, Name and Times mean any call, any
// name, every time.
type fault struct {
	Call       string `json:"call,omitempty"`
	Name       string `json:"name,omitempty"`
	Do         string `json:"do"`
	Delay      string `json:"delay,omitempty"` // for do = delay, as Go writes durations
	Times      int    `json:"times,omitempty"`
	IgnoreStop bool   `json:"ignoreStop,omitempty"` // delay, hold and hang go on when the engine says stop
}

// What a fault can do.
const (
	doDelay       = "delay"        // wait, then work
	doHold        = "hold"         // wait until the world has the fault no longer, then work
	doFail        = "fail"         // an error, and nothing changed
	doHang        = "hang"         // neither work nor answer
	doCrashBefore = "crash-before" // die before the world changes
	doCrashAfter  = "crash-after"  // die after the world changed, before the engine hears of it
)

var errStopped = errors.New("stopped by the engine")

// check refuses what would otherwise silently do nothing.
func (f fault) check() error {
	switch f.Call {
	case "", callCreate, callRead, callUpdate, callDelete, callLookup:
	default:
		return fmt.Errorf("fault: no call is named %q", f.Call)
	}
	switch f.Do {
	case doFail, doHold, doHang, doCrashBefore, doCrashAfter:
		if f.Delay != "" {
			return fmt.Errorf("fault: %q takes no delay", f.Do)
		}
	case doDelay:
		if _, err := time.ParseDuration(f.Delay); err != nil {
			return fmt.Errorf("fault: reading the delay: %w", err)
		}
	default:
		return fmt.Errorf("fault: nothing is named %q; there are delay, hold, fail, hang, crash-before and crash-after", f.Do)
	}
	return nil
}

func (f fault) hits(call, name string) bool {
	return (f.Call == "" || f.Call == call) && (f.Name == "" || f.Name == name)
}

// key counts strikes; faults that differ only in their numbers share a count.
func (f fault) key() string { return f.Call + "/" + f.Name + "/" + f.Do }

// strike applies the faults that hit a call, in their order. It returns what
// to do after the world has changed.
func (c *cloud) strike(ctx context.Context, due []fault, call, name string) (after func(), err error) {
	after = func() {}
	for _, f := range due {
		switch f.Do {
		case doDelay:
			d, _ := time.ParseDuration(f.Delay) // due has checked it
			if err := pause(ctx, d, f.IgnoreStop); err != nil {
				return nil, err
			}
		case doHold:
			if err := c.hold(ctx, f); err != nil {
				return nil, err
			}
		case doFail:
			return nil, fmt.Errorf("refusing to %s %q, as told", call, name)
		case doHang:
			return nil, hang(ctx, f.IgnoreStop)
		case doCrashBefore:
			die()
		case doCrashAfter:
			after = die
		}
	}
	return after, nil
}

// due returns the faults that strike this call, and counts them first: one that
// kills the process has been counted.
func (c *cloud) due(call, name string) ([]fault, error) {
	var due []fault
	err := c.update(func(w *world) (bool, error) {
		counted := false
		for i, f := range append(append([]fault(nil), c.faults...), w.Faults...) {
			if err := f.check(); err != nil {
				return false, err
			}
			if i < len(c.faults) && f.Do == doHold {
				return false, errors.New("fault: only the world can hold a call, since a configuration cannot end it")
			}
			if !f.hits(call, name) || f.Times > 0 && w.Fired[f.key()] >= f.Times {
				continue
			}
			due = append(due, f)
			if f.Times > 0 {
				w.Fired[f.key()]++
				counted = true
			}
		}
		return counted, nil
	})
	return due, err
}

// hold waits until the world has no such fault any longer.
func (c *cloud) hold(ctx context.Context, f fault) error {
	for held := true; held; {
		if err := pause(ctx, 20*time.Millisecond, f.IgnoreStop); err != nil {
			return err
		}
		err := c.update(func(w *world) (bool, error) {
			held = slices.ContainsFunc(w.Faults, func(other fault) bool { return other.key() == f.key() })
			return false, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration, ignoreStop bool) error {
	if ignoreStop {
		ctx = context.WithoutCancel(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return errStopped
	}
}

// hang blocks until the engine says stop, or for ever. It waits on a timer and
// not on nothing, which the runtime would call a deadlock.
func hang(ctx context.Context, ignoreStop bool) error {
	for {
		if err := pause(ctx, time.Hour, ignoreStop); err != nil {
			return err
		}
	}
}

// die ends the process as a crash would: no deferred call runs.
func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // until the signal lands
}
