package bucket

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/outbound"
)

// Options are what opening a bucket takes besides its place.
type Options struct {
	Limit   int64  // bytes of one value
	Scratch string // directory for large values that are about to be written
	Environ func(string) string
	Allow   []string // addresses that the operator allows besides the endpoint
}

// clients make the requests.
type clients struct {
	data     *http.Client // to the bucket, and to public services that give out tokens
	metadata *http.Client // to the services of a cloud that give out credentials at fixed local addresses
}

// The addresses at which clouds give credentials to what runs in them.
var (
	// ofWorkload serve one pod or one task. The cloud names them in its environment.
	ofWorkload = []string{"169.254.170.2", "169.254.170.23", "fd00:ec2::23"}
	// ofMachine serve everything on a machine. Only the operator can allow them.
	ofMachine = []string{"169.254.169.254", "fd00:ec2::254"}
)

// Open returns the store in a bucket. It makes no request: see Check.
func Open(p Place, o Options) (*Store, error) {
	c, err := newClients(p, o)
	if err != nil {
		return nil, err
	}
	open := map[string]func(Place, clients, func(string) string) (service, error){S3: openS3, GCS: openGCS, Azure: openAzure}[p.Scheme]
	s, err := open(p, c, o.Environ)
	if err != nil {
		return nil, fault.New(fault.Invalid, ReasonCredentials, fmt.Errorf("opening --records %s: %w", p, err))
	}
	return &Store{place: p, service: s, limit: o.Limit, scratch: o.Scratch, close: func() {
		c.data.CloseIdleConnections()
		c.metadata.CloseIdleConnections()
	}}, nil
}

func newClients(p Place, o Options) (c clients, err error) {
	var ca []byte
	if p.CAFile != "" {
		if ca, err = os.ReadFile(p.CAFile); err != nil {
			return c, fault.New(fault.Invalid, outbound.ReasonTLS, fmt.Errorf("reading ca-file of --records: %w", err))
		}
	}
	allow, err := outbound.ParseAllow(append([]string{hostPort(p.Endpoint)}, o.Allow...)...)
	if err != nil {
		return c, err
	}
	c.data, err = outbound.New(outbound.Policy{Allow: allow, Proxy: true}).HTTP(outbound.Options{PlainHTTP: p.Endpoint.Scheme == "http", CA: ca})
	if err != nil {
		return c, fmt.Errorf("reading ca-file of --records: %w", err)
	}
	local := slices.Clone(ofWorkload)
	if p.Credentials == fromMetadata {
		local = append(local, ofMachine...)
		if host := o.Environ("GCE_METADATA_HOST"); host != "" && p.Scheme == GCS {
			local = append(local, host)
		}
	}
	if allow, err = outbound.ParseAllow(local...); err != nil {
		return c, err
	}
	c.metadata, err = outbound.New(outbound.Policy{Allow: allow}).HTTP(outbound.Options{PlainHTTP: true, MaxBytes: 1 << 20})
	return c, err
}

// hostPort is the host of an endpoint with its port: the operator named it, so that it
// may be local.
func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// noIdentity is the error of a bucket whose credentials are nowhere.
func noIdentity(scheme string) error {
	return fmt.Errorf("%w: there are none: %s", errIdentity, identities[scheme])
}
