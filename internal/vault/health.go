package vault

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/terrier-iac/terrier/internal/fault"
)

// Health is what a server says of itself.
type Health struct {
	Initialized bool
	Sealed      bool
	Standby     bool
	Version     string
}

// Health asks a server how it is. One that is sealed or not initialized is no error; one
// that does not answer is Later.
func (s Server) Health(ctx context.Context) (Health, error) {
	at := s.URL.JoinPath("v1/sys/health")
	at.RawQuery = "standbyok=true&perfstandbyok=true&sealedcode=200&uninitcode=200&drsecondarycode=200"
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return Health{}, err
	}
	resp, err := s.HTTP.Do(r)
	var text []byte
	if err == nil {
		defer resp.Body.Close()
		text, err = io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	}
	var h Health
	if err == nil && (resp.StatusCode != http.StatusOK || json.Unmarshal(text, &h) != nil) {
		err = fmt.Errorf("it answers with %s, and not as a Vault does", resp.Status)
	}
	if err != nil {
		return Health{}, fault.New(fault.Later, ReasonUnreachable, fmt.Errorf("asking the Vault %s how it is: %w: check that the server runs, its address and the network", s, unwrapURL(err)))
	}
	return h, nil
}

// Problem says what is wrong with the server, and what to do. It is nil if it can be used.
func (h Health) Problem() error {
	switch {
	case !h.Initialized:
		return errors.New("it is not initialized: run vault operator init")
	case h.Sealed:
		return errors.New("it is sealed: unseal it with vault operator unseal")
	}
	return nil
}
