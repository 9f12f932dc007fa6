package app

import (
	"context"
	"io/fs"
	"os"

	"github.com/terrier-iac/terrier/examples/quickstart"
	"github.com/terrier-iac/terrier/internal/client"
)

// push writes the embedded module out and pushes it as a person would.
func (q example) push(ctx context.Context, r Ready, registry string) error {
	dir, err := os.MkdirTemp("", "terrier-quickstart-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	module, err := fs.Sub(quickstart.Files, "app")
	if err == nil {
		err = os.CopyFS(dir, module)
	}
	if err != nil {
		return err
	}
	_, err = client.Push(ctx, client.Connection{Kubeconfig: r.Kubeconfig, Now: q.now}, dir, "oci://"+registry+"/quickstart/app:1.0.0", client.PushOptions{})
	return err
}
