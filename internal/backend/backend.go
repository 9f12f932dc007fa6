// Package backend is the port of backends as plug-ins: what Terrier asks of a place for
// states, the protocol by which a program answers, and the backends that Terrier knows.
//
//	supervisor ── Request, one JSON object on stdin ──▶ program in the run's sandbox
//	           ◀── Reply, one JSON object on stdout ──  then it ends
//
// The package computes only. Package provision makes buckets and tables, in a program of
// its own; the supervisor of a run starts that program, and the controller never does.
//
// Start reading at Request. Builtin finds the backends that Terrier knows.
package backend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// AdoptStateOf is the annotation of a stack that takes over the state of a stack of another
// cluster. It names the UID of that cluster.
const AdoptStateOf = "terrier.dev/adopt-state-of"

// Version is that of the protocol. A program refuses a request of another version.
const Version = 1

// Operation is what a request asks for.
type Operation string

// The operations.
const (
	Validate Operation = "validate" // are the settings right? Nothing is read from outside
	Ensure   Operation = "ensure"   // make what the backend needs; a second one writes nothing
	Render   Operation = "render"   // the backend block of the engine; nothing is read from outside
	Destroy  Operation = "destroy"  // remove what Ensure made; only a user asks for it
)

// Request is what a program is asked.
type Request struct {
	Version   int               `json:"version"`
	Operation Operation         `json:"operation"`
	Backend   string            `json:"backend"`
	Settings  map[string]string `json:"settings"`
	Stack     Stack             `json:"stack"`
	Engine    string            `json:"engine,omitempty"` // tofu 1.12.6

	// Expected says that the state exists. Ensure then creates nothing that could hold it:
	// a place that is gone took the state with it, and an empty one in its stead would let
	// the engine create every resource again.
	Expected bool `json:"expected,omitempty"`
	Force    bool `json:"force,omitempty"` // destroy: also if the state is there

	// Formerly are UIDs of clusters whose place the cluster of the stack takes: their states
	// are its states.
	Formerly []string `json:"formerly,omitempty"`
}

// Stack is the stack whose state it is. Namespace and Name are unique among all kinds of
// stack in a cluster.
type Stack struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Workspace string `json:"workspace,omitempty"` // empty means default

	// Cluster is the UID of the cluster. Stacks of two clusters may have one name; a backend
	// that they share tells them apart by it. It is empty where it is not known.
	Cluster string `json:"cluster,omitempty"`
}

// Reply is what a program answers.
type Reply struct {
	Version  int      `json:"version"`
	Messages []string `json:"messages,omitempty"` // what was done, for the log of the run
	Block    *Block   `json:"block,omitempty"`    // of render
	Error    *Error   `json:"error,omitempty"`
}

// Environment is what errors about missing credentials call the place for them.
const Environment = "the environment of the run"

// Error is why a request failed.
type Error struct {
	Field   string `json:"field,omitempty"` // the setting that is wrong
	Message string `json:"message"`
}

func (e *Error) Error() string {
	if e.Field == "" {
		return e.Message
	}
	return "the setting " + e.Field + " " + e.Message
}

// wrong is an error about a setting.
func wrong(field, format string, args ...any) error {
	return &Error{Field: field, Message: fmt.Sprintf(format, args...)}
}

// Plugin is one backend.
type Plugin interface {
	Validate(Request) error
	Ensure(ctx context.Context, r Request, say func(string)) error
	Render(Request) (Block, error)
	Destroy(ctx context.Context, r Request, say func(string)) error
}

// maxMessage bounds a request and a reply, in bytes.
const maxMessage = 1 << 20

// Serve answers the one request on in. The error is about the conversation alone: what
// became of the request is in the reply.
func Serve(ctx context.Context, in io.Reader, out io.Writer, find func(name string) (Plugin, bool)) error {
	var r Request
	if err := json.NewDecoder(io.LimitReader(in, maxMessage)).Decode(&r); err != nil {
		return fmt.Errorf("reading the request: %w", err)
	}
	reply := Reply{Version: Version}
	say := func(text string) { reply.Messages = append(reply.Messages, text) }
	if err := answer(ctx, r, &reply, say, find); err != nil {
		e, ok := errors.AsType[*Error](err)
		if !ok {
			e = &Error{Message: err.Error()}
		}
		reply.Error, reply.Block = e, nil
	}
	return json.NewEncoder(out).Encode(reply)
}

func answer(ctx context.Context, r Request, reply *Reply, say func(string), find func(name string) (Plugin, bool)) error {
	if r.Version != Version {
		return fmt.Errorf("the request has version %d of the protocol, and this program speaks version %d: install programs of one release", r.Version, Version)
	}
	p, ok := find(r.Backend)
	if !ok {
		return fmt.Errorf("this program has no backend %q", r.Backend)
	}
	if err := p.Validate(r); err != nil {
		return err
	}
	switch r.Operation {
	case Validate:
		return nil
	case Ensure:
		return p.Ensure(ctx, r, say)
	case Render:
		b, err := p.Render(r)
		reply.Block = &b
		return err
	case Destroy:
		return p.Destroy(ctx, r, say)
	default:
		return fmt.Errorf("there is no operation %q", r.Operation)
	}
}

// ReadReply reads what a program wrote.
func ReadReply(data []byte, of Operation) (Reply, error) {
	var r Reply
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("it did not answer with one JSON object: %w", err)
	}
	switch {
	case r.Version != Version:
		return r, fmt.Errorf("it answered in version %d of the protocol, and not in version %d", r.Version, Version)
	case r.Error != nil:
		return r, r.Error
	case of == Render && r.Block == nil:
		return r, errors.New("it answered without a backend block")
	}
	return r, nil
}
