package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/terrier-iac/terrier/internal/client"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/sandbox"
)

func (p serverCommands) ui() *cobra.Command {
	var open bool
	c := &cobra.Command{
		Use:   "ui",
		Short: "Create a link that signs you in to the pages of the server",
		Long: `Prints a link to the pages of the Terrier server. The first browser that opens the link
within one minute, and confirms, is signed in as the user of the kubeconfig. After
that, the link is used up.

The command creates the link with the token of the kubeconfig. It sends the token to
the server, as it does for logs and plans. The link does not contain the token.`,
		Example: `  terrier ui
  terrier ui --open`,
		GroupID: groupView,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			link, address, err := client.SignIn(cmd.Context(), p.connection)
			if err != nil {
				return err
			}
			p.say("%s\n", address)
			left := link.Until.Sub(p.Now()).Round(1e9)
			p.note("Open the link within %s. It signs in one browser, once, as %s.\n", span(left), link.Name)
			if !open {
				return nil
			}
			return p.browse(cmd, address)
		},
	}
	c.Flags().BoolVar(&open, "open", false, "open the link in the browser; while the browser starts, other users of this machine can see the link")
	return c
}

// browse opens an address in the browser that the desktop chooses.
func (p serverCommands) browse(cmd *cobra.Command, address string) error {
	const opener = "xdg-open"
	for _, dir := range filepath.SplitList(p.getenv("PATH")) {
		path := filepath.Join(dir, opener)
		if info, err := os.Stat(path); err != nil || !filepath.IsAbs(path) || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			continue
		}
		started, err := sandbox.Start(cmd.Context(), sandbox.Command{Path: path, Args: []string{address}, Env: p.Environ, Dir: "/"})
		if err != nil {
			return err
		}
		exit, err := started.Wait()
		if err == nil && exit.Code != 0 {
			err = fmt.Errorf("%s ended with %d", opener, exit.Code)
		}
		if err != nil {
			return fmt.Errorf("opening a browser: %w", err)
		}
		return nil
	}
	return fault.New(fault.Missing, "NoBrowser", errors.New("there is no "+opener+" on the PATH: open the link in a browser"))
}
