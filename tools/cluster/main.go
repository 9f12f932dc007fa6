// Command cluster runs a real Kubernetes cluster of one node on this machine,
// for tests: etcd, API server, controller manager, scheduler, kubelet, kube-proxy
// and containerd, as processes in namespaces and control groups of their own.
//
//	up       on the machine: makes keys and files, starts node, waits until ready
//	└ node   on the machine: holds the lock, and two sockets on its loopback
//	  └ init       process 1 of the new namespaces: mounts, network, reaping
//	    └ supervise   starts the processes, and again if one dies; one is policies
//
// The end of node or of init is the end of every process, mount and interface:
// the kernel sees to it. Only control groups and files are left to remove. The
// command never looks for processes, and so it never ends a foreign one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

const usage = `usage: cluster [--state DIR] COMMAND

  up              start the cluster, and wait until it is ready
  down            stop it, and remove all that it made
  load FILE [AS]  push the images of a tar file (OCI layout or docker save) to
                  its registry, from which pods pull by any registry's name
  exec CMD ARG... run a command in its network: pods and Services are reachable
  wait            wait until the cluster is ready
`

func main() {
	flags := flag.NewFlagSet("cluster", flag.ExitOnError)
	flags.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	state := flags.String("state", ".cluster", "where the cluster keeps its state")
	if err := flags.Parse(os.Args[1:]); err != nil {
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *state, flags.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir string, args []string) error {
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		return errors.New("a command is missing")
	}
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("resolving %s: %w", dir, err)
	}
	s := state(absolute)
	switch command, rest := args[0], args[1:]; {
	case command == "up" && len(rest) == 0:
		return up(ctx, s)
	case command == "down" && len(rest) == 0:
		return down(ctx, s)
	case command == "wait" && len(rest) == 0:
		return wait(ctx, s)
	case command == "load" && len(rest) == 1:
		return load(ctx, s, rest[0], "")
	case command == "load" && len(rest) == 2:
		return load(ctx, s, rest[0], rest[1])
	case command == "exec" && len(rest) > 0:
		return enter(s, rest)
	case command == "node" && len(rest) == 0:
		return node(s)
	case command == "init" && len(rest) == 0:
		return initialize(s)
	case command == "supervise" && len(rest) == 0:
		return supervise(ctx, s)
	case command == "policies" && len(rest) == 0:
		return enforcePolicies(ctx, s)
	default:
		fmt.Fprint(os.Stderr, usage)
		return fmt.Errorf("%q is no command, or has the wrong arguments", args)
	}
}
