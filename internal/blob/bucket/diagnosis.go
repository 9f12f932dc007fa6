package bucket

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/outbound"
)

// errAbsent is the error of an object that is not there, in a bucket that is.
var errAbsent = errors.New("there is no such object")

// errIdentity is the error of credentials that cannot be had.
var errIdentity = errors.New("getting credentials")

// The reasons of this package's faults.
const (
	ReasonBucket      = "RecordsBucketMissing"
	ReasonDenied      = "RecordsAccessDenied"
	ReasonCredentials = "RecordsCredentialsInvalid"
	ReasonRegion      = "RecordsRegionWrong"
	ReasonClock       = "RecordsClockSkewed"
	ReasonUnreachable = "RecordsUnreachable"
)

// trouble is what can be wrong with a bucket.
type trouble int

const (
	unknown     trouble = iota
	absent              // the object is not there
	noBucket            // the bucket is not there
	denied              // the identity is known, and lacks a right
	badIdentity         // the service does not accept the identity, or there is none
	wrongRegion         // the bucket is in another region
	clockSkew           // the clock of this machine is wrong
	busy                // the service asks to try again
	unreachable         // no answer
	misnamed            // no answer, because the address cannot be right
	untrusted           // the certificate of the service is not trusted
	refused             // this program may not dial the address
)

// diagnosis is what an error of a service means.
type diagnosis struct {
	trouble trouble
	region  string // that the bucket is in, if the service says so
}

// passing reports whether another attempt may succeed.
func (d diagnosis) passing() bool { return d.trouble == busy || d.trouble == unreachable }

// fault gives an error its kind, its reason and the way out. A failure of a bucket is
// no failure of the stack whose record it is, so a stack waits.
func (d diagnosis) fault(err error, at Place) error {
	reason, what, way := ReasonUnreachable, "", ""
	switch d.trouble {
	case absent:
		return errAbsent
	case noBucket:
		reason, what = ReasonBucket, fmt.Sprintf("%s has no bucket %s", at.service(), at.Bucket)
		way = "create it, or correct the name in --records"
		if at.Scheme == Azure {
			what = fmt.Sprintf("the storage account %s has no container %s", at.Account, at.Bucket)
		}
	case denied:
		reason, what = ReasonDenied, fmt.Sprintf("the identity of this program lacks a right to %s", at)
		way = "allow it " + rights[at.Scheme]
	case badIdentity:
		reason, what = ReasonCredentials, fmt.Sprintf("%s does not accept the credentials of this program, or there are none", at.service())
		way = identities[at.Scheme]
	case wrongRegion:
		reason, what = ReasonRegion, fmt.Sprintf("the bucket %s is not in the region %s", at.Bucket, at.Region)
		if d.region != "" {
			what += ", but in " + d.region
		}
		way = "set region= in --records, or AWS_REGION"
	case clockSkew:
		reason, what = ReasonClock, "the clock of this machine differs from that of "+at.service()
		way = "set the clock, and keep it right with NTP"
	case untrusted:
		what = fmt.Sprintf("the certificate of %s is not trusted", at.Endpoint.Host)
		way = "name its authority with ca-file= in --records"
	case misnamed:
		what = fmt.Sprintf("there is no host %s", at.Endpoint.Hostname())
		way = "correct --records: " + strings.Join(parameters[at.Scheme], ", ") + " are its parameters"
	case refused:
		what = fmt.Sprintf("%s is at an address that is not allowed", at.Endpoint.Host)
		way = "allow it with --allow-host, or use another endpoint"
	case busy:
		what, way = fmt.Sprintf("%s does not take the request", at.service()), "wait until it recovers"
	default:
		what, way = fmt.Sprintf("%s does not answer as it should", at.Endpoint.Host), "check the network, and endpoint= in --records"
	}
	return fault.New(fault.Later, reason, fmt.Errorf("%s: %w: %s", what, brief{err}, way))
}

// rights are what Terrier needs of each kind of bucket.
var rights = map[string]string{
	S3:    "s3:GetObject, s3:PutObject and s3:DeleteObject on its objects, and s3:ListBucket on the bucket",
	GCS:   "the role roles/storage.objectUser on the bucket",
	Azure: "the role Storage Blob Data Contributor on the container",
}

// identities are how this program gets an identity.
var identities = map[string]string{
	S3:    "give its ServiceAccount a role (IRSA or EKS Pod Identity), or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or add credentials=metadata to --records to use the role of the machine",
	GCS:   "set GOOGLE_APPLICATION_CREDENTIALS to a file with credentials, or add credentials=metadata to --records to use the identity of the machine, as in GKE",
	Azure: "give its ServiceAccount a workload identity, or set AZURE_STORAGE_KEY, or add credentials=metadata to --records to use the identity of the machine",
}

// brief shortens the message of an error, which may hold a whole page.
type brief struct{ error }

func (b brief) Error() string {
	return fault.Shorten(strings.Join(strings.Fields(b.error.Error()), " "), 600)
}

func (b brief) Unwrap() error { return b.error }

// transport is what an error means that came before an answer. It is the same for all
// services.
func transport(err error) diagnosis {
	var named *net.DNSError
	switch {
	case errors.Is(err, errAbsent):
		return diagnosis{trouble: absent}
	case errors.Is(err, errIdentity):
		return diagnosis{trouble: badIdentity}
	case errors.As(err, &named) && named.IsNotFound:
		return diagnosis{trouble: misnamed}
	case fault.Reason(err, "") == outbound.ReasonAddress:
		return diagnosis{trouble: refused}
	case errors.As(err, new(*tls.CertificateVerificationError)):
		return diagnosis{trouble: untrusted}
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, new(net.Error)):
		return diagnosis{trouble: unreachable}
	}
	return diagnosis{}
}

// status is what the status of an answer means, if the service says nothing better.
func status(code int) diagnosis {
	switch code {
	case http.StatusUnauthorized:
		return diagnosis{trouble: badIdentity}
	case http.StatusForbidden:
		return diagnosis{trouble: denied}
	case http.StatusNotFound:
		return diagnosis{trouble: noBucket}
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return diagnosis{trouble: busy}
	}
	return diagnosis{}
}
