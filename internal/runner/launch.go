package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/terrier-iac/terrier/internal/failpoint"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/sandbox"
)

// launch starts the supervisor and waits for its first word.
func (p *Processes) launch(ctx context.Context, job Job, host Host) (pid int, err error) {
	dir := p.run(job.Key(), job.ID)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, err
	}
	// Where our own panic would be read. The job never goes to disk.
	last, err := os.OpenFile(filepath.Join(dir, fileStderr), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, err
	}
	defer last.Close()
	jobOut, jobIn, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer jobOut.Close()
	defer jobIn.Close()
	word, speak, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer word.Close()
	defer speak.Close()
	defer failpoint.Act("process.start", "supervisor")()
	proc, err := sandbox.Start(ctx, sandbox.Command{
		Path: p.config.Binary, Args: []string{"supervise", p.config.Dir}, Env: failpoint.Environ(),
		Stdin: jobOut, Stdout: speak, Stderr: last, Detached: true,
	})
	if err != nil {
		return 0, err
	}
	jobOut.Close()
	speak.Close()
	if err := sendOrder(ctx, p.config.StartLimit, jobIn, &Order{JobVersion, job, host, p.config.Asks}, word); err != nil {
		return 0, errors.Join(err, proc.Kill())
	}
	return proc.PID(), nil
}

// sendOrder hands the job over and reads the answer.
func sendOrder(ctx context.Context, limit time.Duration, in *os.File, o *Order, word *os.File) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	past := time.Unix(1, 0)
	defer context.AfterFunc(ctx, func() { _, _ = in.SetDeadline(past), word.SetDeadline(past) })()
	// A supervisor that cannot read the job says so; its answer is worth more
	// than the broken pipe.
	werr := o.Write(in)
	in.Close()
	answer, err := io.ReadAll(io.LimitReader(word, 64<<10))
	if err != nil {
		return fmt.Errorf("waiting for the supervisor: %w", errors.Join(err, context.Cause(ctx)))
	}
	if len(answer) == 0 {
		return errors.Join(errors.New("the supervisor ended without a word"), werr)
	}
	return readAnswer(answer)
}

// startAnswer is the supervisor's one answer to the process that started it:
// whether the run has started, and if not, the kind of failure.
type startAnswer struct {
	OK     bool          `json:"ok"`
	Kind   fault.Kind    `json:"kind,omitempty"`
	Reason string        `json:"reason,omitempty"`
	After  time.Duration `json:"after,omitempty"`
	Error  string        `json:"error,omitempty"`
}

// sendAnswer writes the supervisor's answer to w. An error is dropped: a
// starter that is gone finds the run by itself.
func sendAnswer(w io.Writer, err error) {
	a := startAnswer{OK: err == nil}
	if err != nil {
		a.Kind, a.Reason, a.Error = fault.Of(err), fault.Reason(err, ""), err.Error()
	}
	_ = json.NewEncoder(w).Encode(a)
}

// readAnswer is the other side of sendAnswer.
func readAnswer(answer []byte) error {
	var a startAnswer
	if err := json.Unmarshal(answer, &a); err != nil {
		return fmt.Errorf("the supervisor answered %.200q", answer)
	}
	if a.OK {
		return nil
	}
	return fault.New(a.Kind, a.Reason, errors.New(a.Error))
}

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
