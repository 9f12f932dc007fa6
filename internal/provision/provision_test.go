package provision_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/terrier-iac/terrier/internal/backend"
	"github.com/terrier-iac/terrier/internal/backend/backendtest"
	"github.com/terrier-iac/terrier/internal/provision"
)

// asker answers requests as terrier-backend does, with this environment.
func asker(p provision.Plugins, environ map[string]string) func(*testing.T, backend.Request) backend.Reply {
	p.Environ, p.Now = func(name string) string { return environ[name] }, time.Now
	return func(t *testing.T, r backend.Request) backend.Reply {
		t.Helper()
		question, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := backend.Serve(t.Context(), bytes.NewReader(question), &out, p.Find); err != nil {
			t.Fatal(err)
		}
		var reply backend.Reply
		if err := json.Unmarshal(out.Bytes(), &reply); err != nil {
			t.Fatal(err)
		}
		return reply
	}
}

// s3Server is gofakes3, with the parts of a bucket that it does not know: they are stored as
// they are sent. It says where buckets are, as S3 does, and counts writes.
type s3Server struct {
	http.Handler
	url string

	mu      sync.Mutex
	writes  int
	regions map[string]string // of buckets
	parts   map[string][]byte // by bucket?part
}

func newS3(t *testing.T) *s3Server {
	s := &s3Server{Handler: gofakes3.New(s3mem.New()).Server(), regions: map[string]string{}, parts: map[string][]byte{}}
	at := httptest.NewServer(s)
	t.Cleanup(at.Close)
	s.url = at.URL
	return s
}

func (s *s3Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		s.writes++
	}
	bucket, object, _ := strings.Cut(strings.Trim(r.URL.Path, "/"), "/")
	part := bucket + "?" + strings.TrimSuffix(r.URL.RawQuery, "=")
	switch {
	case object != "":
	case strings.HasSuffix(part, "?encryption"), strings.HasSuffix(part, "?publicAccessBlock"):
		if r.Method == http.MethodPut {
			s.parts[part] = body
		} else if document, ok := s.parts[part]; ok {
			_, _ = w.Write(document)
		} else {
			w.WriteHeader(http.StatusNotFound)
		}
		return
	case r.Method == http.MethodPut && r.URL.RawQuery == "":
		s.regions[bucket] = "us-east-1"
		if _, after, ok := strings.Cut(string(body), "<LocationConstraint>"); ok {
			s.regions[bucket], _, _ = strings.Cut(after, "<")
		}
		body = nil
	case r.Method == http.MethodHead && s.regions[bucket] != "":
		w.Header().Set("X-Amz-Bucket-Region", s.regions[bucket])
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	s.Handler.ServeHTTP(w, r)
}

func (s *s3Server) written() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.writes
	s.writes = 0
	return n
}

// tables is a DynamoDB of tables without content, which answers as DynamoDB does: a table
// takes a while until it can be used.
type tables struct {
	mu     sync.Mutex
	writes int
	made   map[string]map[string]any
}

func newTables(t *testing.T) (*tables, string) {
	d := &tables{made: map[string]map[string]any{}}
	at := httptest.NewServer(d)
	t.Cleanup(at.Close)
	return d, at.URL
}

func (d *tables) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var in map[string]any
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	name, _ := in["TableName"].(string)
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	fail := func(code string) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"__type":"com.amazonaws.dynamodb.v20120810#` + code + `","message":"Requested resource not found: Table: ` + name + ` not found"}`))
	}
	switch _, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), "."); {
	case operation == "CreateTable" && d.made[name] == nil:
		d.writes++
		if in["BillingMode"] != "PAY_PER_REQUEST" {
			fail("ValidationException")
			return
		}
		d.made[name] = map[string]any{"TableName": name, "TableStatus": "CREATING", "KeySchema": in["KeySchema"]}
		_ = json.NewEncoder(w).Encode(map[string]any{"TableDescription": d.made[name]})
	case d.made[name] == nil:
		fail("ResourceNotFoundException")
	case operation == "DescribeTable":
		_ = json.NewEncoder(w).Encode(map[string]any{"Table": d.made[name]})
		d.made[name]["TableStatus"] = "ACTIVE"
	case operation == "DeleteTable":
		d.writes++
		delete(d.made, name)
		_, _ = w.Write([]byte("{}"))
	default:
		fail("ValidationException")
	}
}

var awsIdentity = map[string]string{"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}

func TestAWS(t *testing.T) {
	s := newS3(t)
	d, dynamo := newTables(t)
	p := backendtest.Plugin{
		Ask: asker(provision.Plugins{}, awsIdentity), Backend: "aws", Type: "s3",
		Settings: map[string]string{"s3": "store", "dynamoDB": "locks", "region": "eu-central-1", "endpoint": s.url, "dynamodb_endpoint": dynamo},
		Writes: func() int {
			d.mu.Lock()
			defer d.mu.Unlock()
			n := s.written() + d.writes
			d.writes = 0
			return n
		},
		Store: func(t *testing.T, b backend.Block) {
			if got := s.regions["store"]; got != "eu-central-1" {
				t.Errorf("the bucket is in %q", got)
			}
			for part, want := range map[string]string{"encryption": "AES256", "publicAccessBlock": "<RestrictPublicBuckets>true"} {
				if got := s.parts["store?"+part]; !strings.Contains(string(got), want) {
					t.Errorf("the %s of the bucket is %s", part, got)
				}
			}
			resp, err := http.Get(s.url + "/store?versioning")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if v, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(v), "<Status>Enabled") {
				t.Errorf("the versioning of the bucket is %s, %v", v, err)
			}
			put(t, s.url+"/store/"+b.Text("key"))
		},
	}
	backendtest.Run(t, p)
}

func put(t *testing.T, url string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("storing a state: %v, %v", resp, err)
	}
	_ = resp.Body.Close()
}

// What holds objects is left as it is, and a bucket elsewhere is named.
func TestAWSLeavesWhatIsThere(t *testing.T) {
	s := newS3(t)
	ask := asker(provision.Plugins{}, awsIdentity)
	r := backend.Request{Version: backend.Version, Operation: backend.Ensure, Backend: "aws", Settings: map[string]string{"bucket": "store", "region": "us-east-1", "endpoint": s.url}, Stack: backend.Stack{Namespace: "team", Name: "network"}}
	put(t, s.url+"/store")
	put(t, s.url+"/store/something")
	s.written()
	reply := ask(t, r)
	if reply.Error != nil || s.written() != 0 {
		t.Fatalf("ensure of a bucket with objects = %+v", reply)
	}
	want := "the bucket store: versioning is not enabled. The place holds objects, so nothing was changed: enable it yourself"
	if !slices.Contains(reply.Messages, want) {
		t.Errorf("it says %q, want %q", reply.Messages, want)
	}
	r.Settings["region"] = "eu-west-1"
	if e := ask(t, r).Error; e == nil || e.Field != "region" || e.Message != "is eu-west-1, and the bucket store is in us-east-1" {
		t.Errorf("in another region = %+v", e)
	}
	r.Settings["region"] = "us-east-1"
	if e := asker(provision.Plugins{}, map[string]string{"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://127.0.0.1:1/"})(t, r).Error; e == nil || !strings.Contains(e.Message, "there are no credentials of AWS") {
		t.Errorf("without credentials = %+v", e)
	}
}

func TestGCS(t *testing.T) {
	program, err := filepath.Abs("../../bin/fake-gcs-server")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("%v: make bin/fake-gcs-server", err)
	}
	// The server takes the properties of a bucket and forgets them, so they are kept here.
	c := counted(t, started(t, "/storage/v1/b", program, func(port string) []string {
		return []string{"-scheme", "http", "-host", "127.0.0.1", "-port", port, "-backend", "memory", "-log-level", "error"}
	}), "")
	backendtest.Run(t, backendtest.Plugin{
		Ask: asker(provision.Plugins{}, map[string]string{"GOOGLE_OAUTH_ACCESS_TOKEN": "dummy", "GOOGLE_PROJECT": "p"}), Backend: "gcs", Type: "gcs",
		Settings: map[string]string{"bucket": "store", "location": "EU", "endpoint": c.url},
		Writes:   c.written,
		Store: func(t *testing.T, b backend.Block) {
			resp, err := http.Post(c.url+"/upload/storage/v1/b/store/o?uploadType=media&name="+b.Text("prefix")+"/default.tfstate", "application/json", strings.NewReader("{}"))
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Fatalf("storing a state: %v, %v", resp, err)
			}
			_ = resp.Body.Close()
		},
	})
}

func TestAzure(t *testing.T) {
	program, err := filepath.Abs("../../bin/azurite/node_modules/.bin/azurite-blob")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(program); err != nil {
		t.Skipf("%v: make bin/azurite, which needs npm", err)
	}
	const account, key = "devstoreaccount1", "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==" // of every Azurite
	c := counted(t, started(t, "/", program, func(port string) []string {
		return []string{"--blobPort", port, "--inMemoryPersistence", "--disableTelemetry", "--silent", "--skipApiVersionCheck"}
	}), "/"+account)
	backendtest.Run(t, backendtest.Plugin{
		Ask: asker(provision.Plugins{Azure: c.url}, map[string]string{"ARM_ACCESS_KEY": key}), Backend: "azurerm", Type: "azurerm",
		Settings: map[string]string{"storageAccount": account, "container": "store"},
		Writes:   c.written,
		Store: func(t *testing.T, b backend.Block) {
			shared, err := container.NewSharedKeyCredential(account, key)
			if err != nil {
				t.Fatal(err)
			}
			client, err := container.NewClientWithSharedKeyCredential(c.url+"/store", shared, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := client.NewBlockBlobClient(b.Text("key")).UploadBuffer(t.Context(), []byte("{}"), nil); err != nil {
				t.Fatal(err)
			}
		},
	})
}

func TestBackendsThatMakeNothing(t *testing.T) {
	for name, settings := range map[string]map[string]string{
		"kubernetes": {"config_path": "/home/kubeconfig"},
		"http":       {"address": "https://states.example.org/a", "lock_address": "https://states.example.org/a"},
		"pg":         {"conn_str": "postgres://db.example.org/states"},
		"local":      {"path": "/srv/states/a.tfstate"},
	} {
		t.Run(name, func(t *testing.T) {
			backendtest.Run(t, backendtest.Plugin{Ask: asker(provision.Plugins{}, nil), Backend: name, Type: name, Settings: settings})
		})
	}
}

// counter stands in front of a server and counts writes.
type counter struct {
	url string

	mu     sync.Mutex
	writes int
}

func (c *counter) written() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.writes
	c.writes = 0
	return n
}

// counted stands in front of the server at a port; beneath is the path of all that is asked.
func counted(t *testing.T, port, beneath string) *counter {
	t.Helper()
	to, err := url.Parse("http://127.0.0.1:" + port)
	if err != nil {
		t.Fatal(err)
	}
	c := &counter{}
	var bucket []byte // as it was made, if it is one of Google
	proxy := httputil.NewSingleHostReverseProxy(to)
	at := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			c.mu.Lock()
			c.writes++
			c.mu.Unlock()
		}
		switch {
		case r.Method == http.MethodPost && r.URL.Path == "/storage/v1/b":
			bucket, _ = io.ReadAll(r.Body) // what is missing, the server refuses
			r.Body = io.NopCloser(bytes.NewReader(bucket))
		case r.Method == http.MethodDelete && r.URL.Path == "/storage/v1/b/store":
			bucket = nil
		case r.Method == http.MethodGet && r.URL.Path == "/storage/v1/b/store" && bucket != nil:
			_, _ = w.Write(bucket)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(at.Close)
	c.url = at.URL + beneath
	return c
}

// started starts a program that listens at a port of this machine, and waits until it
// answers.
func started(t *testing.T, ready, program string, args func(port string) []string) string {
	t.Helper()
	l := httptest.NewServer(nil) // a port that is free
	_, port, _ := strings.Cut(strings.TrimPrefix(l.URL, "http://"), ":")
	l.Close()
	cmd := exec.CommandContext(t.Context(), program, args(port)...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.Dir = t.TempDir()
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	for {
		resp, err := http.Get("http://127.0.0.1:" + port + ready)
		if err == nil {
			_ = resp.Body.Close()
			return port
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("%s ended: %v; it said: %s", program, err, said.String())
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}
