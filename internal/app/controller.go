package app

import (
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/fault"
)

// ClusterConfig is what can be set besides where the API server is somebody
// else's.
type ClusterConfig struct {
	Definitions bool          `flag:"install-crds" env:"TERRIER_INSTALL_CRDS" default:"true" help:"apply the definitions of our kinds at the start; false leaves that to whoever installs Terrier"`
	Namespaces  []string      `flag:"watch-namespace" env:"TERRIER_WATCH_NAMESPACES" help:"look after stacks and sources of this namespace and of no other that is not named (repeatable)"`
	Hosts       []string      `flag:"http-host" env:"TERRIER_HTTP_HOSTS" help:"name or address by which the HTTP API is reached; the first is what the command line is told (repeatable)"`
	Admission   bool          `flag:"admission-webhooks" env:"TERRIER_ADMISSION_WEBHOOKS" help:"have the API server ask this controller whether registries and templates of tenants are valid before it stores them; it must reach the HTTP API by --http-host"`
	Lease       string        `flag:"lease" env:"TERRIER_LEASE" default:"terrier-controller" help:"name of the Lease by which several controllers agree on the one that acts; empty if there is only this one"`
	LeaseTime   time.Duration `flag:"lease-duration" env:"TERRIER_LEASE_DURATION" default:"15s" help:"how long after its last sign of life another controller may take over"`
}

// notInCluster are the flags of Config that mean nothing there.
var notInCluster = []string{"api-address", "quickstart"}

// Controller returns the command that runs everything but the API server.
// Program is how people call it.
func Controller(program, version string, environ func(string) string, now func() time.Time) (*cobra.Command, error) {
	var c Config
	var k ClusterConfig
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Run the controllers, the runs and the HTTP API for a cluster",
		Long: `Runs what "terrier up" runs, but against the API server of a cluster: the one of
--kubeconfig and --context, of KUBECONFIG, or the one that it is a pod of.

Of several controllers one acts, and the others wait until it has ended or has
not been heard of for --lease-duration. All of them need the same --data-dir,
which holds records and runs that no other place has. One that was held up, and
finds that another may have taken over meanwhile, does nothing more and exits.`,
		Example: `  terrier controller --data-dir /var/lib/terrier --http-address 0.0.0.0:8443 --http-host terrier.terrier-system.svc
  terrier controller --kubeconfig ~/.kube/config --watch-namespace team-a`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if c.Output != "" && c.Output != "json" {
				return fault.New(fault.Invalid, "Usage", errOutput)
			}
			if k.Admission && len(k.Hosts) == 0 {
				return usage("--admission-webhooks needs --http-host, the name by which the API server reaches this controller")
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return Run(ctx, Options{
				Config: c, Cluster: &k, Program: program, Version: version,
				ControlPlane: cluster{
					ClusterConfig: k, kubeconfig: inherited(cmd, "kubeconfig"), context: inherited(cmd, "context"),
					http: c.HTTPAddress, now: now, progress: cmd.ErrOrStderr(),
				},
				Stdout: cmd.OutOrStdout(), Stderr: cmd.ErrOrStderr(), Now: now, Environ: environ,
			})
		},
	}
	if err := bind(cmd.Flags(), &k, environ); err != nil {
		return nil, err
	}
	return cmd, bind(cmd.Flags(), &c, environ, notInCluster...)
}

// inherited is a flag that every command has.
func inherited(cmd *cobra.Command, name string) string {
	if f := cmd.Flags().Lookup(name); f != nil {
		return f.Value.String()
	}
	return ""
}
