package worker

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"time"

	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/policy/document"
	"github.com/terrier-iac/terrier/internal/review/rego"
)

// argument is the first argument of terrier that makes it a worker. The second is how many
// bytes its objects may need.
const argument = "evaluate-policies"

// Main must be called in the main function of a program that has a Pool, after
// sandbox.Main. In a worker it never returns; else it does nothing.
func Main() {
	if len(os.Args) != 3 || os.Args[1] != argument {
		return
	}
	most, err := strconv.ParseUint(os.Args[2], 10, 64)
	if err != nil {
		fmt.Fprintln(os.Stderr, "terrier:", err)
		os.Exit(2)
	}
	go watchMemory(most)
	if err := serve(context.Background(), newServer(most), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "terrier:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

const (
	sampled    = 5 * time.Millisecond
	exitMemory = 3
)

// watchMemory ends a worker whose objects need more bytes than most: a call of a function
// makes large ones without a step at which an evaluation could be ended. Before that, garbage
// is collected whatever it costs.
func watchMemory(most uint64) {
	debug.SetMemoryLimit(int64(most / 3 * 2))
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	for range time.Tick(sampled) {
		metrics.Read(sample)
		if sample[0].Value.Uint64() > most {
			os.Exit(exitMemory)
		}
	}
}

// request is one thing that a worker does. One of its fields is set.
type request struct {
	Compile  *source   `json:"compile,omitempty"`
	Input    *input    `json:"input,omitempty"`
	Evaluate *evaluate `json:"evaluate,omitempty"`
	Early    *early    `json:"early,omitempty"`
}

// source is a policy to compile, and how it is called from then on.
type source struct {
	Set        string      `json:"set"`
	Source     rego.Source `json:"source"`
	Parameters any         `json:"parameters,omitempty"` // that it has to take
}

// input is what the policies that are evaluated next are shown.
type input struct {
	Document json.RawMessage `json:"document"` // of the plan, masked
	Facts    document.Facts  `json:"facts"`
	Object   map[string]any  `json:"object,omitempty"`
	Now      time.Time       `json:"now"`
}

// evaluate asks one policy about the last input.
type evaluate struct {
	Set        string `json:"set"`
	Policy     string `json:"policy"`
	Parameters any    `json:"parameters,omitempty"`
}

// early asks one policy about a stack that has no plan yet.
type early struct {
	Set        string         `json:"set"`
	Policy     string         `json:"policy"`
	Facts      document.Facts `json:"facts"`
	Parameters any            `json:"parameters,omitempty"`
}

// response answers a request.
type response struct {
	Findings []policy.Finding `json:"findings,omitempty"`
	Unknown  bool             `json:"unknown,omitempty"` // the set was not compiled here
	Error    string           `json:"error,omitempty"`
	Kind     fault.Kind       `json:"kind,omitempty"`
}

// Bounds of the sets that a worker holds. What it does not hold is compiled again.
const (
	setsKept  = 1000
	setsShare = 4   // of the memory of the worker: the others are for evaluations
	setWeight = 150 // bytes of memory for each byte of a text: see TestTheWeightOfSets
	setLeast  = 64 << 10
)

// serve answers requests until there are none.
func serve(ctx context.Context, s *server, in io.Reader, out io.Writer) error {
	dec, w := json.NewDecoder(bufio.NewReaderSize(in, 64<<10)), bufio.NewWriterSize(out, 64<<10)
	dec.UseNumber()
	enc := json.NewEncoder(w)
	for {
		var r request
		if err := dec.Decode(&r); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading a request: %w", err)
		}
		if err := enc.Encode(s.answer(ctx, r)); err != nil {
			return fmt.Errorf("writing a response: %w", err)
		}
		if err := w.Flush(); err != nil {
			return fmt.Errorf("writing a response: %w", err)
		}
	}
}

// server is what a worker holds between two requests.
type server struct {
	sets  cache.Map[string, *rego.Set]
	last  string // the set that was compiled last, which is held however large it is
	set   *rego.Set
	input *rego.Input
}

// newServer returns the server of a worker whose objects may need so many bytes.
func newServer(memory uint64) *server {
	return &server{sets: cache.Map[string, *rego.Set]{
		Size: setsKept, Weight: int(memory / setsShare), Weigh: func(_ string, s *rego.Set) int { return setLeast + setWeight*s.Size() },
	}}
}

// known returns a set that was compiled here.
func (s *server) known(name string) (*rego.Set, bool) {
	if set, ok := s.sets.Get(name); ok {
		return set, true
	}
	return s.set, s.set != nil && s.last == name
}

// answer does what a request asks for. A panic is an error of the policy.
func (s *server) answer(ctx context.Context, r request) (out response) {
	defer func() {
		if p := recover(); p != nil {
			out = failed(fault.New(fault.Invalid, "PolicyInvalid", fmt.Errorf("the policy broke off: %.200v", p)))
		}
	}()
	switch {
	case r.Compile != nil:
		set, err := rego.Compile(ctx, r.Compile.Source)
		if err != nil {
			return failed(err)
		}
		if err := rego.CheckParameters(set, r.Compile.Parameters); err != nil {
			return failed(fault.New(fault.Invalid, "PolicyInvalid", err))
		}
		s.sets.Put(r.Compile.Set, set)
		s.last, s.set = r.Compile.Set, set
	case r.Input != nil:
		s.input = nil
		doc, err := document.Make(r.Input.Document, r.Input.Facts)
		if err != nil {
			return failed(err)
		}
		if s.input, err = rego.NewInput(doc, r.Input.Object, r.Input.Now); err != nil {
			return failed(err)
		}
	case r.Evaluate != nil:
		set, ok := s.known(r.Evaluate.Set)
		if !ok {
			return response{Unknown: true}
		}
		if s.input == nil {
			return failed(errors.New("there is no input"))
		}
		out.Findings = set.Evaluate(ctx, rego.Question{Policy: r.Evaluate.Policy, Input: s.input, Parameters: r.Evaluate.Parameters})
	case r.Early != nil:
		set, ok := s.known(r.Early.Set)
		if !ok {
			return response{Unknown: true}
		}
		known, err := document.Early(r.Early.Facts)
		if err == nil {
			out.Findings, err = set.Early(ctx, r.Early.Policy, known, r.Early.Parameters)
		}
		if err != nil {
			return failed(err)
		}
	}
	return out
}

func failed(err error) response { return response{Error: err.Error(), Kind: fault.Of(err)} }
