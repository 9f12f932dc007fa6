// Package nameserver is an authoritative DNS server for tests and examples. It answers from
// memory, and takes updates (RFC 2136) that are signed with the key of their zone (TSIG, RFC
// 8945). Updates with prerequisites are refused, and there are no transfers and no DNSSEC.
package nameserver

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/miekg/dns"
)

// Key signs the updates of a zone.
type Key struct {
	Name   string // grooveiq.
	Secret string // in base64
}

// Server is one that runs.
type Server struct {
	zones   map[string]Key // by name: grooveiq.example.
	file    string
	address string
	udp     *dns.Server
	tcp     *dns.Server

	mu      sync.Mutex
	records []string // as zone files have them
}

// Start serves zones on an address of this machine, over UDP and TCP. The records are kept in
// file, unless it is empty.
func Start(address, file string, zones map[string]Key) (*Server, error) {
	s := &Server{zones: zones, file: file}
	if file != "" {
		text, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(text, &s.records)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	s.address = listener.Addr().String()
	packets, err := net.ListenPacket("udp", s.address)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	keys := map[string]string{}
	for _, k := range zones {
		keys[k.Name] = k.Secret
	}
	accept := func(dns.Header) dns.MsgAcceptAction { return dns.MsgAccept } // updates, too
	s.tcp = &dns.Server{Listener: listener, Handler: s, TsigSecret: keys, MsgAcceptFunc: accept}
	s.udp = &dns.Server{PacketConn: packets, Handler: s, TsigSecret: keys, MsgAcceptFunc: accept}
	for _, server := range []*dns.Server{s.tcp, s.udp} {
		ready := make(chan struct{})
		server.NotifyStartedFunc = func() { close(ready) }
		go func() { _ = server.ActivateAndServe() }() // until Close
		<-ready
	}
	return s, nil
}

// Address is where it listens: 127.0.0.1:5353.
func (s *Server) Address() string { return s.address }

// Close ends the server.
func (s *Server) Close() error { return errors.Join(s.udp.Shutdown(), s.tcp.Shutdown()) }

// Records are all records, as zone files have them, sorted.
func (s *Server) Records() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(slices.Values(s.records))
}

// ServeDNS answers one message.
func (s *Server) ServeDNS(w dns.ResponseWriter, r *dns.Msg) {
	m := new(dns.Msg)
	m.SetReply(r)
	s.mu.Lock()
	switch {
	case len(r.Question) != 1:
		m.Rcode = dns.RcodeFormatError
	case r.Opcode == dns.OpcodeUpdate:
		m.Rcode = s.update(w, r)
	case r.Opcode == dns.OpcodeQuery:
		s.query(m, r.Question[0])
	default:
		m.Rcode = dns.RcodeNotImplemented
	}
	s.mu.Unlock()
	if t := r.IsTsig(); t != nil && w.TsigStatus() == nil {
		m.SetTsig(t.Hdr.Name, t.Algorithm, 300, int64(t.TimeSigned))
	}
	_ = w.WriteMsg(m) // the client is gone if it fails
}

// zoneOf is the zone that a name is in.
func (s *Server) zoneOf(name string) (string, bool) {
	for zone := range s.zones {
		if dns.IsSubDomain(zone, name) {
			return zone, true
		}
	}
	return "", false
}

func (s *Server) query(m *dns.Msg, q dns.Question) {
	if _, ok := s.zoneOf(strings.ToLower(q.Name)); !ok {
		m.Rcode = dns.RcodeRefused
		return
	}
	m.Authoritative = true
	there := false
	for _, rr := range s.parsed() {
		if !strings.EqualFold(rr.Header().Name, q.Name) {
			continue
		}
		there = true
		if q.Qtype == dns.TypeANY || rr.Header().Rrtype == q.Qtype {
			m.Answer = append(m.Answer, rr)
		}
	}
	if !there {
		m.Rcode = dns.RcodeNameError
	}
}

func (s *Server) parsed() []dns.RR {
	var all []dns.RR
	for _, text := range s.records {
		if rr, err := dns.NewRR(text); err == nil { // they were written as text by dns
			all = append(all, rr)
		}
	}
	return all
}

// update changes records, and returns the code of the answer.
func (s *Server) update(w dns.ResponseWriter, r *dns.Msg) int {
	zone := strings.ToLower(r.Question[0].Name)
	key, ok := s.zones[zone]
	if !ok {
		return dns.RcodeNotZone
	}
	if t := r.IsTsig(); t == nil || w.TsigStatus() != nil || !strings.EqualFold(t.Hdr.Name, key.Name) {
		return dns.RcodeRefused
	}
	if len(r.Answer) > 0 {
		return dns.RcodeNotImplemented // prerequisites
	}
	records := s.parsed()
	for _, rr := range r.Ns {
		h := rr.Header()
		if !dns.IsSubDomain(zone, strings.ToLower(h.Name)) {
			return dns.RcodeNotZone
		}
		same := func(o dns.RR) bool {
			return strings.EqualFold(o.Header().Name, h.Name) && (h.Rrtype == dns.TypeANY || o.Header().Rrtype == h.Rrtype)
		}
		switch h.Class {
		case dns.ClassANY: // the whole set
			records = slices.DeleteFunc(records, same)
		case dns.ClassNONE: // one of it
			records = slices.DeleteFunc(records, func(o dns.RR) bool { return same(o) && data(o) == data(rr) })
		default:
			records = slices.DeleteFunc(records, func(o dns.RR) bool { return same(o) && data(o) == data(rr) })
			records = append(records, rr)
		}
	}
	s.records = nil
	for _, rr := range records {
		s.records = append(s.records, rr.String())
	}
	if err := s.save(); err != nil {
		return dns.RcodeServerFailure
	}
	return dns.RcodeSuccess
}

// data is what a record says.
func data(rr dns.RR) string { return strings.TrimPrefix(rr.String(), rr.Header().String()) }

func (s *Server) save() error {
	if s.file == "" {
		return nil
	}
	text, err := json.Marshal(s.records)
	if err == nil {
		err = os.WriteFile(s.file+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(s.file+".new", s.file)
	}
	return err
}
