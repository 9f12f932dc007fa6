package cli

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/client"
)

func (p *program) push() *cobra.Command {
	var o client.PushOptions
	c := &cobra.Command{
		Use:   "push DIR oci://REGISTRY/REPOSITORY:TAG",
		Short: "Push a directory as an artifact that stacks can use",
		Long: `Packs a directory and pushes it as an OCI artifact, in the form that Flux's
"push artifact" has, for an OCIRepository to name as the source of stacks. The
same directory makes the same digest. What .sourceignore names is left out, and
so is what git and the engine keep beside the code.

To the registry of the cluster's own Terrier server it presents the token of the
kubeconfig; the first part of a repository's name is the namespace it belongs to.
To others it presents what "docker login" left in ~/.docker/config.json or in
DOCKER_CONFIG.`,
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
			dir := args[0]
			if !filepath.IsAbs(dir) {
				dir = filepath.Join(p.Dir, dir)
			}
			o.DockerConfig = p.getenv("DOCKER_CONFIG")
			digest, err := client.Push(cmd.Context(), p.connection, dir, args[1], o)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(p.Stdout, "Pushed %s@%s\n", clean(args[1]), clean(digest))
			return err
		},
	}
	c.Flags().StringVar(&o.Source, "source", "", "where the directory comes from, written on the artifact")
	c.Flags().StringVar(&o.Revision, "revision", "", "which state of it, written on the artifact")
	c.Flags().BoolVar(&o.Insecure, "insecure", false, "speak to the registry over http")
	return c
}

func (p *program) version() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program",
		GroupID: groupOperate,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(p.Stdout, p.Version)
			return err
		},
	}
}
