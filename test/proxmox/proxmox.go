// Package proxmox stands in for the HTTP API of Proxmox VE, which cannot be had on a
// machine without virtualisation. It keeps nodes, storages, pools, API tokens, virtual
// machines and tasks, and answers as release 8.4 documents it:
// https://pve.proxmox.com/pve-docs/api-viewer/ and https://pve.proxmox.com/wiki/Proxmox_VE_API.
//
// It starts no virtual machine: a machine that runs has the status running, and its guest
// agent answers with the addresses that cloud-init would have given it, and with the files
// that were written through it. It has no tickets,
// no containers, no snapshots, no backups and no firewall, and it answers paths that it
// does not know with 501.
//
// Below /stand-in it takes faults and manual changes, and tells which calls came.
//
// Start reading at routes.go.
package proxmox

import (
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// Options say what a Server begins with.
type Options struct {
	Estate Estate
	// File keeps the estate as JSON, and is read at the start if it is there. Empty: memory.
	File string
	// TaskTime is how long each task runs. A task of no time is over at the next request.
	TaskTime time.Duration
	// Now is the clock; time.Now where it is nil.
	Now func() time.Time
	// Admin is the secret of /stand-in. Without one all its paths are refused.
	Admin string
}

// maxCalls is how many calls are remembered.
const maxCalls = 10_000

// Server is one cluster of Proxmox VE.
type Server struct {
	o   Options
	mux *http.ServeMux

	mu     sync.Mutex
	estate Estate
	calls  []Call
	faults []Fault
}

// Call is a request to the API, as it came.
type Call struct {
	Method string     `json:"method"`
	Path   string     `json:"path"` // below /api2/json/
	Form   url.Values `json:"form"` // of the query and the body
	User   string     `json:"user"` // the token without its secret; empty if it is not known
	Status int        `json:"status"`
}

// New makes a server. It fails if Options.File is there and cannot be read.
func New(o Options) (*Server, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Server{o: o, estate: o.Estate, mux: http.NewServeMux()}
	if o.File != "" {
		text, err := os.ReadFile(o.File)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, err
		default:
			s.estate = Estate{}
			if err := json.Unmarshal(text, &s.estate); err != nil {
				return nil, fmt.Errorf("reading %s: %w", o.File, err)
			}
		}
	}
	if s.estate.VMs == nil {
		s.estate.VMs = map[int]*VM{}
	}
	s.routes()
	s.admin()
	return s, nil
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// request is one call of the API, with the estate locked.
type request struct {
	*http.Request
	*Estate
	form  url.Values
	token *Token
	now   time.Time
	time  time.Duration // of a task
	fail  string        // what the task of this call shall end with
}

// refusal is an answer that is no success.
type refusal struct {
	status  int
	message string
	errors  map[string]string // by parameter
}

func (r refusal) Error() string { return r.message }

// broken is the status of nearly every error of Proxmox VE.
func broken(format string, args ...any) error {
	return refusal{status: http.StatusInternalServerError, message: fmt.Sprintf(format, args...)}
}

func badParameter(name, format string, args ...any) error {
	return refusal{status: http.StatusBadRequest, message: "Parameter verification failed.", errors: map[string]string{name: fmt.Sprintf(format, args...)}}
}

type handler func(*request) (any, error)

// handle answers one method and path below /api2/json.
func (s *Server) handle(pattern string, h handler) {
	method, path, _ := strings.Cut(pattern, " ")
	s.mux.HandleFunc(method+" /api2/json/"+path, func(w http.ResponseWriter, r *http.Request) {
		// The real one takes parameters in the body of a DELETE as well; no client here sends any.
		if err := r.ParseForm(); err != nil {
			answer(w, nil, refusal{status: http.StatusBadRequest, message: err.Error()})
			return
		}
		path := strings.TrimPrefix(r.URL.Path, "/api2/json/")
		fault := s.strike(r.Method, path)
		if fault.Delay > 0 {
			timer := time.NewTimer(fault.Delay)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-r.Context().Done():
				return
			}
		}
		data, err := s.call(r, path, h, fault)
		if fault.Lost {
			panic(http.ErrAbortHandler) // closes the connection
		}
		answer(w, data, err)
	})
}

// call does what is asked for, alone, and notes that it was asked.
func (s *Server) call(r *http.Request, path string, h handler, fault Fault) (data any, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	call := Call{Method: r.Method, Path: path, Form: r.Form, Status: http.StatusOK}
	q := &request{Request: r, Estate: &s.estate, form: r.Form, now: s.o.Now(), time: s.o.TaskTime, fail: fault.Task}
	q.settle(q.now)
	q.token, err = q.authenticate(r.Header.Get("Authorization"))
	if err == nil {
		call.User = q.token.ID
		if fault.Status != 0 {
			err = refusal{status: fault.Status, message: fault.Message}
		} else {
			data, err = h(q)
		}
	}
	var refused refusal
	if errors.As(err, &refused) {
		call.Status = refused.status
	}
	if s.calls = append(s.calls, call); len(s.calls) > maxCalls {
		s.calls = s.calls[1:]
	}
	if saved := s.save(); saved != nil {
		return nil, saved
	}
	return data, err
}

// save writes the estate to its file. A reader sees the whole old or the whole new one.
func (s *Server) save() error {
	if s.o.File == "" {
		return nil
	}
	text, err := json.MarshalIndent(s.estate, "", "  ")
	if err == nil {
		err = os.WriteFile(s.o.File+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(s.o.File+".new", s.o.File)
	}
	return err
}

// answer writes what the API answers: {"data": …}, and for a refusal a message and errors by
// parameter.
func answer(w http.ResponseWriter, data any, err error) {
	body, status := map[string]any{"data": data}, http.StatusOK
	if err != nil {
		var refused refusal
		if !errors.As(err, &refused) {
			refused = refusal{status: http.StatusInternalServerError, message: err.Error()}
		}
		status = refused.status
		body = map[string]any{"data": nil, "message": refused.message + "\n"}
		if len(refused.errors) > 0 {
			body["errors"] = refused.errors
		}
	}
	w.Header().Set("Content-Type", "application/json;charset=UTF-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client is gone if it fails
}

// VMs are copies of all virtual machines and templates, by number.
func (s *Server) VMs() map[int]VM {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.estate.settle(s.o.Now())
	all := map[int]VM{}
	for id, vm := range s.estate.VMs {
		all[id] = vm.copy()
	}
	return all
}

// Tagged are the machines with a tag, in the order of their numbers. Templates are none.
func (s *Server) Tagged(tag string) []VM {
	var found []VM
	all := s.VMs()
	for _, id := range slices.Sorted(maps.Keys(all)) {
		if vm := all[id]; !vm.Template && slices.Contains(tagsOf(vm.Config["tags"]), tag) {
			found = append(found, vm)
		}
	}
	return found
}

// AnyRuns reports whether a machine runs.
func (s *Server) AnyRuns() bool {
	for _, vm := range s.VMs() {
		if vm.Running && !vm.Template && vm.Pool != "" { // those of tenants
			return true
		}
	}
	return false
}

// Calls are the newest calls whose method and path match, in order. An empty method or path is
// any; path is a pattern of package path.
func (s *Server) Calls(method, pattern string) []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []Call
	for _, c := range s.calls {
		if (method == "" || c.Method == method) && matches(pattern, c.Path) {
			found = append(found, c)
		}
	}
	return found
}

// Manually changes a machine past the API, as an administrator does at a console. It reports
// whether the machine is there.
func (s *Server) Manually(id int, change func(*VM)) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.estate.settle(s.o.Now())
	vm, ok := s.estate.VMs[id]
	if ok {
		change(vm)
	}
	return ok, s.save()
}

// Remove deletes a machine past the API. One that is not there is removed already.
func (s *Server) Remove(id int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.estate.settle(s.o.Now())
	delete(s.estate.VMs, id)
	return s.save()
}

// Reserve has the DHCP server give an address to a MAC address; an empty one ends the
// reservation.
func (s *Server) Reserve(mac, address string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.estate.Reservations == nil {
		s.estate.Reservations = map[string]string{}
	}
	if s.estate.Reservations[strings.ToUpper(mac)] = address; address == "" {
		delete(s.estate.Reservations, strings.ToUpper(mac))
	}
	return s.save()
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
