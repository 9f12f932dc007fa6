package bucket_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/blob/bucket"
)

func TestPlaces(t *testing.T) {
	environ := func(env map[string]string) func(string) string {
		return func(name string) string { return env[name] }
	}
	for text, want := range map[string]string{
		"s3://b?region=eu-west-1":                 "s3://b/ https://s3.eu-west-1.amazonaws.com eu-west-1",
		"s3://b/team/one/?region=cn-north-1":      "s3://b/team/one https://s3.cn-north-1.amazonaws.com.cn cn-north-1",
		"s3://b/p?endpoint=http://127.0.0.1:9000": "s3://b/p http://127.0.0.1:9000 us-east-1",
		"gs://b/p":                  "gs://b/p https://storage.googleapis.com ",
		"azblob://c/p?account=acme": "azblob://c/p https://acme.blob.core.windows.net ",
		"azblob://c?account=a&endpoint=https://blob.local": "azblob://c/ https://blob.local ",
	} {
		p, err := bucket.Parse(text, environ(nil))
		if got := fmt.Sprint(p, " ", p.Endpoint, " ", p.Region); err != nil || got != want {
			t.Errorf("Parse(%s) = %q, %v, want %q", text, got, err, want)
		}
	}
	if p, err := bucket.Parse("s3://b", environ(map[string]string{"AWS_REGION": "eu-west-1"})); err != nil || p.Region != "eu-west-1" {
		t.Errorf("Parse() = %+v, %v, want the region of the environment", p, err)
	}
	if p, err := bucket.Parse("azblob://c", environ(map[string]string{"AZURE_STORAGE_ACCOUNT": "acme"})); err != nil || p.Account != "acme" {
		t.Errorf("Parse() = %+v, %v, want the account of the environment", p, err)
	}
	for text, says := range map[string]string{
		"s3://b":                              "region=",
		"azblob://c":                          "account=",
		"s3://key:secret@b?region=r":          "credentials",
		"s3:///p?region=r":                    "bucket is missing",
		"s3://b:9000/p?region=r":              "bucket is missing",
		"s3://b/.git?region=r":                "prefix",
		"s3://b?region=r&endpont=x":           "endpont",
		"s3://b?region=r&region=s":            "twice",
		"s3://b?region=r&endpoint=ftp://x":    "endpoint= is not",
		"s3://b?region=r&endpoint=http://u@x": "endpoint=",
		"s3://b?region=r&path-style=yes":      "path-style",
		"gs://b?region=r":                     "region",
		"gs://b?credentials=mine":             "credentials= is none",
		"http://b":                            "scheme",
		"s3://b?region=%zz":                   "parameters",
	} {
		if p, err := bucket.Parse(text, environ(nil)); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "secret") {
			t.Errorf("Parse(%s) = %+v, %v, want an error that says %q", text, p, err, says)
		}
	}
}
