package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/terrier-iac/terrier/internal/failpoint"
)

// Program is the main function of terrier-runner, but for sandbox.Main: it
// supervises the one job on standard input. Both signals mean the same, however
// often they come: stop politely. What happens after the grace period is the
// supervisor's decision.
func Program(args []string, version string) error {
	switch {
	case len(args) == 1 && args[0] == "version":
		fmt.Println("terrier-runner", version)
		return nil
	case len(args) == 1 && args[0] == argHealth:
		return answerHealth(os.Stdin, os.Stdout, time.Now)
	case len(args) != 2 || args[0] != "supervise":
		return errors.New("usage: terrier-runner supervise DIR < job | terrier-runner version")
	}
	// Here and not in main, which the programs inside a sandbox go through as
	// well.
	if err := failpoint.Arm(os.Getenv(failpoint.Env)); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM, syscall.SIGINT)
	// Received and dropped, for what is ignored would stay so in the sandbox.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGPIPE)
	go func() {
		<-asked
		stop()
	}()

	ready := func(err error) {
		sendAnswer(os.Stdout, err)
		_ = os.Stdout.Close() // the starter waits for the end of it
	}
	o, err := ReadOrder(os.Stdin)
	if err != nil {
		ready(err)
		return err
	}
	_ = os.Stdin.Close()
	_, err = Supervise(ctx, o.Job, Supervisor{Dir: args[1], Host: o.Host, Asks: o.Asks, Now: time.Now, Ready: ready})
	return err
}
