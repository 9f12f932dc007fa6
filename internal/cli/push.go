package cli

import (
	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/client"
)

// serverCommands use the server: its registry, its pages and its notifications.
type serverCommands struct{ *program }

func (p serverCommands) commands() []*cobra.Command {
	return []*cobra.Command{p.push(), p.ui(), p.notifications(), p.version()}
}

func (p serverCommands) push() *cobra.Command {
	var o client.PushOptions
	c := &cobra.Command{
		Use:   "push DIR oci://REGISTRY/REPOSITORY:TAG",
		Short: "Push a directory as an artifact for stacks",
		Long: `Packs a directory and pushes it as an OCI artifact, in the format of the Flux command
"push artifact". An OCIRepository can name it as the source of stacks. The same
directory always has the same digest. The artifact contains neither the files that
.sourceignore names nor the files of Git and of the engine.

For the registry of the Terrier server in the cluster, the command uses the token of
the kubeconfig. The first part of the repository name is the namespace that owns it.
For other registries, the command uses the credentials of "docker login" in
~/.docker/config.json or in DOCKER_CONFIG.`,
		Example: `  terrier push ./modules/network oci://127.0.0.1:8443/apps/network:v1
  terrier push . oci://ghcr.io/example/network:v1 --source "$(git remote get-url origin)"`,
		GroupID: groupOperate,
		Args:    cobra.ExactArgs(2),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return nil, cobra.ShellCompDirectiveFilterDirs
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.DockerConfig = p.getenv("DOCKER_CONFIG")
			digest, err := client.Push(cmd.Context(), p.connection, p.path(args[0]), args[1], o)
			if err != nil {
				return err
			}
			p.say("Pushed %s@%s\n", args[1], digest)
			return nil
		},
	}
	c.Flags().StringVar(&o.Source, "source", "", "the origin of the directory, recorded in the artifact")
	c.Flags().StringVar(&o.Revision, "revision", "", "the revision of the directory, recorded in the artifact")
	c.Flags().BoolVar(&o.Insecure, "insecure", false, "use http for the registry")
	return c
}

func (p serverCommands) version() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program",
		GroupID: groupOperate,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			p.say("%s\n", p.Version)
			return nil
		},
	}
}
