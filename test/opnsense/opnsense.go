// Package opnsense stands in for the part of the HTTP API of OPNsense by which the reservations
// of its DHCP server, Kea, are kept: https://docs.opnsense.org/development/api/core/kea.html.
// A reservation counts once the service is reconfigured, as there. It has no subnets but those
// that it begins with, and answers paths that it does not know with 404.
package opnsense

import (
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/uuid"
)

// Options say what a Server begins with.
type Options struct {
	// Key and Secret are those of the one user that may change reservations.
	Key, Secret string
	// Subnets are the subnets by their numbers (UUIDs): 10.100.0.0/24.
	Subnets map[string]string
	// Serve has the DHCP server give an address to a MAC address; an empty one ends that. It is
	// called when the service is reconfigured.
	Serve func(mac, address string) error
	// File keeps the reservations as JSON, and is read at the start if it is there. Empty: memory.
	File string
}

// Reservation is an address that is kept for a machine.
type Reservation struct {
	Subnet      string `json:"subnet"` // its UUID
	Address     string `json:"ip_address"`
	MAC         string `json:"hw_address"`
	Hostname    string `json:"hostname"`
	Description string `json:"description"`
}

// Server is one router.
type Server struct {
	o   Options
	mux *http.ServeMux

	mu     sync.Mutex
	kept   map[string]Reservation // by UUID
	served map[string]string      // what the DHCP server has: addresses by MAC addresses
}

// New makes a server. It fails if Options.File is there and cannot be read.
func New(o Options) (*Server, error) {
	s := &Server{o: o, mux: http.NewServeMux(), kept: map[string]Reservation{}, served: map[string]string{}}
	if o.File != "" {
		text, err := os.ReadFile(o.File)
		if err == nil {
			err = json.Unmarshal(text, &s.kept)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("reading %s: %w", o.File, err)
		}
	}
	for pattern, answer := range map[string]func(*http.Request) (any, error){
		"POST /api/kea/dhcpv4/addReservation":        s.add,
		"GET /api/kea/dhcpv4/getReservation/{uuid}":  s.get,
		"POST /api/kea/dhcpv4/setReservation/{uuid}": s.set,
		"POST /api/kea/dhcpv4/delReservation/{uuid}": s.remove,
		"POST /api/kea/service/reconfigure":          s.reconfigure,
	} {
		s.handle(pattern, answer)
	}
	return s, s.settle()
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Reservations are copies of all reservations, by the host name.
func (s *Server) Reservations() map[string]Reservation {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]Reservation{}
	for _, r := range s.kept {
		all[r.Hostname] = r
	}
	return all
}

func (s *Server) handle(pattern string, h func(*http.Request) (any, error)) {
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json; charset=UTF-8")
		key, secret, _ := r.BasicAuth()
		if !same(key, s.o.Key) || !same(secret, s.o.Secret) {
			w.WriteHeader(http.StatusUnauthorized)
			_ = json.NewEncoder(w).Encode(map[string]any{"status": 401, "message": "Authentication Failed"}) // the client is gone if it fails
			return
		}
		s.mu.Lock()
		answer, err := h(r)
		if err == nil {
			err = s.save()
		}
		s.mu.Unlock()
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			answer = map[string]any{"errorMessage": err.Error(), "errorTitle": "An API exception occurred"}
		}
		_ = json.NewEncoder(w).Encode(answer) // the client is gone if it fails
	})
}

func same(a, b string) bool { return a != "" && subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// asked is what a request has of a reservation.
func asked(r *http.Request) (Reservation, error) {
	var body struct{ Reservation Reservation }
	err := json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&body)
	return body.Reservation, err
}

func (s *Server) add(r *http.Request) (any, error) {
	made, err := asked(r)
	if err != nil {
		return nil, err
	}
	return s.put(string(uuid.NewUUID()), made), nil
}

func (s *Server) set(r *http.Request) (any, error) {
	id := r.PathValue("uuid")
	changed, err := asked(r)
	if err != nil {
		return nil, err
	}
	if _, ok := s.kept[id]; !ok {
		return map[string]any{"result": "failed"}, nil
	}
	return s.put(id, changed), nil
}

// put keeps a reservation, or says what is wrong with its fields.
func (s *Server) put(id string, r Reservation) any {
	if wrong := s.wrong(id, r); len(wrong) > 0 {
		return map[string]any{"result": "failed", "validations": wrong}
	}
	s.kept[id] = r
	return map[string]any{"result": "saved", "uuid": id}
}

var macForm = regexp.MustCompile(`^[0-9A-Fa-f]{2}([:-][0-9A-Fa-f]{2}){5}$`)

// wrong are the fields that cannot be so, each with the reason that the router gives.
func (s *Server) wrong(id string, r Reservation) map[string]string {
	wrong := map[string]string{}
	subnet, known := s.o.Subnets[r.Subnet]
	if !known {
		wrong["reservation.subnet"] = "Related subnet not found."
	}
	address, err := netip.ParseAddr(r.Address)
	if err != nil || !address.Is4() {
		wrong["reservation.ip_address"] = "Please specify a valid network segment or address."
	} else if p, err := netip.ParsePrefix(subnet); known && (err != nil || !p.Contains(address)) {
		wrong["reservation.ip_address"] = "Address not in specified subnet"
	}
	if !macForm.MatchString(r.MAC) {
		wrong["reservation.hw_address"] = "A valid MAC address must be specified."
	}
	for other, o := range s.kept {
		if other == id {
			continue
		}
		if o.Address == r.Address {
			wrong["reservation.ip_address"] = "Duplicate entry exists."
		}
		if o.Subnet == r.Subnet && strings.EqualFold(o.MAC, r.MAC) {
			wrong["reservation.hw_address"] = "Duplicate entry exists."
		}
	}
	return wrong
}

// get answers with an empty list for a reservation that is not there.
func (s *Server) get(r *http.Request) (any, error) {
	kept, ok := s.kept[r.PathValue("uuid")]
	if !ok {
		return []any{}, nil
	}
	subnets := map[string]any{}
	for id, subnet := range s.o.Subnets {
		subnets[id] = map[string]any{"value": subnet, "selected": map[bool]int{true: 1}[id == kept.Subnet]}
	}
	return map[string]any{"reservation": map[string]any{
		"subnet": subnets, "ip_address": kept.Address, "hw_address": kept.MAC, "hostname": kept.Hostname, "description": kept.Description,
	}}, nil
}

func (s *Server) remove(r *http.Request) (any, error) {
	id := r.PathValue("uuid")
	if _, ok := s.kept[id]; !ok {
		return map[string]any{"result": "not found"}, nil
	}
	delete(s.kept, id)
	return map[string]any{"result": "deleted"}, nil
}

func (s *Server) reconfigure(*http.Request) (any, error) {
	return map[string]any{"status": "ok"}, s.settle()
}

// settle has the DHCP server know the reservations as they are now.
func (s *Server) settle() error {
	now := map[string]string{}
	for _, r := range s.kept {
		now[strings.ToUpper(strings.ReplaceAll(r.MAC, "-", ":"))] = r.Address
	}
	for mac := range s.served {
		if _, ok := now[mac]; !ok {
			if err := s.serve(mac, ""); err != nil {
				return err
			}
		}
	}
	for mac, address := range now {
		if err := s.serve(mac, address); err != nil {
			return err
		}
	}
	s.served = maps.Clone(now)
	return nil
}

func (s *Server) serve(mac, address string) error {
	if s.o.Serve == nil {
		return nil
	}
	return s.o.Serve(mac, address)
}

// save writes the reservations to their file. A reader sees the whole old or the whole new one.
func (s *Server) save() error {
	if s.o.File == "" {
		return nil
	}
	text, err := json.MarshalIndent(s.kept, "", "  ")
	if err == nil {
		err = os.WriteFile(s.o.File+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(s.o.File+".new", s.o.File)
	}
	return err
}
