package proxmox

import (
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"path"
	"slices"
	"strconv"
	"time"
)

// Fault is a failure of the calls that match.
type Fault struct {
	Method string        `json:"method,omitempty"` // empty is any
	Path   string        `json:"path"`             // pattern of package path, below /api2/json/: nodes/*/qemu/*/clone; empty is any
	Times  int           `json:"times,omitempty"`  // how often; 0 is always
	Delay  time.Duration `json:"delay,omitempty"`  // before anything is done, in nanoseconds
	Status int           `json:"status,omitempty"` // answered in place of doing it: 500, 595
	// Message is the one of that answer.
	Message string `json:"message,omitempty"`
	// Task is what the task of the call ends with.
	Task string `json:"task,omitempty"`
	// Lost closes the connection after all was done, without an answer.
	Lost bool `json:"lost,omitempty"`
}

func matches(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return pattern == "" || err == nil && ok
}

// Fault has calls go wrong from now on. The first one that matches a call strikes.
func (s *Server) Fault(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, f)
}

// Heal ends all faults.
func (s *Server) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

// strike returns the fault of a call, and counts it.
func (s *Server) strike(method, name string) Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, f := range s.faults {
		if f.Method != "" && f.Method != method || !matches(f.Path, name) {
			continue
		}
		if f.Times == 1 {
			s.faults = slices.Delete(s.faults, i, i+1)
		} else if f.Times > 1 {
			s.faults[i].Times--
		}
		return f
	}
	return Fault{}
}

// Change is what an administrator changes of a machine past the API.
type Change struct {
	Set     map[string]string `json:"set,omitempty"`
	Delete  []string          `json:"delete,omitempty"`
	Running *bool             `json:"running,omitempty"`
	Lock    *string           `json:"lock,omitempty"`
	Pool    *string           `json:"pool,omitempty"`
}

// apply changes a machine.
func (c Change) apply(vm *VM) {
	for name, v := range c.Set {
		vm.Config[name] = v
		delete(vm.Pending, name)
	}
	for _, name := range c.Delete {
		delete(vm.Config, name)
	}
	if c.Running != nil {
		vm.power(*c.Running)
	}
	if c.Lock != nil {
		vm.Lock = *c.Lock
	}
	if c.Pool != nil {
		vm.Pool = *c.Pool
	}
}

// admin answers below /stand-in, for who has the secret.
func (s *Server) admin() {
	s.mux.HandleFunc("/stand-in/{what}", s.administrate)
	s.mux.HandleFunc("/stand-in/{what}/{id}", s.administrate)
}

func (s *Server) administrate(w http.ResponseWriter, r *http.Request) {
	if s.o.Admin == "" || !same(r.Header.Get("Authorization"), "Bearer "+s.o.Admin) {
		answer(w, nil, refusal{status: http.StatusUnauthorized, message: "give the secret of the stand-in: Authorization: Bearer SECRET"})
		return
	}
	data, err := s.deed(r)
	answer(w, data, err)
}

func (s *Server) deed(r *http.Request) (any, error) {
	id, _ := strconv.Atoi(cmp.Or(r.PathValue("id"), "0")) // 0 is no machine
	switch r.Method + " " + r.PathValue("what") {
	case "GET vms":
		return s.VMs(), nil
	case "GET calls":
		return s.Calls("", r.FormValue("path")), nil
	case "POST faults":
		var f Fault
		if err := decode(r, &f); err != nil {
			return nil, err
		}
		s.Fault(f)
		return nil, nil
	case "DELETE faults":
		s.Heal()
		return nil, nil
	case "PATCH vms":
		var c Change
		if err := decode(r, &c); err != nil {
			return nil, err
		}
		there, err := s.Manually(id, c.apply)
		if err == nil && !there {
			err = refusal{status: http.StatusNotFound, message: "there is no VM " + r.PathValue("id")}
		}
		return nil, err
	case "DELETE vms":
		return nil, s.Remove(id)
	case "PUT reservations":
		return nil, s.Reserve(r.PathValue("id"), r.FormValue("address"))
	default:
		return nil, refusal{status: http.StatusNotImplemented, message: "the stand-in has no " + r.Method + " " + r.URL.Path}
	}
}

func decode(r *http.Request, into any) error {
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(into); err != nil {
		return refusal{status: http.StatusBadRequest, message: err.Error()}
	}
	return nil
}
