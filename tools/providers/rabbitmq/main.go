// Command terraform-provider-rabbitmq is the rabbitmq provider, release 1.8.0.
// The package is upstream's.
package main

import (
	"github.com/terraform-providers/terraform-provider-rabbitmq/rabbitmq"
	"github.com/hashicorp/terraform-plugin-sdk/v2/plugin"
)

func main() {
	plugin.Serve(&plugin.ServeOpts{ProviderFunc: rabbitmq.Provider})
}
