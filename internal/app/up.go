package app

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/terrier-iac/terrier/internal/app/flags"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/runner"
)

// Up returns the command that runs everything on one machine. Program is
// the name of this program in messages.
func Up(plane ControlPlane, program, version string, environ func(string) string, now func() time.Time) (*cobra.Command, error) {
	var c Config
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run everything on this machine, in the foreground",
		Long: `Runs a Kubernetes API server, the controllers of stacks and sources, the HTTP
API and the runs in this process and its children. All data is in one
data directory. All servers listen on loopback only.

When requests are answered, the command prints "ready" on a line of its own, or with
-o json an object with the addresses. SIGTERM ends it within ten seconds. The
supervisors finish active applies, and the next start finds their results.`,
		Example: `  terrier up
  terrier up --quickstart --data-dir /srv/terrier
  terrier up --example alustan
  terrier up -o json --api-address 127.0.0.1:6443`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if c.Output != "" && c.Output != "json" {
				return fault.New(fault.Invalid, "Usage", errOutput)
			}
			ctx, stop := interruptible(cmd.Context(), cmd.ErrOrStderr())
			defer stop()
			o := Options{
				Config: c, ControlPlane: plane, Program: program, Version: version,
				Stdout: cmd.OutOrStdout(), Stderr: cmd.ErrOrStderr(), Now: now, Environ: environ,
			}
			if names := c.examples(); len(names) > 0 {
				o.Ready = showExample(names, program, cmd.ErrOrStderr(), cmd.OutOrStdout(), now)
			}
			return Run(ctx, o)
		},
	}
	return cmd, flags.Bind(cmd.Flags(), &c, environ)
}

// showExample returns the function that applies the examples.
func showExample(names []string, program string, progress, out io.Writer, now func() time.Time) func(context.Context, Ready, *rest.Config) error {
	q := example{names: names, progress: progress, out: out, now: now, program: program}
	return q.run
}

// interruptible returns a context that the first SIGINT or SIGTERM ends. A user who
// presses Ctrl-C again learns what that would cost; the time after that, the signal
// ends the program at once. The returned function gives the signals back.
func interruptible(parent context.Context, progress io.Writer) (context.Context, func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		defer signal.Stop(signals)
		for received := range 2 { // the first one may have ended the parent already
			select {
			case <-done:
				return
			case <-signals:
			}
			if received > 0 {
				fmt.Fprintf(progress, "terrier: still stopping, for at most %s in all. The next Ctrl-C ends this program at once: "+
					"the next start then recovers the store and repeats what was not written. Runs go on in any case.\n", stopWithin)
				return
			}
			cancel()
		}
	}()
	return ctx, func() {
		cancel()
		close(done)
		<-ended
	}
}

// stopWithin is how long everything may take to end.
const stopWithin = 10 * time.Second

// sayRunsAtEnd calls sayRuns when ctx ends. The returned function waits for that.
func sayRunsAtEnd(ctx context.Context, runs runner.Runner, o Options) func() {
	said := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(said)
		sayRuns(runs, o)
	})
	return func() {
		if !stop() {
			<-said
		}
	}
}

// sayRuns tells the user who stops the program which runs go on without it.
func sayRuns(runs runner.Runner, o Options) {
	reports, err := runs.List()
	if why := sayUnlisted(err); why != "" {
		o.progress("stopping, within %s; %s", stopWithin, why)
	}
	if !runner.Listed(err) {
		return
	}
	active, end := 0, fmt.Sprintf("stopping, within %s. These runs go on under their supervisors, and the next start takes over their results:", stopWithin)
	if o.Cluster != nil && o.Cluster.Drain > 0 && o.asPods() == nil {
		end = fmt.Sprintf("stopping as soon as these runs have ended. In %s they are interrupted:", o.Cluster.Drain)
	}
	for _, r := range reports {
		if r.Phase == runner.Done {
			continue
		}
		if active++; active == 1 {
			o.progress("%s", end)
		}
		o.progress("  %s of %s: %s for %s", r.Kind, r.Name, r.Phase, o.Now().Sub(r.Since).Round(time.Second))
	}
	if active == 0 && err == nil {
		o.progress("stopping, within %s; no run is active", stopWithin)
	}
}
