package app

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/app/flags"
	"github.com/terrier-iac/terrier/internal/fault"
)

// ClusterConfig is the additional settings for a controller of an existing
// cluster.
type ClusterConfig struct {
	Definitions bool          `flag:"install-crds" env:"TERRIER_INSTALL_CRDS" default:"true" help:"apply the definitions of all kinds at the start; set false if you install them yourself"`
	Kinds       []string      `flag:"kinds" env:"TERRIER_KINDS" default:"infra.contrib.fluxcd.io" help:"API group whose kind of stack is reconciled: infra.contrib.fluxcd.io, which has to be among them, and alustan.io (repeatable, or several with commas)"`
	Namespaces  []string      `flag:"watch-namespace" env:"TERRIER_WATCH_NAMESPACES" help:"namespace to reconcile; by default all namespaces (repeatable)"`
	Hosts       []string      `flag:"http-host" env:"TERRIER_HTTP_HOSTS" help:"name or address of the HTTP API; the command line uses the first one (repeatable)"`
	Keys        string        `flag:"installation-keys" env:"TERRIER_INSTALLATION_KEYS" default:"file" help:"where the keys of this installation are, for sessions, digests, the pods of runs and the certificate of the HTTP API: file, in the data directory, or secret, the Secret terrier-installation, which all controllers share"`
	Admission   bool          `flag:"admission-webhooks" env:"TERRIER_ADMISSION_WEBHOOKS" help:"register admission webhooks that validate registries and templates of tenants, and warn of annotations of stacks and of what policies have against them; the API server must reach the HTTP API by --http-host"`
	Weave       bool          `flag:"weave-policies" env:"TERRIER_WEAVE_POLICIES" help:"evaluate the Policy objects of the Weave policy agent (pac.weave.works) that are for Terraform, and apply their definition unless it is there"`
	Secrets     bool          `flag:"external-secrets" env:"TERRIER_EXTERNAL_SECRETS" help:"write Secrets with what is in OpenBao or Vault, for ExternalSecrets of external-secrets.io and for ServiceAccounts with the annotations of Vault's agent, and apply the definitions; off where another program installed those"`
	Health      string        `flag:"health-address" env:"TERRIER_HEALTH_ADDRESS" help:"address that answers /healthz and /readyz to a kubelet, without encryption; off if empty"`
	Drain       time.Duration `flag:"drain" env:"TERRIER_DRAIN" default:"0" help:"time that runs have to end when this program is stopped, before they are interrupted, and until they have ended; 0 leaves them to their supervisors, which end with a container; runs that are pods go on in any case"`
	Lease       string        `flag:"lease" env:"TERRIER_LEASE" default:"terrier-controller" help:"name of the Lease that elects the active controller; empty if there is only one controller"`
	Share       bool          `flag:"share-stacks" env:"TERRIER_SHARE_STACKS" help:"share the stacks with the other controllers of the same --lease, all of which are active; needs --runs-as=pods, --records and --installation-keys=secret"`
	Address     string        `flag:"replica-address" env:"TERRIER_REPLICA_ADDRESS" help:"host or host:port where the other controllers reach the HTTP API of this one, with --share-stacks"`
	LeaseTime   time.Duration `flag:"lease-duration" env:"TERRIER_LEASE_DURATION" default:"15s" help:"time without renewal after which another controller may take over"`
}

// groups are those of --kinds.
func (k ClusterConfig) groups() []string { return strings.Split(strings.Join(k.Kinds, ","), ",") }

// notInCluster are the flags of Config that have no meaning there.
var notInCluster = []string{"api-address", "quickstart", "example"}

// Controller returns the command that runs everything but the API server.
// Program is the name of this program in messages.
func Controller(program, version string, environ func(string) string, now func() time.Time) (*cobra.Command, error) {
	var c Config
	var k ClusterConfig
	var pods PodsConfig
	var builds BuildsConfig
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Run the controllers, the runs and the HTTP API for a cluster",
		Long: `Runs the same controllers as "terrier up", but for the API server of a cluster: the
one of --kubeconfig and --context, of KUBECONFIG, or of the pod that it runs in. Runs are
processes beside it, or pods of the cluster (--runs-as).

Of several controllers one is active. The others wait until it has ended, or has not
renewed its Lease for --lease-duration. All of them need the same --data-dir, since
most of its content exists nowhere else. If a controller was stopped and another
one may have taken over, it exits without any further action.

With --share-stacks all controllers are active, and each has its share of the stacks.
They need the same --records and the same Secret of keys, and data directories of
their own.`,
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
			ctx, stop := interruptible(cmd.Context(), cmd.ErrOrStderr())
			defer stop()
			return Run(ctx, Options{
				Config: c, Cluster: &k, Pods: &pods, Builds: builds, Program: program, Version: version,
				ControlPlane: cluster{
					ClusterConfig: k, kubeconfig: inherited(cmd, "kubeconfig"), context: inherited(cmd, "context"),
					http: c.HTTPAddress, now: now, progress: cmd.ErrOrStderr(),
				},
				Stdout: cmd.OutOrStdout(), Stderr: cmd.ErrOrStderr(), Now: now, Environ: environ,
			})
		},
	}
	for _, more := range []any{&k, &pods, &builds} {
		if err := flags.Bind(cmd.Flags(), more, environ); err != nil {
			return nil, err
		}
	}
	return cmd, flags.Bind(cmd.Flags(), &c, environ, notInCluster...)
}

// inherited is a flag of every command.
func inherited(cmd *cobra.Command, name string) string {
	if f := cmd.Flags().Lookup(name); f != nil {
		return f.Value.String()
	}
	return ""
}
