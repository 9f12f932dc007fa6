package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/backend"
	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/runner/disk"
	"github.com/terrier-iac/terrier/internal/sandbox"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// A stack whose state is where a plug-in says has one more step before init. The plug-in is
// a program in the sandbox of the run, with the environment of the run: so with the
// credentials of the stack, and with no others.
//
//	prepare ── validate ── ensure ── render ── the override file ── init
//	           └──────────── kept ───────────┘
//
// The block is kept beside the work directory. While the directory stays initialised for it,
// a run that only reads does not start the program. One that writes asks it to ensure the
// place once more: meanwhile the state may have become that of another cluster. A run that
// fails forgets the block, so that the next one finds out whether the place of the state is
// still there.

const (
	stepBackend   = "backend"
	backendInside = "/backend"
	fileBlock     = "backend.json"    // in STACK: keptBlock
	builtinName   = "terrier-backend" // the program of the backends that Terrier knows, beside this one
	maxReply      = 1 << 20           // bytes that a program may write
	backendLimit  = 5 * time.Minute   // of one operation
)

// Reasons of a run that has no backend.
const (
	BackendFailed    = "BackendFailed"    // the plug-in did not do its work
	StateWouldBeLost = "StateWouldBeLost" // the state would end with the run
)

// keptBlock is a block that a plug-in rendered, and for what.
type keptBlock struct {
	Key   string        `json:"key"`
	Block backend.Block `json:"block"`
}

// pluggedBackend is the part of a run that gets the backend from a plug-in.
type pluggedBackend struct {
	*run
	program string // on this machine
}

// provide asks the plug-in, if there is one, and puts its block where the engine reads it.
func (r *pluggedBackend) provide(ctx context.Context) error {
	if r.job.Backend == nil {
		return nil
	}
	key, err := r.find()
	if err != nil {
		return err
	}
	before, known := r.kept(key)
	kept := before
	switch {
	case !r.directory.ready || !known:
		if kept, err = r.ask(ctx); err != nil {
			return err
		}
		if err := r.initAgain(before, kept); err != nil {
			return err
		}
	case r.job.Kind.Writes():
		if err := r.ensure(ctx); err != nil {
			return err
		}
	}
	if err := r.lasting(kept); err != nil {
		return err
	}
	r.job.Options.BackendType = kept.Type
	if err := r.place(kept); err != nil {
		return err
	}
	if r.directory.initialised() {
		if err := r.directory.rightBackend(); err != nil {
			return err
		}
	}
	return disk.WriteJSON(r.work.path(fileBlock), keptBlock{Key: key, Block: kept})
}

// forget lets the next run ask the plug-in again.
func (r *pluggedBackend) forget() error {
	var k keptBlock
	if r.job.Backend == nil || disk.ReadJSON(r.work.path(fileBlock), &k) != nil {
		return nil
	}
	k.Key = ""
	return disk.WriteJSON(r.work.path(fileBlock), k)
}

// initAgain has the engine configure the backend once more, if the directory was
// initialised for another block.
func (r *pluggedBackend) initAgain(before, now backend.Block) error {
	was, err := before.HCL()
	is, wrong := now.HCL()
	if wrong != nil {
		return r.failed(fault.Invalid, BackendFailed, wrong)
	}
	if err != nil || !r.directory.initialised() || was == is {
		return nil // nothing is known of an earlier block, or it is the same
	}
	tree, err := r.work.open(dirTree)
	if err != nil {
		return err
	}
	defer tree.Close()
	r.reportFile.set(func(rep *Report) { rep.InitSkipped = false })
	return tree.RemoveAll(path.Join(r.work.root, engine.BackendFile))
}

// find finds the program, and names what its answer depends on.
func (r *pluggedBackend) find() (key string, err error) {
	name := r.job.Backend.Name
	r.program = r.host.Backends[name]
	if _, builtin := backend.Find(name); r.program == "" && builtin {
		if r.program, err = besideThis(builtinName); err != nil {
			return "", err
		}
	}
	if r.program == "" {
		names := slices.Sorted(maps.Keys(r.host.Backends))
		return "", r.failed(fault.Invalid, BackendFailed, fmt.Errorf("unsupported backend: %.80q; there are %s",
			name, strings.Join(append(names, backend.Names()...), ", ")))
	}
	stamp, err := engineStamp(r.program)
	if err != nil {
		return "", r.failed(fault.Missing, BackendFailed, fmt.Errorf("the program of the backend %s is not on the machine of the run: %w", name, err))
	}
	data, err := json.Marshal([]any{1, r.request(""), stamp})
	return digest(data), err
}

// besideThis is a program in the directory of this one.
func besideThis(name string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding this program: %w", err)
	}
	return filepath.Join(filepath.Dir(self), name), nil
}

func (r *pluggedBackend) kept(key string) (backend.Block, bool) {
	var k keptBlock
	err := disk.ReadJSON(r.work.path(fileBlock), &k)
	return k.Block, err == nil && k.Key == key
}

// request is what the program is asked, but for whether the state is expected.
func (r *pluggedBackend) request(o backend.Operation) backend.Request {
	b := r.job.Backend
	return backend.Request{Version: backend.Version, Operation: o, Backend: b.Name, Settings: b.Settings, Stack: b.Stack, Engine: r.job.Engine.String(), Formerly: b.Formerly}
}

// ask has the plug-in do all that a run needs.
func (r *pluggedBackend) ask(ctx context.Context) (backend.Block, error) {
	if err := r.enter(ctx, Initializing, stepBackend); err != nil {
		return backend.Block{}, err
	}
	if _, err := r.call(ctx, r.request(backend.Validate)); err != nil {
		return backend.Block{}, err
	}
	if err := r.ensure(ctx); err != nil {
		return backend.Block{}, err
	}
	reply, err := r.call(ctx, r.request(backend.Render))
	if err != nil {
		return backend.Block{}, err
	}
	return *reply.Block, nil
}

// ensure has the plug-in make the place of the state, unless the state must be there.
func (r *pluggedBackend) ensure(ctx context.Context) error {
	q := r.request(backend.Ensure)
	// What a plan was made of exists, and so does what is destroyed or looked into. A
	// ScriptRun may be the first run of its stack: only the controller knows.
	q.Expected = r.job.Backend.Expected || r.job.Kind == stack.ApplyRun || r.job.Kind == stack.DestroyRun || r.job.Kind == stack.BreakGlassRun
	if err := r.enter(ctx, Initializing, stepBackend); err != nil {
		return err
	}
	_, err := r.call(ctx, q)
	return err
}

// call starts the program once.
func (r *pluggedBackend) call(ctx context.Context, q backend.Request) (backend.Reply, error) {
	question, err := json.Marshal(q)
	if err != nil {
		return backend.Reply{}, fmt.Errorf("encoding the request: %w", err)
	}
	r.recorder.begin("backend " + q.Backend)
	inside := path.Join(backendInside, filepath.Base(r.program))
	config := r.sandbox.config
	config.Listen = false
	config.ReadOnly = append(slices.Clone(config.ReadOnly), sandbox.Bind{Host: r.program, Inside: inside})
	out, text := &capped{most: maxReply}, r.recorder.lines()
	alive, kill := context.WithCancel(context.WithoutCancel(ctx)) // as with an engine
	defer kill()
	p, err := sandbox.Start(alive, sandbox.Command{
		Path: config.PathInside(inside), Env: r.sandbox.environ(), Sandbox: &config,
		Stdin: bytes.NewReader(question), Stdout: out, Stderr: text,
	})
	if err != nil {
		return backend.Reply{}, r.failed(fault.Broken, BackendFailed, fmt.Errorf("starting %s: %w", r.program, err))
	}
	if err := r.engine.track(p); err != nil {
		return backend.Reply{}, errors.Join(err, p.Kill())
	}
	stopped, exit, err := r.engine.await(ctx, stepBackend, p)
	if err != nil {
		return backend.Reply{}, fmt.Errorf("asking the backend %s: %w", q.Backend, err)
	}
	_ = text.Close()
	r.reportFile.set(func(rep *Report) {
		rep.Steps = append(rep.Steps, Step{Name: stepBackend + " " + string(q.Operation), Exit: exit.Code, Wall: exit.Wall, CPU: exit.CPU, MaxRSS: exit.MaxRSS})
	})
	if _, err := r.engine.judge(command{step: stepBackend}, stopped, exit); err != nil {
		return backend.Reply{}, err
	}
	if out.over {
		return backend.Reply{}, r.failed(fault.Broken, BackendFailed, fmt.Errorf("it answered with more than %d bytes", maxReply))
	}
	reply, err := backend.ReadReply(out.Bytes(), q.Operation)
	for _, m := range reply.Messages {
		r.recorder.logf("%s", m)
	}
	if err == nil {
		return reply, nil
	}
	kind := fault.Broken
	if said, ok := errors.AsType[*backend.Error](err); ok && (said.Field != "" || q.Operation != backend.Ensure) {
		kind = fault.Invalid // no other run of the same would do better
	}
	if way := r.job.Words.Credentials; way != "" && strings.Contains(err.Error(), backend.Environment) {
		err = fmt.Errorf("%w. %s", err, way)
	}
	return reply, r.failed(kind, BackendFailed, err)
}

// lasting refuses a backend whose state would end with the run.
func (r *pluggedBackend) lasting(b backend.Block) error {
	file := b.Text("path")
	switch {
	case b.Type == "inmem":
		return r.failed(fault.Denied, StateWouldBeLost, errors.New("it keeps the state in the memory of the engine, and it would be lost with the run"))
	case b.Type != "local":
		return nil
	case r.asks: // a pod
		return r.failed(fault.Denied, StateWouldBeLost, errors.New("it keeps the state in a file of one machine, and the state would be lost with the pod of the run. Use another backend"))
	case slices.ContainsFunc(r.host.Writable, func(dir string) bool {
		return path.IsAbs(file) && strings.HasPrefix(path.Clean(file), path.Clean(dir)+"/")
	}):
		return nil
	}
	return r.failed(fault.Denied, StateWouldBeLost, fmt.Errorf(
		"the state would be lost with the directory of the run, for %.200q is below no directory that outlives it. Name a file below one that the operator lets runs write with --run-writable, or use another backend", file))
}

// place writes the override file.
func (r *pluggedBackend) place(b backend.Block) error {
	file, err := b.File()
	if err != nil {
		return r.failed(fault.Invalid, BackendFailed, err)
	}
	at := slices.IndexFunc(r.job.Files, func(f workdir.File) bool { return f.Path == file.Path })
	if at < 0 {
		return r.failed(fault.Broken, BackendFailed, errors.New("the job has no file for the backend"))
	}
	r.job.Files[at].Content = file.Content
	tree, err := r.work.open(dirTree)
	if err != nil {
		return err
	}
	defer tree.Close()
	if err := disk.WriteFresh(tree, path.Join(r.work.root, file.Path), file.Content, 0o600); err != nil {
		return fmt.Errorf("writing %s: %w", file.Path, err)
	}
	return sandbox.ChownWork(r.work.path(dirWork))
}

// failed ends the run because of the backend.
func (r *pluggedBackend) failed(kind fault.Kind, reason string, err error) error {
	return ending{outcome: stack.Failed, step: stepBackend, fault: kind, reason: reason, message: fmt.Sprintf("backend %s: %v", r.job.Backend.Name, err)}
}
