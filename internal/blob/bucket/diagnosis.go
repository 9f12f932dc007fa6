package bucket

import (
	"errors"
	"fmt"
	"strings"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/blob/cloud"
	"github.com/terrier-iac/terrier/internal/fault"
)

// errAbsent is the error of an object that is not there, in a bucket that is.
var errAbsent = errors.New("there is no such object")

// The reasons of this package's faults.
const (
	ReasonBucket      = "RecordsBucketMissing"
	ReasonDenied      = "RecordsAccessDenied"
	ReasonCredentials = "RecordsCredentialsInvalid"
	ReasonRegion      = "RecordsRegionWrong"
	ReasonClock       = "RecordsClockSkewed"
	ReasonUnreachable = "RecordsUnreachable"
	ReasonVersions    = "RecordsConditionsIgnored"
)

// diagnosis is what an error of a service means.
type diagnosis struct {
	trouble cloud.Trouble
	region  string // that the bucket is in, if the service says so
}

// passing reports whether another attempt may succeed.
func (d diagnosis) passing() bool { return d.trouble.Passing() }

// fault gives an error its kind, its reason and the way out. A failure of a bucket is
// no failure of the stack whose record it is, so a stack waits.
func (d diagnosis) fault(err error, at Place) error {
	reason, what, way := ReasonUnreachable, "", ""
	switch d.trouble {
	case cloud.Absent:
		return errAbsent
	case cloud.Changed:
		return blob.Conflict()
	case cloud.NotThere:
		reason, what = ReasonBucket, fmt.Sprintf("%s has no bucket %s", at.service(), at.Bucket)
		way = "create it, or correct the name in " + at.flag
		if at.Scheme == Azure {
			what = fmt.Sprintf("the storage account %s has no container %s", at.Account, at.Bucket)
		}
	case cloud.Denied:
		reason, what = ReasonDenied, fmt.Sprintf("the identity of this program lacks a right to %s", at)
		way = "allow it " + rights[at.Scheme]
	case cloud.BadIdentity:
		reason, what = ReasonCredentials, fmt.Sprintf("%s does not accept the credentials of this program, or there are none", at.service())
		way = identity(at)
	case cloud.WrongRegion:
		reason, what = ReasonRegion, fmt.Sprintf("the bucket %s is not in the region %s", at.Bucket, at.Region)
		if d.region != "" {
			what += ", but in " + d.region
		}
		way = "set region= in " + at.flag + ", or AWS_REGION"
	case cloud.ClockSkew:
		reason, what = ReasonClock, "the clock of this machine differs from that of "+at.service()
		way = "set the clock, and keep it right with NTP"
	case cloud.Untrusted:
		what = fmt.Sprintf("the certificate of %s is not trusted", at.Endpoint.Host)
		way = "name its authority with ca-file= in " + at.flag
	case cloud.Misnamed:
		what = fmt.Sprintf("there is no host %s", at.Endpoint.Hostname())
		way = "correct " + at.flag + ": " + strings.Join(parameters[at.Scheme], ", ") + " are its parameters"
	case cloud.Refused:
		what = fmt.Sprintf("%s is at an address that is not allowed", at.Endpoint.Host)
		way = "allow it with --allow-host, or use another endpoint"
	case cloud.Busy:
		what, way = fmt.Sprintf("%s does not take the request", at.service()), "wait until it recovers"
	default:
		what, way = fmt.Sprintf("%s does not answer as it should", at.Endpoint.Host), "check the network, and endpoint= in "+at.flag
	}
	return fault.New(fault.Later, reason, fmt.Errorf("%s: %w: %s", what, brief{err}, way))
}

// rights are what Terrier needs of each kind of bucket.
var rights = map[string]string{
	S3:    "s3:GetObject, s3:PutObject and s3:DeleteObject on its objects, and s3:ListBucket on the bucket",
	GCS:   "the role roles/storage.objectUser on the bucket",
	Azure: "the role Storage Blob Data Contributor on the container",
}

// identity is how this program gets an identity.
func identity(at Place) string {
	switch at.Scheme {
	case S3:
		return fmt.Sprintf(cloud.ToAWS, at.flag)
	case GCS:
		return fmt.Sprintf(cloud.ToGoogle, at.flag)
	default:
		return "set AZURE_STORAGE_KEY, or " + fmt.Sprintf(cloud.ToAzure, at.flag)
	}
}

// brief shortens the message of an error, which may hold a whole page.
type brief struct{ error }

func (b brief) Error() string {
	return fault.Shorten(strings.Join(strings.Fields(b.error.Error()), " "), 600)
}

func (b brief) Unwrap() error { return b.error }

// transport is what an error means that came before an answer.
func transport(err error) diagnosis {
	if errors.Is(err, errAbsent) {
		return diagnosis{trouble: cloud.Absent}
	}
	return diagnosis{trouble: cloud.Transport(err)}
}

// status is what the status of an answer means, if the service says nothing better.
func status(code int) diagnosis { return diagnosis{trouble: cloud.Status(code)} }
