// Command proxmox serves the stand-in of Proxmox VE, that of the router with the DHCP server, and
// a DNS server, for the example tenant-building. What it makes is in one directory, and another
// start goes on with it: the estate, the secret of each API token (tokens/TENANT), the key of each
// zone (dns/TENANT), the key of the router (router/key, router/secret) and the secret of the
// stand-in (admin).
//
// No guest runs in it. In the place of all of them, one port says the version of an SSH server
// while any machine runs.
//
// It speaks plain HTTP, and is for loopback.
package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/terrier-iac/terrier/test/nameserver"
	"github.com/terrier-iac/terrier/test/opnsense"
	"github.com/terrier-iac/terrier/test/proxmox"
)

// addresses are where the servers listen.
type addresses struct{ api, dhcp, dns, ssh string }

func main() {
	var at addresses
	dir := flag.String("dir", ".proxmox", "directory of what is kept")
	flag.StringVar(&at.api, "listen", "127.0.0.1:8006", "address of the API of Proxmox VE")
	flag.StringVar(&at.dhcp, "dhcp", "127.0.0.1:8067", "address of the API of the router")
	flag.StringVar(&at.dns, "dns", "127.0.0.1:5300", "address of the DNS server")
	flag.StringVar(&at.ssh, "ssh", "127.0.0.1:5222", "address that greets as an SSH server while a machine runs")
	task := flag.Duration("task-time", 200*time.Millisecond, "how long each task runs")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, *dir, at, *task); err != nil {
		fmt.Fprintln(os.Stderr, "proxmox:", err)
		os.Exit(1)
	}
}

// kept reads a secret of the directory, and draws it at the first start.
func kept(dir string, name ...string) (string, error) {
	path := filepath.Join(append([]string{dir}, name...)...)
	text, err := os.ReadFile(path)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return strings.TrimSpace(string(text)), err
	}
	drawn := make([]byte, 24)
	if _, err := rand.Read(drawn); err != nil {
		return "", err
	}
	secret := base64.StdEncoding.EncodeToString(drawn)
	return secret, errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(secret+"\n"), 0o600))
}

// serve runs all servers until the context ends, or one of them fails.
func serve(ctx context.Context, dir string, at addresses, task time.Duration) (err error) {
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	var failed []error // of those that run, each in its place
	var ends []func() error
	defer func() {
		stop()
		for _, end := range ends {
			err = errors.Join(err, end())
		}
		running.Wait()
		err = errors.Join(append(failed, err)...)
	}()
	cluster, router, zones, err := made(dir, task)
	if err != nil {
		return err
	}
	dns, err := nameserver.Start(at.dns, filepath.Join(dir, "records.json"), zones)
	if err != nil {
		return err
	}
	ends = append(ends, dns.Close)
	up := map[string]string{"dns": dns.Address()}
	servers := []struct {
		name, address string
		serve         func(net.Listener) error
	}{
		{"api", at.api, web(cluster)},
		{"dhcp", at.dhcp, web(router)},
		{"ssh", at.ssh, func(l net.Listener) error { return greet(l, cluster.AnyRuns) }},
	}
	failed = make([]error, len(servers))
	for i, s := range servers {
		l, err := net.Listen("tcp", s.address)
		if err != nil {
			return err
		}
		ends = append(ends, l.Close)
		up[s.name] = l.Addr().String()
		running.Go(func() {
			defer stop() // one that fails ends all
			if err := s.serve(l); !errors.Is(err, net.ErrClosed) {
				failed[i] = err
			}
		})
	}
	if err := json.NewEncoder(os.Stdout).Encode(up); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// web serves HTTP.
func web(h http.Handler) func(net.Listener) error {
	return (&http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}).Serve
}

// made are the servers with what is kept in a directory, and the keys of the zones.
func made(dir string, task time.Duration) (*proxmox.Server, *opnsense.Server, map[string]nameserver.Key, error) {
	var failed error
	secret := func(name ...string) string {
		s, err := kept(dir, name...)
		failed = errors.Join(failed, err)
		return s
	}
	o := proxmox.Options{
		File: filepath.Join(dir, "estate.json"), TaskTime: task, Admin: secret("admin"),
		Estate: proxmox.Building(func(tenant string) string { return secret("tokens", tenant) }),
	}
	zones := map[string]nameserver.Key{}
	for _, tenant := range o.Estate.Pools {
		zones[tenant+".example."] = nameserver.Key{Name: tenant + ".", Secret: secret("dns", tenant)}
	}
	subnets := map[string]string{}
	for _, v := range o.Estate.VLANs {
		subnets[fmt.Sprintf("00000000-0000-4000-8000-%012d", v.ID)] = v.Subnet
	}
	key, hidden := secret("router", "key"), secret("router", "secret")
	if failed != nil {
		return nil, nil, nil, failed
	}
	cluster, err := proxmox.New(o)
	if err != nil {
		return nil, nil, nil, err
	}
	router, err := opnsense.New(opnsense.Options{Key: key, Secret: hidden, Subnets: subnets, Serve: cluster.Reserve, File: filepath.Join(dir, "reservations.json")})
	return cluster, router, zones, err
}
