package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/machine"
	"github.com/terrier-iac/terrier/standalone/kubeapi"
	"github.com/terrier-iac/terrier/standalone/pace"
)

const usage = `usage: terrier control-plane {--data-dir DIR | --ephemeral} [--address 127.0.0.1:0] [--until-eof] [-o json]`

// ready is what -o json prints, on one line, once requests are answered.
type ready struct {
	Ready      bool   `json:"ready"`
	Address    string `json:"address"`
	Kubeconfig string `json:"kubeconfig"`
}

// run is the hidden command "control-plane": the control plane and nothing else,
// for tests and for debugging.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	err := fault.New(fault.Invalid, "Usage", errors.New(usage))
	if len(args) > 0 && args[0] == "control-plane" {
		err = controlPlane(ctx, args[1:], stdout, stderr)
	}
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	fmt.Fprintln(stderr, "terrier:", err)
	return fault.Of(err).Meaning().Exit
}

func controlPlane(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	flags := flag.NewFlagSet("control-plane", flag.ContinueOnError)
	flags.SetOutput(stderr)
	dir := flags.String("data-dir", "", "directory of the `store`, the keys and the kubeconfig")
	ephemeral := flags.Bool("ephemeral", false, "use a temporary directory, without fsync, and remove it at the end")
	address := flags.String("address", "127.0.0.1:0", "loopback `address` to listen on")
	untilEOF := flags.Bool("until-eof", false, "end when standard input does, which happens when the parent process dies")
	output := flags.String("o", "", "`json` for one line when ready")
	if err := flags.Parse(args); err != nil {
		return fault.New(fault.Invalid, "Usage", err)
	}
	if (*dir == "") != *ephemeral || flags.NArg() > 0 || (*output != "" && *output != "json") {
		return fault.New(fault.Invalid, "Usage", errors.New(usage))
	}
	if *untilEOF {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		go func() {
			defer cancel()
			_, _ = io.Copy(io.Discard, os.Stdin) // an error is an end too
		}()
	}
	if *ephemeral {
		if *dir, err = os.MkdirTemp("", "terrier-control-plane-"); err != nil {
			return fmt.Errorf("making a temporary data directory: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(*dir)) }()
	}
	pace.Keep(ctx, machine.Memory(os.DirFS("/")))
	server, err := kubeapi.Start(ctx, kubeapi.Options{
		Dir:           *dir,
		Address:       *address,
		Log:           slog.New(slog.NewTextHandler(stderr, nil)),
		UnsafeNoFsync: *ephemeral,
	})
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		_, err = fmt.Fprintln(stderr, "terrier:", err)
		return err
	}
	if err != nil {
		return err
	}
	debug.FreeOSMemory() // starting takes twice what running does
	if *output == "json" {
		err = json.NewEncoder(stdout).Encode(ready{Ready: true, Address: server.Address(), Kubeconfig: server.Kubeconfig()})
	} else {
		_, err = fmt.Fprintf(stdout, "ready: export KUBECONFIG=%s\n", server.Kubeconfig())
	}
	return errors.Join(err, server.Wait())
}
