package app

import (
	"context"
	"io"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/terrier-iac/terrier/internal/fault"
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
  terrier up -o json --api-address 127.0.0.1:6443`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if c.Output != "" && c.Output != "json" {
				return fault.New(fault.Invalid, "Usage", errOutput)
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			o := Options{
				Config: c, ControlPlane: plane, Program: program, Version: version,
				Stdout: cmd.OutOrStdout(), Stderr: cmd.ErrOrStderr(), Now: now, Environ: environ,
			}
			if c.Quickstart {
				o.Ready = showExample(program, cmd.ErrOrStderr(), cmd.OutOrStdout(), now)
			}
			return Run(ctx, o)
		},
	}
	return cmd, bind(cmd.Flags(), &c, environ)
}

// showExample returns the function that applies the examples.
func showExample(program string, progress, out io.Writer, now func() time.Time) func(context.Context, Ready, *rest.Config) error {
	q := example{progress: progress, out: out, now: now, program: program}
	return q.run
}
