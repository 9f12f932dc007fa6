package workdir

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Relay is the registry of the platform as one process of the engine reaches it: on an
// address of its own sandbox, with a secret that is worth nothing elsewhere.
type Relay struct {
	Address string   // 127.0.0.1:PORT; serves https
	Secret  string   // the bearer token of its clients
	Hosts   []string // the names of the registry in the addresses of modules and providers
	Mirror  bool     // all other providers come from there as well, but for
	Direct  []string // these, by address or pattern: they come from their registries, also where no other does
}

// Complete returns a configuration that CLIConfig made, or one that a stack completed,
// with the registry in it. m is the mirror of the configuration, less the providers that
// do not come from there any more.
//
// The configuration of a stack comes first: a host that it names stays as it says, with the
// providers of that host, and so does all that says where providers come from.
func (r Relay) Complete(config []byte, m Mirror) []byte {
	text := string(config)
	named := namedHosts(text)
	hosts := slices.DeleteFunc(slices.Clone(r.Hosts), func(h string) bool { return slices.Contains(named, h) })
	if before, in, ok := installed(text, m); ok {
		after := in.installation()
		if r.Mirror {
			direct := everyProvider(hosts)
			if !in.Only {
				direct = append(direct, everyProvider(named)...)
			}
			after = r.installation(in, append(direct, r.Direct...))
		}
		if before == "" {
			text += after
		} else {
			text = strings.Replace(text, before, after, 1)
		}
	}
	var b strings.Builder
	b.WriteString(text)
	if r.Mirror {
		fmt.Fprintf(&b, "\ncredentials %q {\n  token = %q\n}\n", r.Address, r.Secret)
	}
	for _, h := range hosts {
		fmt.Fprintf(&b, "\ncredentials %q {\n  token = %q\n}\n", h, r.Secret)
		fmt.Fprintf(&b, "\nhost %q {\n  services = {\n    \"modules.v1\" = %q\n    \"providers.v1\" = %q\n  }\n}\n",
			h, "https://"+r.Address+"/v1/modules/", "https://"+r.Address+"/v1/providers/")
	}
	return []byte(b.String())
}

// namedHosts are the hosts that a configuration says something about.
func namedHosts(text string) []string {
	var found []string
	for line := range strings.Lines(text) {
		for _, block := range []string{"host ", "credentials "} {
			rest, ok := strings.CutPrefix(line, block)
			name, ends := strings.CutSuffix(rest, " {\n")
			if host, err := strconv.Unquote(name); ok && ends && err == nil && !slices.Contains(found, host) {
				found = append(found, host)
			}
		}
	}
	return found
}

// everyProvider are the patterns of all providers of some hosts.
func everyProvider(hosts []string) []string {
	patterns := make([]string, len(hosts))
	for i, h := range hosts {
		patterns[i] = h + "/*/*"
	}
	return patterns
}

// installed finds the block of a configuration that CLIConfig wrote, and the mirror that
// is left of it. It is false if a stack wrote the block.
func installed(text string, m Mirror) (block string, in Mirror, ok bool) {
	if !strings.Contains(text, "provider_installation") {
		return "", Mirror{Dir: m.Dir}, true
	}
	if only := (Mirror{Dir: m.Dir, Only: true}).installation(); strings.Contains(text, only) {
		return only, Mirror{Dir: m.Dir, Only: true, Providers: m.Providers}, true
	}
	in = Mirror{Dir: m.Dir}
	_, rest, found := strings.Cut(text, in.head())
	list, _, _ := strings.Cut(rest, "\n")
	if !found || json.Unmarshal([]byte(list), &in.Providers) != nil {
		return "", in, false
	}
	if block = in.installation(); !strings.Contains(text, block) {
		return "", in, false
	}
	in.Providers = slices.DeleteFunc(in.Providers, func(p string) bool { return !slices.Contains(m.Providers, p) })
	return block, in, true
}

// installation is the block with the registry in it: first what the mirror has, then those
// providers that come from where their address says, as the ones of the registry itself,
// whose signatures the engine checks, then all others by way of the registry.
func (r Relay) installation(m Mirror, direct []string) string {
	var b strings.Builder
	b.WriteString("\nprovider_installation {\n")
	var others []string
	if len(m.Providers) > 0 {
		others = slices.Compact(slices.Sorted(slices.Values(m.Providers)))
		fmt.Fprintf(&b, "  filesystem_mirror {\n    path    = %s\n    include = %s\n  }\n", strconv.Quote(m.Dir), quoted(others))
	}
	if len(direct) > 0 {
		fmt.Fprintf(&b, "  direct {\n    include = %s\n    exclude = %s\n  }\n", quoted(direct), quoted(others))
		others = append(others, direct...)
	}
	if r.Mirror {
		fmt.Fprintf(&b, "  network_mirror {\n    url     = %q\n    exclude = %s\n  }\n", "https://"+r.Address+"/v1/mirror/", quoted(others))
	}
	b.WriteString("}\n")
	return b.String()
}

// quoted is a list of the configuration.
func quoted(list []string) string {
	all := make([]string, len(list))
	for i, s := range list {
		all[i] = strconv.Quote(s)
	}
	return "[" + strings.Join(all, ", ") + "]"
}
