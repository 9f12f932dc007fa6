// Command terraform-provider-world is a provider whose cloud is one JSON file.
//
// Tests use it to see what a run really did to the outside world: every thing
// lives in that file, outside any work directory; every call leaves a line in
// a journal beside it; and faults make calls slow, stuck, wrong or deadly at a
// chosen moment. Two things may bear one name, as in most clouds, so a create
// that ran twice stays visible.
//
// It refuses to guess: without a path, with a fault it does not know or with a
// file of another version, it fails. Start reading at cloud.go.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
)

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "serving the world provider:", err)
		os.Exit(1)
	}
}

func serve() error {
	return providerserver.Serve(context.Background(), newProvider, providerserver.ServeOpts{
		Address: "registry.opentofu.org/terrier-iac/world",
	})
}
