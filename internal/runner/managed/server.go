package managed

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// Server serves a Store to the engine of the same run, in the
// protocol of its http backend. It listens inside the run's sandbox and asks for
// credentials that exist only as long as the run: in a sandbox with the host's
// network other runs can reach the port.
type Server struct {
	store    *Store
	user     string
	password string

	mu   sync.Mutex
	lock []byte // the lock's own description; nil when free
	id   string
}

func NewServer(store *Store) (*Server, error) {
	var b [48]byte
	if _, err := rand.Read(b[:]); err != nil {
		return nil, err
	}
	return &Server{store: store, user: hex.EncodeToString(b[:16]), password: hex.EncodeToString(b[16:])}, nil
}

// Environ tells the engine where the backend at addr is. Retries are few: the
// server is in the next process, and what it refuses once it refuses again.
func (s *Server) Environ(addr string) []string {
	url := "http://" + addr + "/state"
	return []string{
		"TF_HTTP_ADDRESS=" + url,
		"TF_HTTP_LOCK_ADDRESS=" + url,
		"TF_HTTP_UNLOCK_ADDRESS=" + url,
		"TF_HTTP_USERNAME=" + s.user,
		"TF_HTTP_PASSWORD=" + s.password,
		"TF_HTTP_RETRY_MAX=1",
		"TF_HTTP_RETRY_WAIT_MIN=1",
		"TF_HTTP_RETRY_WAIT_MAX=1",
	}
}

// Serve answers on l until the returned function is called.
func (s *Server) Serve(l net.Listener) (stop func()) {
	server := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 5 * time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // ends when the listener does
	}()
	return func() {
		_ = server.Close()
		<-done
	}
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user, password, _ := r.BasicAuth()
	if !same(user, s.user) || !same(password, s.password) {
		http.Error(w, "these are not the credentials of this run", http.StatusUnauthorized)
		return
	}
	switch r.Method {
	case http.MethodGet:
		s.get(w)
	case http.MethodPost:
		s.post(w, r)
	case "LOCK":
		s.take(w, r)
	case "UNLOCK":
		s.release(w, r)
	default:
		// DELETE would empty a state; no run needs that.
		http.Error(w, "not served", http.StatusMethodNotAllowed)
	}
}

func (s *Server) get(w http.ResponseWriter) {
	data, _ := s.store.Newest()
	if data == nil {
		http.Error(w, "no state yet", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data)
}

func (s *Server) post(w http.ResponseWriter, r *http.Request) {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBytes))
	if err != nil {
		http.Error(w, "unreadable body", http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lock != nil && r.URL.Query().Get("ID") != s.id {
		answerLocked(w, s.lock)
		return
	}
	switch err := s.store.Accept(data); {
	case errors.Is(err, ErrRefused):
		http.Error(w, err.Error(), http.StatusConflict)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func (s *Server) take(w http.ResponseWriter, r *http.Request) {
	info, id := lockInfo(w, r)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case id == "":
		http.Error(w, "a lock needs an ID", http.StatusBadRequest)
	case s.lock != nil && s.id != id:
		answerLocked(w, s.lock)
	default:
		s.lock, s.id = info, id
	}
}

func (s *Server) release(w http.ResponseWriter, r *http.Request) {
	_, id := lockInfo(w, r)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lock != nil && s.id != id {
		answerLocked(w, s.lock)
		return
	}
	s.lock, s.id = nil, ""
}

// answerLocked tells who holds the lock, as the backend expects it.
func answerLocked(w http.ResponseWriter, info []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusLocked)
	_, _ = w.Write(info)
}

func lockInfo(w http.ResponseWriter, r *http.Request) (info []byte, id string) {
	info, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<10))
	var lock struct{ ID string }
	if err != nil || json.Unmarshal(info, &lock) != nil {
		return nil, ""
	}
	return info, lock.ID
}

// same compares without telling by its duration where the texts differ.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
