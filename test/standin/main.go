// Command standin is providers that stand in for those that examples name and
// that cannot be had here: hashicorp/aws, hashicorp/random as of release 3, and
// redis/redis. It takes the resource types, arguments and blocks that the
// examples use, and keeps what it makes in one JSON file, so that a test sees
// what a run did to the cloud. It is also cyrilgdn/postgresql, hashicorp/vault,
// hashicorp/dns, bpg/proxmox and browningluke/opnsense, which keep nothing: they change the
// server that they are given. That is a real one, but for Proxmox VE (test/proxmox) and OPNsense
// (test/opnsense).
//
// Which one it is, is said by the name that it is started under, as a mirror has
// it: terraform-provider-aws_v5.99.0. It refuses every other name, and it does
// nothing without credentials, where the real one would not.
//
// Start reading at kind.go.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
)

// known are the providers, by their type.
var known = map[string]struct {
	address string
	make    func() provider.Provider
}{
	"aws":        {"hashicorp/aws", newAWS},
	"random":     {"hashicorp/random", newRandom},
	"redis":      {"redis/redis", newRedis},
	"postgresql": {"cyrilgdn/postgresql", newPostgreSQL},
	"vault":      {"hashicorp/vault", newVault},
	"proxmox":    {"bpg/proxmox", newProxmox},
	"dns":        {"hashicorp/dns", newDNS},
	"opnsense":   {"browningluke/opnsense", newOPNsense},
}

func main() {
	if err := serve(os.Args[0]); err != nil {
		fmt.Fprintln(os.Stderr, "standing in for a provider:", err)
		os.Exit(1)
	}
}

func serve(program string) error {
	name, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(program), "terraform-provider-"), "_v")
	p, ok := known[name]
	if !ok {
		return fmt.Errorf("%s is the name of none of them", program)
	}
	return providerserver.Serve(context.Background(), p.make, providerserver.ServeOpts{
		Address: "registry.opentofu.org/" + p.address,
	})
}
