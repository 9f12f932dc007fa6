package source

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/secret"
)

// bucketServer is an S3 server with one bucket, "modules".
type bucketServer struct {
	t       *testing.T
	backend gofakes3.Backend
	host    string
}

func serveBucket(t *testing.T, around func(http.Handler) http.Handler, objects map[string]string) *bucketServer {
	t.Helper()
	backend := s3mem.New()
	handler := gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server()
	if around != nil {
		handler = around(handler)
	}
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	b := &bucketServer{t: t, backend: backend, host: strings.TrimPrefix(s.URL, "http://")}
	if err := backend.CreateBucket("modules"); err != nil {
		t.Fatal(err)
	}
	for key, content := range objects {
		b.put(key, content)
	}
	return b
}

func (b *bucketServer) put(key, content string) {
	b.t.Helper()
	meta := map[string]string{"Last-Modified": time.Now().UTC().Format(http.TimeFormat)}
	if _, err := b.backend.PutObject("modules", key, meta, strings.NewReader(content), int64(len(content)), nil); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bucketServer) source(t *testing.T) *Bucket {
	return &Bucket{Endpoint: b.host, Name: "modules", AccessKey: "key", SecretKey: secret.New("canary"), Insecure: true, Out: loopback(t), Scratch: scratchDir(t)}
}

func TestBucket(t *testing.T) {
	objects := map[string]string{
		"main.tf": "a", "modules/net/main.tf": "b", "modules/dns/main.tf": "c", "archive.zip": "d", "notes/x.md": "e", "directory/": "",
	}
	rules := "!notes/\n*.zip\n"
	for name, tt := range map[string]struct {
		add    map[string]string
		prefix string
		ignore *string
		want   map[string]string
	}{
		"everything":                            {nil, "", nil, map[string]string{"main.tf": "a", "modules/net/main.tf": "b", "modules/dns/main.tf": "c", "archive.zip": "d", "notes/x.md": "e"}},
		"below a prefix":                        {nil, "modules/net/", nil, map[string]string{"modules/net/main.tf": "b"}},
		"less what the bucket ignores":          {map[string]string{".sourceignore": "notes/\n"}, "", nil, map[string]string{"main.tf": "a", "modules/net/main.tf": "b", "modules/dns/main.tf": "c", "archive.zip": "d"}},
		"the source's rules have the last word": {map[string]string{".sourceignore": "notes/\n/modules/\n"}, "", &rules, map[string]string{"main.tf": "a", "notes/x.md": "e"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := serveBucket(t, nil, objects)
			for key, content := range tt.add {
				s.put(key, content)
			}
			b := s.source(t)
			b.Prefix, b.Ignore = tt.prefix, tt.ignore
			revision, tree, err := fetch(t, b)
			if err != nil || !digestGrammar.MatchString(revision) {
				t.Fatalf("fetch() = %q, %v, want a sha256 revision", revision, err)
			}
			if diff := cmp.Diff(tt.want, tree); diff != "" {
				t.Errorf("the tree differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBucketRevision(t *testing.T) {
	s := serveBucket(t, nil, map[string]string{"main.tf": "a", "x.md": "b", ".sourceignore": "*.md\n"})
	b := s.source(t)
	revision := func() string {
		found, err := b.Resolve(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return found.Revision
	}
	first := revision()
	s.put("x.md", "changed")
	if got := revision(); got != first {
		t.Error("an ignored object changed the revision")
	}
	s.put("main.tf", "changed")
	second := revision()
	if second == first {
		t.Error("a changed object did not change the revision")
	}
	s.put("new.tf", "")
	if revision() == second {
		t.Error("a new object did not change the revision")
	}
}

func TestBucketRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		objects map[string]string
		change  func(*Bucket)
		kind    fault.Kind
	}{
		"a bucket that is not there":       {nil, func(b *Bucket) { b.Name = "gone" }, fault.Missing},
		"an endpoint with a path":          {nil, func(b *Bucket) { b.Endpoint += "/path" }, fault.Invalid},
		"an endpoint with credentials":     {nil, func(b *Bucket) { b.Endpoint = "u:canary@" + b.Endpoint }, fault.Invalid},
		"a key that goes up":               {map[string]string{"a/../../evil": "x"}, nil, fault.Invalid},
		"an absolute key":                  {map[string]string{"/etc/passwd": "x"}, nil, fault.Invalid},
		"an object and others below it":    {map[string]string{"a": "x", "a/b": "y"}, nil, fault.Invalid},
		"an object that is too large":      {map[string]string{"a": strings.Repeat("x", 101)}, nil, fault.Invalid},
		"more objects than the limits say": {map[string]string{"a": "", "b": "", "c": "", "d": ""}, nil, fault.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			b := serveBucket(t, nil, tt.objects).source(t)
			b.Limits = archive.Limits{File: 100, Entries: 3}
			if tt.change != nil {
				tt.change(b)
			}
			_, tree, err := fetch(t, b)
			if got := fault.Of(err); got != tt.kind {
				t.Errorf("fetch() = %v, %v, of kind %q, want %q", tree, err, got, tt.kind)
			}
			if err != nil && strings.Contains(err.Error(), "canary") {
				t.Errorf("fetch() = %v, which quotes a secret", err)
			}
		})
	}
}

func TestBucketThatForbids(t *testing.T) {
	s := serveBucket(t, func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			w.Write([]byte(`<Error><Code>AccessDenied</Code><Message>no</Message></Error>`))
		})
	}, nil)
	_, err := s.source(t).Resolve(context.Background())
	if fault.Of(err) != fault.Denied || fault.Reason(err, "") != ReasonAuth {
		t.Errorf("Resolve() = %v, want it denied for %s", err, ReasonAuth)
	}
}

func TestBucketThatChangesInBetween(t *testing.T) {
	s := serveBucket(t, nil, map[string]string{"main.tf": "a"})
	b := s.source(t)
	found, err := b.Resolve(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	s.put("main.tf", "longer than before")
	if _, err := b.Fetch(context.Background(), found, &bytes.Buffer{}); err == nil {
		t.Error("Fetch() returns something else than what Resolve() found")
	}
}

// A page of a list is held in memory, so a server cannot send a large one.
func TestBucketListsAreBounded(t *testing.T) {
	s := serveBucket(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !r.URL.Query().Has("list-type") {
				next.ServeHTTP(w, r)
				return
			}
			_, _ = w.Write([]byte("<ListBucketResult>" + strings.Repeat("<Contents><Key>a/</Key></Contents>", mostPage/30) + "</ListBucketResult>"))
		})
	}, nil)
	if found, err := s.source(t).Resolve(t.Context()); fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), "more than 16 MiB") {
		t.Errorf("Resolve() = %+v, %v, want a refusal", found, err)
	}
}
