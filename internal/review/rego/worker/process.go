package worker

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/sandbox"
)

// process is a worker that runs. One caller at a time uses it.
type process struct {
	program *sandbox.Process
	in      *os.File
	out     *os.File
	enc     *json.Encoder
	dec     *json.Decoder
	said    *tail // on its standard error
	dir     string
	memory  int64 // bytes that its objects may need
	used    bool  // it did something before: what breaks it now need not be to blame

	idle *time.Timer
}

// start starts a worker. It has no network, no files and no environment.
func start(scratch string, memory int64) (p *process, err error) {
	config, err := confined(scratch, memory)
	if err != nil {
		return nil, err
	}
	p = &process{said: &tail{}, dir: config.Work, memory: memory}
	theirIn, in, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(p.dir))
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, theirIn.Close(), in.Close(), os.RemoveAll(p.dir))
	}
	p.in, p.out = in, out
	// Without a context: the pool ends the process, and a process that outlives its starter is
	// killed by the kernel.
	p.program, err = sandbox.Start(context.Background(), sandbox.Command{
		Path: sandbox.Self, Args: []string{argument, strconv.FormatInt(memory, 10)}, Sandbox: config, Stdin: theirIn, Stdout: theirOut, Stderr: p.said,
	})
	err = errors.Join(err, theirIn.Close(), theirOut.Close())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting a process that evaluates policies: %w", err), in.Close(), out.Close(), os.RemoveAll(p.dir))
	}
	p.enc = json.NewEncoder(in)
	p.enc.SetEscapeHTML(false)
	p.dec = json.NewDecoder(bufio.NewReaderSize(out, 64<<10))
	p.dec.UseNumber()
	return p, nil
}

// confined is the sandbox of a worker. The kernel ends it at twice the memory at which it ends
// itself.
func confined(scratch string, memory int64) (*sandbox.Config, error) {
	level := sandbox.Probe().Level
	c := &sandbox.Config{
		Level: level, Network: sandbox.NoNetwork, TmpBytes: 1 << 20,
		Limits: sandbox.Limits{Memory: 2 * memory, FileBytes: 1, OpenFiles: 32, Processes: 64},
	}
	if level == sandbox.Basic {
		c.Network = sandbox.HostNetwork // which the level cannot remove
	}
	if level < sandbox.Full && os.Geteuid() == 0 {
		scratch = "" // the user of the sandbox cannot reach a directory of root
	} else if err := os.MkdirAll(scratch, 0o700); err != nil {
		return nil, err
	}
	var err error
	if c.Work, err = os.MkdirTemp(scratch, "policies-"); err != nil {
		return nil, err
	}
	if err := sandbox.ChownWork(c.Work); err != nil {
		return nil, errors.Join(err, os.RemoveAll(c.Work))
	}
	return c, nil
}

// exchange sends a request and reads the answer. A worker that does not answer in time is
// killed, and one that ended is told with its reason. After an error it is of no more use.
func (p *process) exchange(ctx context.Context, most time.Duration, r request) (response, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("it took longer than %v", most))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = p.program.Kill() }) // one that is over already is none
	var out response
	err := p.enc.Encode(r)
	if err == nil {
		err = p.dec.Decode(&out)
	}
	if !stop() {
		return out, context.Cause(ctx)
	}
	if err == nil {
		return out, nil
	}
	if _, isOurs := errors.AsType[*json.UnsupportedValueError](err); isOurs {
		return out, err
	}
	if kill := p.program.Kill(); kill != nil {
		return out, kill
	}
	exit, werr := p.program.Wait()
	switch {
	case werr != nil:
		return out, werr
	case exit.Code == exitMemory, exit.Memory.Kills > 0, strings.Contains(p.said.String(), "cannot allocate memory"), strings.Contains(p.said.String(), "out of memory"):
		return out, fmt.Errorf("it needs more than %d MiB of memory", p.memory>>20)
	case strings.Contains(p.said.String(), "stack overflow"):
		return out, errors.New("it is nested too deep")
	default:
		return out, fmt.Errorf("the process that evaluates policies ended: %v: %.300s", exit, p.said.String())
	}
}

// end ends the worker.
func (p *process) end() error {
	err := p.program.Kill()
	_, werr := p.program.Wait()
	return errors.Join(err, werr, p.in.Close(), p.out.Close(), os.RemoveAll(p.dir))
}

// failure is the error that a worker answered with.
func (r response) failure() error {
	if r.Error == "" {
		return nil
	}
	return fault.New(r.Kind, "", errors.New(r.Error))
}

// tail keeps the beginning of what a worker says on its standard error: the runtime says
// there why it ended, and then much more.
type tail struct {
	mu sync.Mutex
	b  bytes.Buffer
}

var _ io.Writer = (*tail)(nil)

const saidKept = 4 << 10

// Write implements io.Writer.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b.Write(b[:min(len(b), max(0, saidKept-t.b.Len()))])
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}
