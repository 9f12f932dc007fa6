// Command terraform-provider-random is the random provider, release 2.0.0: the
// newest that the module proxy serves. The package is upstream's; its own main
// imports a path that no longer exists, so this one stands in for it.
package main

import (
	"github.com/hashicorp/terraform-provider-random/random"
	"github.com/hashicorp/terraform/plugin"
)

func main() {
	plugin.Serve(&plugin.ServeOpts{ProviderFunc: random.Provider})
}
