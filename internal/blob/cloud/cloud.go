// Package cloud gives this program its identity in a cloud, and the clients that reach it:
// for buckets with records, and for key management services that wrap their keys.
//
// Credentials come from the environment, as the tools of each cloud take them. The
// metadata service of a machine is asked only if the operator allows it.
//
// Start reading at NewClients. The chain of each cloud is in a file of its own.
package cloud

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/outbound"
)

// Where credentials come from.
const (
	FromEnvironment = "environment" // variables and files that they name
	FromMetadata    = "metadata"    // the metadata service of the machine, too
	FromNowhere     = "none"        // requests are anonymous
)

// ErrIdentity is the error of credentials that cannot be had.
var ErrIdentity = errors.New("getting credentials")

// Options say for what the clients are.
type Options struct {
	Flag        string // that names the service, for messages
	Endpoint    *url.URL
	CAFile      string
	Credentials string
	Google      bool // GCE_METADATA_HOST counts
	Environ     func(string) string
	Now         func() time.Time // of services that sign requests
	Allow       []string         // addresses that the operator allows besides the endpoint
	MaxBytes    int64            // of one answer; 1 GiB if zero
}

// Clients make the requests.
type Clients struct {
	Data     *http.Client // to the service, and to public services that give out tokens
	Metadata *http.Client // to the services of a cloud that give out credentials at fixed local addresses
}

// The addresses at which clouds give credentials to what runs in them.
var (
	// ofWorkload serve one pod or one task. The cloud names them in its environment.
	ofWorkload = []string{"169.254.170.2", "169.254.170.23", "fd00:ec2::23"}
	// ofMachine serve everything on a machine. Only the operator can allow them.
	ofMachine = []string{"169.254.169.254", "fd00:ec2::254"}
)

// NewClients returns the clients of one service.
func NewClients(o Options) (c Clients, err error) {
	var ca []byte
	if o.CAFile != "" {
		if ca, err = os.ReadFile(o.CAFile); err != nil {
			return c, fault.New(fault.Invalid, outbound.ReasonTLS, fmt.Errorf("reading ca-file of %s: %w", o.Flag, err))
		}
	}
	allow, err := outbound.ParseAllow(append([]string{hostPort(o.Endpoint)}, o.Allow...)...)
	if err != nil {
		return c, err
	}
	c.Data, err = outbound.New(outbound.Policy{Allow: allow, Proxy: true, MaxBytes: o.MaxBytes}).HTTP(outbound.Options{PlainHTTP: o.Endpoint.Scheme == "http", CA: ca})
	if err != nil {
		return c, fmt.Errorf("reading ca-file of %s: %w", o.Flag, err)
	}
	local := slices.Clone(ofWorkload)
	if o.Credentials == FromMetadata {
		local = append(local, ofMachine...)
		if host := o.Environ("GCE_METADATA_HOST"); host != "" && o.Google {
			local = append(local, host)
		}
	}
	if allow, err = outbound.ParseAllow(local...); err != nil {
		return c, err
	}
	c.Metadata, err = outbound.New(outbound.Policy{Allow: allow}).HTTP(outbound.Options{PlainHTTP: true, MaxBytes: 1 << 20})
	return c, err
}

// Close gives connections back.
func (c Clients) Close() {
	c.Data.CloseIdleConnections()
	c.Metadata.CloseIdleConnections()
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

// The ways to an identity, for messages. They take the flag that names the service.
const (
	ToAWS    = "give its ServiceAccount a role (IRSA or EKS Pod Identity), or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or add credentials=metadata to %s to use the role of the machine"
	ToGoogle = "set GOOGLE_APPLICATION_CREDENTIALS to a file with credentials, or add credentials=metadata to %s to use the identity of the machine, as in GKE"
	ToAzure  = "give its ServiceAccount a workload identity, or set AZURE_CLIENT_ID, AZURE_TENANT_ID and AZURE_CLIENT_SECRET, or add credentials=metadata to %s to use the identity of the machine"
)

// noIdentity is the error of a service whose credentials are nowhere.
func noIdentity(o Options, way string) error {
	return fmt.Errorf("%w: there are none: "+way, ErrIdentity, o.Flag)
}

// Trouble is what can be wrong with a service of a cloud.
type Trouble int

// The troubles.
const (
	Unknown     Trouble = iota
	Absent              // the object is not there
	NotThere            // the bucket or the key is not there
	Denied              // the identity is known, and lacks a right
	BadIdentity         // the service does not accept the identity, or there is none
	WrongRegion         // the bucket is in another region
	ClockSkew           // the clock of this machine is wrong
	Busy                // the service asks to try again
	Unreachable         // no answer
	Misnamed            // no answer, because the address cannot be right
	Untrusted           // the certificate of the service is not trusted
	Refused             // this program may not dial the address
	Changed             // the object is not the one that the request is about
	Unknowing           // the service does not know such a request
)

// Passing reports whether another attempt may succeed.
func (t Trouble) Passing() bool { return t == Busy || t == Unreachable }

// Transport is what an error means that came before an answer.
func Transport(err error) Trouble {
	var named *net.DNSError
	switch {
	case errors.Is(err, ErrIdentity):
		return BadIdentity
	case errors.As(err, &named) && named.IsNotFound:
		return Misnamed
	case fault.Reason(err, "") == outbound.ReasonAddress:
		return Refused
	case errors.As(err, new(*tls.CertificateVerificationError)):
		return Untrusted
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, new(net.Error)):
		return Unreachable
	}
	return Unknown
}

// Status is what the status of an answer means, if the service says nothing better.
func Status(code int) Trouble {
	switch code {
	case http.StatusUnauthorized:
		return BadIdentity
	case http.StatusForbidden:
		return Denied
	case http.StatusNotFound:
		return NotThere
	case http.StatusPreconditionFailed:
		return Changed
	case http.StatusNotImplemented:
		return Unknowing
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return Busy
	}
	return Unknown
}
