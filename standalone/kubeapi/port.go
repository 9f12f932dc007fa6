package kubeapi

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/terrier-iac/terrier/internal/fault"
)

// listen binds address before any state is made, so that a port conflict costs
// nothing. The port is remembered, because kubeconfigs that were copied
// elsewhere name it.
func listen(d dir, address string, log *slog.Logger) (*net.TCPListener, error) {
	asked, err := parseLoopback(address)
	if err != nil {
		return nil, err
	}
	listener, err := listenNear(d, asked, log)
	if err != nil {
		return nil, err
	}
	port := listener.Addr().(*net.TCPAddr).Port
	if err := writeFile(d.own("port"), fmt.Appendln(nil, port)); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}

// listenNear binds the port that was asked for, or if none was, the remembered
// one if it is still free.
func listenNear(d dir, asked netip.AddrPort, log *slog.Logger) (*net.TCPListener, error) {
	if asked.Port() == 0 {
		remembered, err := rememberedPort(d.own("port"))
		if err != nil {
			return nil, err
		}
		listener, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(asked.Addr(), remembered)))
		if err == nil {
			return listener, nil
		}
		log.Warn("the port of the last start is taken, choosing another", "port", remembered, "err", err)
	}
	listener, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(asked))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fault.New(fault.Conflict, "Address", fmt.Errorf("the address %s is already in use by another program: choose another port, or 0 for any", asked))
	case err != nil:
		return nil, fmt.Errorf("listening on %s: %w", asked, err)
	}
	return listener, nil
}

// rememberedPort is 0, which means any, if there was no start before.
func rememberedPort(path string) (uint16, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("reading the port of the last start: %w", err)
	}
	port, err := strconv.ParseUint(strings.TrimSpace(string(content)), 10, 16)
	if err != nil {
		return 0, fmt.Errorf("reading the port of the last start from %s, which can be deleted: %w", path, err)
	}
	return uint16(port), nil
}

func parseLoopback(address string) (netip.AddrPort, error) {
	invalid := func(err error) error { return fault.New(fault.Invalid, "Address", err) }
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return netip.AddrPort{}, invalid(fmt.Errorf("the address %q is not HOST:PORT: write 127.0.0.1:0 for any free port", address))
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return netip.AddrPort{}, invalid(fmt.Errorf("the address %q has no port between 0 and 65535", address))
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	ip, err := netip.ParseAddr(host)
	if err != nil || !ip.IsLoopback() || ip.Zone() != "" || ip.Is4In6() {
		return netip.AddrPort{}, invalid(fmt.Errorf("the control plane listens on this machine only, and %q is not a loopback address: use 127.0.0.1:%d", host, number))
	}
	return netip.AddrPortFrom(ip, uint16(number)), nil
}
