package app

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
)

// listen opens an address, on loopback unless beyond. Port 0 means the port of the
// last start, so that stored addresses stay valid, or any port if that one is taken.
func listen(address, memory string, beyond bool) (net.Listener, error) {
	if err := checkHTTPAddress(address, beyond); err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if port == "0" {
		if last, err := os.ReadFile(memory); err == nil {
			if l, err := net.Listen("tcp", net.JoinHostPort(host, strings.TrimSpace(string(last)))); err == nil {
				return l, nil
			}
		}
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening for HTTP: %w", err)
	}
	_, port, err = net.SplitHostPort(l.Addr().String())
	if err == nil {
		err = os.WriteFile(memory, []byte(port), 0o600)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// loopbackHosts are the names of a server on its own machine,
// and the address it listens on if it is one.
func loopbackHosts(listen string) []string {
	hosts := []string{"127.0.0.1", "localhost", "::1"}
	if ip := net.ParseIP(listen); ip != nil && !ip.IsUnspecified() && !ip.IsLoopback() {
		hosts = append(hosts, listen)
	}
	return hosts
}
