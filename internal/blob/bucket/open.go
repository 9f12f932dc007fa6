package bucket

import (
	"cmp"
	"context"
	"fmt"

	"github.com/terrier-iac/terrier/internal/blob/cloud"
	"github.com/terrier-iac/terrier/internal/fault"
)

// Options are what opening a bucket takes besides its place.
type Options struct {
	Limit    int64  // bytes of one value, at most Most
	Scratch  string // directory for large values that are about to be written
	Environ  func(string) string
	Allow    []string // addresses that the operator allows besides the endpoint
	Versions bool     // Check reports a service that writes without looking at versions
	Flag     string   // that names the bucket, for messages; --records if empty

	// Fence is asked before each request that changes an object, a repeated one included. Its
	// error ends the call. Without it all requests are made.
	Fence func(context.Context) error
}

// Most is the largest value that each service writes by one request: that of Azure. S3
// takes 5 GiB.
const Most = 5000 << 20

// Open returns the store in a bucket. It makes no request: see Check.
func Open(p Place, o Options) (*Store, error) {
	p.flag = cmp.Or(o.Flag, "--records")
	if o.Limit <= 0 || o.Limit > Most {
		return nil, fmt.Errorf("opening %s %s: the limit of a value is %d bytes, and must be between 1 and %d", p.flag, p, o.Limit, Most)
	}
	of := cloud.Options{
		Flag: p.flag, Endpoint: p.Endpoint, CAFile: p.CAFile, Credentials: p.Credentials, Google: p.Scheme == GCS, Environ: o.Environ, Allow: o.Allow,
		MaxBytes: max(o.Limit, 1<<30),
	}
	c, err := cloud.NewClients(of)
	if err != nil {
		return nil, err
	}
	c.Data.Timeout = 0 // a value may take long
	c.Data.Transport = talking{c.Data.Transport}
	open := map[string]func(Place, cloud.Clients, cloud.Options) (service, error){S3: openS3, GCS: openGCS, Azure: openAzure}[p.Scheme]
	s, err := open(p, c, of)
	if err != nil {
		return nil, fault.New(fault.Invalid, ReasonCredentials, fmt.Errorf("opening %s %s: %w", p.flag, p, err))
	}
	if o.Fence == nil {
		o.Fence = func(context.Context) error { return nil }
	}
	return &Store{place: p, service: s, limit: o.Limit, scratch: o.Scratch, versions: o.Versions, fence: o.Fence, close: c.Close}, nil
}
