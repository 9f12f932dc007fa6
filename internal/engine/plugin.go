package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// A provider is a program that serves an engine over a socket. Usually the
// engine starts it, three times for one plan; here is what another starter needs
// to know who starts it once and tells the engine where it is.

// PluginEnviron makes a provider's program serve: without the cookie it says
// that it is not for people. Nothing asks for TLS, so the socket has to be out
// of the reach of others.
func PluginEnviron() []string {
	return []string{
		"TF_PLUGIN_MAGIC_COOKIE=d602bf8f470bc67ca7faa0386276bbdd4330efaf76d1a219cb4d6991ca9872b2",
		"PLUGIN_PROTOCOL_VERSIONS=5,6",
		// By itself a provider logs every step it takes, for an engine that
		// drops nearly all of it. What it says when it breaks is no log.
		"TF_LOG_SDK=off", "TF_LOG_PROVIDER=off",
	}
}

// Greeting is what a provider says first: where it serves, and what.
type Greeting struct {
	Protocol int // of providers, 5 or 6
	Socket   string
}

// coreProtocol is the version of the greeting itself.
const coreProtocol = "1"

// ParseGreeting reads the one line that a provider prints:
// 1|5|unix|/tmp/plugin123|grpc|. What an engine could not be attached to is an
// error.
func ParseGreeting(line string) (Greeting, error) {
	fields := strings.Split(strings.TrimSpace(line), "|")
	if len(fields) < 5 || fields[0] != coreProtocol {
		return Greeting{}, fmt.Errorf("a provider greets with %.100q", line)
	}
	protocol, err := strconv.Atoi(fields[1])
	if err != nil || protocol != 5 && protocol != 6 {
		return Greeting{}, fmt.Errorf("a provider speaks the protocol %.20q", fields[1])
	}
	if fields[2] != "unix" || fields[4] != "grpc" || !path.IsAbs(fields[3]) || !plain(fields[3]) {
		return Greeting{}, fmt.Errorf("a provider serves %.20q on %.20q at %.100q", fields[4], fields[2], fields[3])
	}
	if len(fields) > 5 && fields[5] != "" {
		return Greeting{}, errors.New("a provider serves TLS without being asked to")
	}
	return Greeting{Protocol: protocol, Socket: fields[3]}, nil
}

// Served is a provider that runs.
type Served struct {
	Address string // as the engine's lock file has it
	PID     int    // as the engine counts
	Greeting
}

// ReattachEnviron tells an engine which providers run already.
func ReattachEnviron(served []Served) (string, error) {
	type addr struct{ Network, String string }
	type config struct {
		Protocol        string
		ProtocolVersion int
		Pid             int
		Test            bool // the engine neither kills it nor minds that others use it
		Addr            addr
	}
	all := map[string]config{}
	for _, s := range served {
		all[s.Address] = config{"grpc", s.Protocol, s.PID, true, addr{"unix", s.Socket}}
	}
	value, err := json.Marshal(all)
	return "TF_REATTACH_PROVIDERS=" + string(value), err
}

// PackageDir is where init puts a provider, relative to the root module.
func PackageDir(l Locked, platform string) string {
	return path.Join(".terraform/providers", l.Address, l.Version, platform)
}

// Executable finds the program in a provider's package as engines do. More than
// one is an error: which one an engine takes is not documented.
func Executable(pkg fs.FS, l Locked) (string, error) {
	entries, err := fs.ReadDir(pkg, ".")
	if err != nil {
		return "", err
	}
	var found []string
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), "terraform-provider-"+l.Type())
		if ok && !e.IsDir() && (rest == "" || rest[0] == '_' || rest[0] == '.') {
			found = append(found, e.Name())
		}
	}
	if len(found) != 1 {
		return "", fmt.Errorf("the package of %s has %d programs", l.Address, len(found))
	}
	return found[0], nil
}
