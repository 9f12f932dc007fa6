package provision

import (
	"bytes"
	"context"
	"crypto/md5" //nolint:gosec // S3 asks for this checksum
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/terrier-iac/terrier/internal/backend"
	"github.com/terrier-iac/terrier/internal/blob/cloud"
)

// maxAnswer bounds an answer of a cloud, in bytes.
const maxAnswer = 1 << 20

// s3 is a bucket, and the table for its locks.
type s3 struct {
	backend.Place
	at, tables *url.URL // of the bucket; of DynamoDB
	clients    cloud.Clients
	identity   *credentials.Credentials
	now        func() time.Time
}

func (p Plugins) openS3(_ context.Context, r backend.Request) (place, error) {
	settings, err := backend.S3Place(r)
	if err != nil {
		return nil, err
	}
	domain := "amazonaws.com"
	if strings.HasPrefix(settings.Region, "cn-") {
		domain += ".cn"
	}
	bucket := fmt.Sprintf("https://%s.s3.%s.%s/", settings.Bucket, settings.Region, domain)
	switch {
	case settings.Endpoint != "":
		bucket = strings.TrimSuffix(settings.Endpoint, "/") + "/" + settings.Bucket
	case strings.Contains(settings.Bucket, "."): // no certificate has such a name
		bucket = fmt.Sprintf("https://s3.%s.%s/%s", settings.Region, domain, settings.Bucket)
	}
	table := settings.TableEndpoint
	if table == "" {
		table = fmt.Sprintf("https://dynamodb.%s.%s/", settings.Region, domain)
	}
	s := &s3{Place: settings, now: p.Now}
	if s.at, err = url.Parse(bucket); err != nil {
		return nil, err
	}
	if s.tables, err = url.Parse(table); err != nil {
		return nil, err
	}
	var o cloud.Options
	if s.clients, o, err = p.clients(backend.AWS, bucket); err != nil {
		return nil, err
	}
	s.identity, err = cloud.AWS(s.clients, o, settings.Region)
	return s, err
}

// sent signs and sends a request.
func (s *s3) sent(ctx context.Context, client *http.Client, service string, r *http.Request, body []byte) (answer, error) {
	id, err := s.identity.GetWithContext(&credentials.CredContext{Client: s.clients.Data})
	if err != nil {
		return answer{}, fmt.Errorf("there are no credentials of AWS in %s, and it has no role (%w). Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY there, or give its ServiceAccount a role", backend.Environment, err)
	}
	sum := sha256.Sum256(body)
	hash := hex.EncodeToString(sum[:])
	if service == "s3" {
		r.Header.Set("X-Amz-Content-Sha256", hash)
	}
	plain := func(o *v4.SignerOptions) { o.DisableURIPathEscaping = service == "s3" }
	err = v4.NewSigner(plain).SignHTTP(ctx, aws.Credentials{AccessKeyID: id.AccessKeyID, SecretAccessKey: id.SecretAccessKey, SessionToken: id.SessionToken},
		r, hash, service, s.Region, s.now())
	if err != nil {
		return answer{}, fmt.Errorf("signing the request: %w", err)
	}
	return send(client, r)
}

// answer is what a cloud answered.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func send(client *http.Client, r *http.Request) (answer, error) {
	resp, err := client.Do(r)
	if err != nil {
		return answer{}, fmt.Errorf("asking %s: %w", r.URL.Host, errors.Unwrap(err))
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return answer{}, fmt.Errorf("reading the answer of %s: %w", r.URL.Host, err)
	}
	return answer{resp.StatusCode, resp.Header, body}, nil
}

func (a answer) ok() bool { return a.status >= 200 && a.status <= 299 }

// code is what S3 calls a failure.
func (a answer) code() string {
	var e struct{ Code string }
	if xml.Unmarshal(a.body, &e) != nil || e.Code == "" {
		return fmt.Sprintf("%d %s", a.status, http.StatusText(a.status))
	}
	return e.Code
}

// do asks about the bucket, one of its parts, or an object.
func (s *s3) do(ctx context.Context, method, object, query string, body []byte) (answer, error) {
	return s.doIf(ctx, method, object, query, body, false)
}

// doIf is do; absent asks only for what is not there yet.
func (s *s3) doIf(ctx context.Context, method, object, query string, body []byte, absent bool) (answer, error) {
	u := *s.at
	if object != "" {
		u.Path = strings.TrimSuffix(u.Path, "/") + "/" + object
		u.RawPath = escaped(u.Path)
	}
	u.RawQuery = query
	r, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if absent {
		r.Header.Set("If-None-Match", "*")
	}
	if body != nil {
		sum := md5.Sum(body) //nolint:gosec // as above
		r.Header.Set("Content-Md5", base64.StdEncoding.EncodeToString(sum[:]))
		r.Header.Set("Content-Type", "application/xml")
	}
	return s.sent(ctx, s.clients.Data, "s3", r, body)
}

func (s *s3) what() string { return "the bucket " + s.Bucket }

func (s *s3) there(ctx context.Context) (bool, error) {
	a, err := s.do(ctx, http.MethodHead, "", "", nil)
	if err != nil {
		return false, err
	}
	if in := a.header.Get("X-Amz-Bucket-Region"); in != "" && in != s.Region {
		return false, &backend.Error{Field: "region", Message: fmt.Sprintf("is %s, and the bucket %s is in %s", s.Region, s.Bucket, in)}
	}
	switch {
	case a.ok():
		return true, nil
	case a.status == http.StatusNotFound:
		return false, nil
	case a.status == http.StatusForbidden:
		return false, fmt.Errorf("access to %s is denied: the identity of the run needs s3:ListBucket, or the bucket belongs to another account", s.what())
	}
	return false, fmt.Errorf("finding %s: %s", s.what(), a.code())
}

func (s *s3) create(ctx context.Context) error {
	var body []byte
	if s.Region != "us-east-1" { // which must not be named
		body = []byte(`<CreateBucketConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><LocationConstraint>` + s.Region + `</LocationConstraint></CreateBucketConfiguration>`)
	}
	a, err := s.do(ctx, http.MethodPut, "", "", body)
	switch {
	case err != nil:
		return err
	case a.ok(), a.code() == "BucketAlreadyOwnedByYou": // another run was faster
		return nil
	case a.code() == "BucketAlreadyExists":
		return &backend.Error{Field: "s3", Message: fmt.Sprintf("is %s, and another account has a bucket of that name: choose another one", s.Bucket)}
	case a.status == http.StatusForbidden:
		return fmt.Errorf("%s does not exist, and the identity of the run may not create it: it needs s3:CreateBucket (%s)", s.what(), a.code())
	}
	return fmt.Errorf("creating %s: %s", s.what(), a.code())
}

// part reads a part of the bucket's configuration into out, whose root says whether the
// server knows such a part. It is false if there is none.
func (s *s3) part(ctx context.Context, name string, out any) (bool, error) {
	a, err := s.do(ctx, http.MethodGet, "", name, nil)
	if err != nil {
		return false, err
	}
	if a.status == http.StatusNotFound {
		return false, nil
	}
	if !a.ok() {
		return false, errors.New(a.code())
	}
	if err := xml.Unmarshal(a.body, out); err != nil {
		return false, errors.New("the server does not know such a part of a bucket")
	}
	return true, nil
}

func (s *s3) setPart(name, document string) func(context.Context) error {
	return func(ctx context.Context) error {
		a, err := s.do(ctx, http.MethodPut, "", name, []byte(document))
		if err == nil && !a.ok() {
			err = errors.New(a.code())
		}
		return err
	}
}

const namespace = ` xmlns="http://s3.amazonaws.com/doc/2006-03-01/"`

func (s *s3) traits() []trait {
	algorithm := "<SSEAlgorithm>AES256</SSEAlgorithm>"
	if s.KMSKey != "" {
		var key bytes.Buffer
		_ = xml.EscapeText(&key, []byte(s.KMSKey)) // a buffer takes everything
		algorithm = "<SSEAlgorithm>aws:kms</SSEAlgorithm><KMSMasterKeyID>" + key.String() + "</KMSMasterKeyID>"
	}
	return []trait{
		{"versioning", func(ctx context.Context) (bool, error) {
			var v struct {
				XMLName xml.Name `xml:"VersioningConfiguration"`
				Status  string
			}
			_, err := s.part(ctx, "versioning=", &v)
			return v.Status == "Enabled", err
		}, s.setPart("versioning=", "<VersioningConfiguration"+namespace+"><Status>Enabled</Status></VersioningConfiguration>")},
		{"encryption", func(ctx context.Context) (bool, error) {
			var v struct {
				XMLName   xml.Name `xml:"ServerSideEncryptionConfiguration"`
				Algorithm []string `xml:"Rule>ApplyServerSideEncryptionByDefault>SSEAlgorithm"`
				Key       []string `xml:"Rule>ApplyServerSideEncryptionByDefault>KMSMasterKeyID"`
			}
			_, err := s.part(ctx, "encryption=", &v)
			return len(v.Algorithm) > 0 && (s.KMSKey == "" || len(v.Key) > 0), err
		}, s.setPart("encryption=", "<ServerSideEncryptionConfiguration"+namespace+"><Rule><ApplyServerSideEncryptionByDefault>"+algorithm+
			"</ApplyServerSideEncryptionByDefault></Rule></ServerSideEncryptionConfiguration>")},
		{"the block of public access", func(ctx context.Context) (bool, error) {
			var v struct {
				XMLName               xml.Name `xml:"PublicAccessBlockConfiguration"`
				BlockPublicAcls       bool
				IgnorePublicAcls      bool
				BlockPublicPolicy     bool
				RestrictPublicBuckets bool
			}
			_, err := s.part(ctx, "publicAccessBlock=", &v)
			return v.BlockPublicAcls && v.IgnorePublicAcls && v.BlockPublicPolicy && v.RestrictPublicBuckets, err
		}, s.setPart("publicAccessBlock=", "<PublicAccessBlockConfiguration"+namespace+"><BlockPublicAcls>true</BlockPublicAcls><IgnorePublicAcls>true</IgnorePublicAcls>"+
			"<BlockPublicPolicy>true</BlockPublicPolicy><RestrictPublicBuckets>true</RestrictPublicBuckets></PublicAccessBlockConfiguration>")},
	}
}

func (s *s3) vacant(ctx context.Context) (bool, error) {
	var list struct {
		XMLName  xml.Name `xml:"ListBucketResult"`
		Contents []struct{ Key string }
	}
	_, err := s.part(ctx, "list-type=2&max-keys=1", &list)
	if err != nil {
		err = fmt.Errorf("listing %s: %w", s.what(), err)
	}
	return len(list.Contents) == 0, err
}

// escaped is a path as S3 signs it: every byte that is not unreserved is escaped.
func escaped(path string) string {
	var out strings.Builder
	for _, b := range []byte(path) {
		if b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || strings.IndexByte("/-._~", b) >= 0 {
			out.WriteByte(b)
		} else {
			fmt.Fprintf(&out, "%%%02X", b)
		}
	}
	return out.String()
}

func (s *s3) state() string    { return s.Object }
func (s *s3) owner() string    { return s.Object + ownerSuffix }
func (s *s3) objects() objects { return s }

func (s *s3) hasState(ctx context.Context) (bool, error) {
	a, err := s.do(ctx, http.MethodHead, s.Object, "", nil)
	if err != nil || a.ok() || a.status == http.StatusNotFound {
		return a.ok(), err
	}
	return false, fmt.Errorf("finding the state %s: %s", s.Object, a.code())
}

// judged is the error of an answer about an object.
func (s *s3) judged(a answer, err error) error {
	switch {
	case err != nil || a.ok():
		return err
	case a.status == http.StatusForbidden:
		return errDenied
	}
	return errors.New(a.code())
}

func (s *s3) get(ctx context.Context, object string) ([]byte, error) {
	a, err := s.do(ctx, http.MethodGet, object, "", nil)
	if err == nil && a.status == http.StatusNotFound {
		return nil, nil
	}
	return a.body, s.judged(a, err)
}

func (s *s3) put(ctx context.Context, object string, data []byte, absent bool) (bool, error) {
	a, err := s.doIf(ctx, http.MethodPut, object, "", data, absent)
	switch {
	case err == nil && absent && (a.status == http.StatusPreconditionFailed || a.status == http.StatusConflict):
		return false, nil
	case err == nil && absent && (a.status == http.StatusNotImplemented || a.status == http.StatusBadRequest): // a server without conditions
		if is, err := s.get(ctx, object); err != nil || is != nil {
			return false, err
		}
		a, err = s.do(ctx, http.MethodPut, object, "", data)
	}
	err = s.judged(a, err)
	return err == nil, err
}

func (s *s3) remove(ctx context.Context, object string) error {
	return s.judged(s.do(ctx, http.MethodDelete, object, "", nil))
}

func (s *s3) removePlace(ctx context.Context) (bool, error) {
	a, err := s.do(ctx, http.MethodDelete, "", "", nil)
	switch {
	case err != nil:
		return false, err
	case a.ok():
		return true, nil
	case a.code() == "BucketNotEmpty":
		return false, nil
	}
	return false, fmt.Errorf("removing %s: %s", s.what(), a.code())
}
