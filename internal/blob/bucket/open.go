package bucket

import (
	"fmt"

	"github.com/terrier-iac/terrier/internal/blob/cloud"
	"github.com/terrier-iac/terrier/internal/fault"
)

// Options are what opening a bucket takes besides its place.
type Options struct {
	Limit   int64  // bytes of one value
	Scratch string // directory for large values that are about to be written
	Environ func(string) string
	Allow   []string // addresses that the operator allows besides the endpoint
}

// flag names a bucket.
const flag = "--records"

// Open returns the store in a bucket. It makes no request: see Check.
func Open(p Place, o Options) (*Store, error) {
	of := cloud.Options{
		Flag: flag, Endpoint: p.Endpoint, CAFile: p.CAFile, Credentials: p.Credentials, Google: p.Scheme == GCS, Environ: o.Environ, Allow: o.Allow,
	}
	c, err := cloud.NewClients(of)
	if err != nil {
		return nil, err
	}
	open := map[string]func(Place, cloud.Clients, cloud.Options) (service, error){S3: openS3, GCS: openGCS, Azure: openAzure}[p.Scheme]
	s, err := open(p, c, of)
	if err != nil {
		return nil, fault.New(fault.Invalid, ReasonCredentials, fmt.Errorf("opening --records %s: %w", p, err))
	}
	return &Store{place: p, service: s, limit: o.Limit, scratch: o.Scratch, close: c.Close}, nil
}
