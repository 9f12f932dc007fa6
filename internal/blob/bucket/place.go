package bucket

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/blob/cloud"
)

// The schemes of URLs of buckets.
const (
	S3    = "s3"
	GCS   = "gs"
	Azure = "azblob"
)

// Place says in which bucket records are, and how to reach it.
type Place struct {
	Scheme      string
	Bucket      string // the container, for Azure
	Prefix      string // of the names of objects; empty, or ends in a slash
	Endpoint    *url.URL
	Region      string // of S3
	PathStyle   bool   // of S3
	Account     string // of Azure
	CAFile      string
	Credentials string
	flag        string // that names it, for messages
}

// parameters are those of each scheme.
var parameters = map[string][]string{
	S3:    {"ca-file", "credentials", "endpoint", "path-style", "region"},
	GCS:   {"ca-file", "credentials", "endpoint"},
	Azure: {"account", "ca-file", "credentials", "endpoint"},
}

// Parse reads SCHEME://BUCKET/PREFIX?NAME=VALUE. What it does not say comes from the
// environment.
func Parse(text string, environ func(string) string) (Place, error) {
	u, given, err := cloud.ReadPlace(text, parameters)
	if err != nil {
		return Place{}, err
	}
	if u.Host == "" || u.Port() != "" {
		return Place{}, errors.New("the name of the bucket is missing: write SCHEME://BUCKET/PREFIX")
	}
	p := Place{Scheme: u.Scheme, Bucket: u.Host, Credentials: cloud.FromEnvironment}
	if prefix := strings.Trim(u.Path, "/"); prefix != "" {
		if err := blob.CheckKey(prefix); err != nil {
			return Place{}, fmt.Errorf("the prefix: %w", err)
		}
		p.Prefix = prefix + "/"
	}
	for _, parameter := range given {
		if err := p.set(parameter.Name, parameter.Value); err != nil {
			return Place{}, err
		}
	}
	return p, p.complete(environ)
}

func (p *Place) set(name, value string) (err error) {
	switch name {
	case "account":
		p.Account = value
	case "ca-file":
		p.CAFile = value
	case "credentials":
		if p.Credentials = value; !slices.Contains([]string{cloud.FromEnvironment, cloud.FromMetadata, cloud.FromNowhere}, value) {
			return errors.New("credentials= is none of environment, metadata, none")
		}
	case "endpoint":
		p.Endpoint, err = cloud.Endpoint(value)
	case "path-style":
		if p.PathStyle = value == "true"; value != "true" && value != "false" {
			return errors.New("path-style= is neither true nor false")
		}
	case "region":
		p.Region = value
	}
	return err
}

// complete takes from the environment what the URL does not say.
func (p *Place) complete(environ func(string) string) error {
	var err error
	switch p.Scheme {
	case S3:
		for _, name := range []string{"AWS_REGION", "AWS_DEFAULT_REGION"} {
			if p.Region == "" {
				p.Region = environ(name)
			}
		}
		if p.Region == "" && p.Endpoint != nil {
			p.Region = "us-east-1" // what servers other than that of AWS call theirs
		}
		if p.Region == "" {
			return errors.New("the region of the bucket is missing: add ?region=REGION, or set AWS_REGION")
		}
		if p.Endpoint == nil {
			host := "s3." + p.Region + ".amazonaws.com"
			if strings.HasPrefix(p.Region, "cn-") {
				host += ".cn"
			}
			p.Endpoint, err = url.Parse("https://" + host)
		}
	case GCS:
		if p.Endpoint == nil {
			p.Endpoint, err = url.Parse("https://storage.googleapis.com")
		}
	case Azure:
		if p.Account == "" {
			p.Account = environ("AZURE_STORAGE_ACCOUNT")
		}
		if p.Account == "" {
			return errors.New("the storage account is missing: add ?account=NAME, or set AZURE_STORAGE_ACCOUNT")
		}
		if p.Endpoint == nil {
			p.Endpoint, err = url.Parse("https://" + p.Account + ".blob.core.windows.net")
		}
	}
	if err != nil {
		return fmt.Errorf("the region or the account is no part of a host name: %w", err)
	}
	return nil
}

// String is the place without its parameters.
func (p Place) String() string {
	return p.Scheme + "://" + p.Bucket + "/" + strings.TrimSuffix(p.Prefix, "/")
}

// service is what the scheme is called.
func (p Place) service() string {
	return map[string]string{S3: "S3", GCS: "Google Cloud Storage", Azure: "Azure Blob Storage"}[p.Scheme]
}
