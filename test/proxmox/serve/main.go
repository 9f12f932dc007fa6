// Command proxmox serves the stand-in of Proxmox VE and a DNS server, for the example
// tenant-building. What it makes is in one directory, and another start goes on with it:
// the estate, the secret of each API token (tokens/TENANT), the key of each zone
// (dns/TENANT) and the secret of the stand-in (admin).
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
	"syscall"
	"time"

	"github.com/terrier-iac/terrier/test/nameserver"
	"github.com/terrier-iac/terrier/test/proxmox"
)

func main() {
	dir := flag.String("dir", ".proxmox", "directory of what is kept")
	api := flag.String("listen", "127.0.0.1:8006", "address of the API")
	names := flag.String("dns", "127.0.0.1:5300", "address of the DNS server")
	ssh := flag.String("ssh", "127.0.0.1:5222", "address that greets as an SSH server while a machine runs")
	task := flag.Duration("task-time", 200*time.Millisecond, "how long each task runs")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, *dir, *api, *names, *ssh, *task); err != nil {
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

func serve(ctx context.Context, dir, api, names, ssh string, task time.Duration) error {
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
	if failed != nil {
		return failed
	}
	handler, err := proxmox.New(o)
	if err != nil {
		return err
	}
	dns, err := nameserver.Start(names, filepath.Join(dir, "records.json"), zones)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", api)
	if err != nil {
		return errors.Join(err, dns.Close())
	}
	guests, err := net.Listen("tcp", ssh)
	if err != nil {
		return errors.Join(err, listener.Close(), dns.Close())
	}
	greeted := make(chan error, 1)
	go func() {
		greeted <- greet(guests, func() bool {
			for _, vm := range handler.VMs() {
				if vm.Running {
					return true
				}
			}
			return false
		})
	}()
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		<-ctx.Done()
		_ = server.Close() // Serve returns
	}()
	end := func(err error) error {
		closed := guests.Close() // greet returns
		return errors.Join(err, closed, <-greeted, dns.Close())
	}
	if err := json.NewEncoder(os.Stdout).Encode(map[string]string{"api": "http://" + listener.Addr().String(), "dns": dns.Address(), "ssh": guests.Addr().String()}); err != nil {
		return errors.Join(server.Close(), end(err))
	}
	err = server.Serve(listener)
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return end(err)
}
