// Command terraform-provider-local is the local provider, release 1.4.0: the
// newest that the module proxy serves. The package is upstream's.
package main

import (
	"github.com/hashicorp/terraform-plugin-sdk/plugin"
	"github.com/terraform-providers/terraform-provider-local/local"
)

func main() {
	plugin.Serve(&plugin.ServeOpts{ProviderFunc: local.Provider})
}
