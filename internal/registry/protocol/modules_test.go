package protocol_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/registry/registrytest"
	"github.com/terrier-iac/terrier/internal/registry/registrytest/enginetest"
)

// RG-01
func TestDiscovery(t *testing.T) {
	s := start(t)
	a := s.ask(t, "GET", "/.well-known/terraform.json", "", nil)
	a.want(t, http.StatusOK, "")
	if got := a.Header.Get("Content-Type"); got != "application/json" {
		t.Errorf("the media type is %q, and clients accept application/json alone", got)
	}
	if got := a.Header.Get("Cache-Control"); !strings.Contains(got, "max-age") {
		t.Errorf("Cache-Control is %q", got)
	}
	if want := `{"modules.v1":"/v1/modules/","providers.v1":"/v1/providers/"}`; a.body != want {
		t.Errorf("discovery says %s, want %s", a.body, want)
	}
	for _, path := range []string{"/", "/v1/", "/v1/modules/", "/.well-known/other.json", "/v1/modules/team/vpc/aws"} {
		s.ask(t, "GET", path, admin, nil).want(t, http.StatusNotFound, "nothing at this address")
	}
}

// RG-02, RG-03, RG-04, RG-05, LQ-22: the engine installs modules that were uploaded over HTTP,
// also those of a version below 1.
func TestEngineInstallsModules(t *testing.T) {
	s := start(t)
	s.push(t, "team/vpc/aws", "1.0.1", saying(t, "one"))
	s.push(t, "team/vpc/aws", "1.0.10", zipOf(t, map[string]string{"main.tf": "output \"says\" {\n  value = \"ten\"\n}\n"}))
	s.push(t, "team/vpc/aws", "1.1.0-rc1", saying(t, "candidate"))
	s.push(t, "team/vpc/awscc", "9.9.9", saying(t, "sibling"))
	s.push(t, "team/vpc-two/aws", "8.8.8", saying(t, "sibling"))
	for _, version := range []string{"0.1.0", "0.2.9", "1.0.0"} {
		s.push(t, "team/young/aws", version, saying(t, version))
	}
	source := s.host() + "/team/vpc/aws"

	for name, tt := range map[string]struct{ source, version, want string }{
		"the highest version of a constraint":  {source, ">= 1.0", "ten"},
		"a constraint below the first release": {s.host() + "/team/young/aws", "~> 0.1", "0.2.9"},
		"a constraint that excludes it":        {source, "< 1.0.10", "one"},
		"a pre-release by its name":            {source, "1.1.0-rc1", "candidate"},
		"a directory of a module":              {source + "//modules/inner", "1.0.1", "one inside"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := s.engine(reader, "").Says(t, enginetest.Using(t, tt.source, tt.version)); got != tt.want {
				t.Errorf("the module says %q, want %q", got, tt.want)
			}
		})
	}
	t.Run("what is not there", func(t *testing.T) {
		s.refused(t, enginetest.Using(t, source, ">= 2.0"), reader, "no available version")
		s.refused(t, enginetest.Using(t, s.host()+"/team/other/aws", ">= 1.0"), reader, "cannot be found")
		s.refused(t, enginetest.Using(t, source, ">= 1.0"), "", "401 Unauthorized")
		s.refused(t, enginetest.Using(t, s.host()+"/secret/vpc/aws", ">= 1.0"), reader, "403 Forbidden")
	})
	if s.served["team"] == 0 || s.served["platform"] != 0 {
		t.Errorf("bytes were served to %v, want to the tenant of the reader", s.served)
	}
}

// RG-04, RG-05: clients that read the header alone, or the location without the field of
// newer clients, fetch the archive themselves, without a token. So do clients behind a
// proxy that has the registry below a path.
func TestOlderClients(t *testing.T) {
	s := start(t)
	s.push(t, "team/vpc/aws", "1.0.0", saying(t, "one"))
	for name, alter := range map[string]func(http.Header, []byte) (int, []byte){
		"header alone": func(http.Header, []byte) (int, []byte) { return http.StatusNoContent, nil },
		"location without the field of newer clients": func(h http.Header, body []byte) (int, []byte) {
			var got struct {
				Location string `json:"location"`
			}
			h.Del("X-Terraform-Get")
			if err := json.Unmarshal(body, &got); err != nil {
				return http.StatusInternalServerError, nil
			}
			return http.StatusOK, fmt.Appendf(nil, `{"location":%q}`, got.Location)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s.altered("/download", alter)
			for version, want := range map[string]string{s.host() + "/team/vpc/aws": "one", s.host() + "/team/vpc/aws//modules/inner": "one inside"} {
				if got := s.engine(reader, "").Says(t, enginetest.Using(t, version, "1.0.0")); got != want {
					t.Errorf("the module says %q, want %q", got, want)
				}
			}
		})
	}
	t.Run("a path before the registry", func(t *testing.T) {
		s.between(func(h http.Handler) http.Handler { return http.StripPrefix("/registry", h) })
		more := fmt.Sprintf("host \"registry.example.com\" {\n  services = {\n    \"modules.v1\" = \"%s/registry/v1/modules/\"\n  }\n}\ncredentials \"registry.example.com\" {\n  token = %q\n}\n", s.URL, reader)
		if got := s.engine(reader, more).Says(t, enginetest.Using(t, "registry.example.com/team/vpc/aws", "1.0.0")); got != "one" {
			t.Errorf("the module says %q", got)
		}
	})
}

// RG-08
func TestUploadsOfModules(t *testing.T) {
	s := start(t)
	one, two := saying(t, "one"), saying(t, "two")
	const path = "/v1/modules/team/vpc/aws/1.0.0"
	s.ask(t, "PUT", path, "", strings.NewReader("x")).want(t, http.StatusUnauthorized, "no token")
	s.ask(t, "PUT", path, "wrong", strings.NewReader("x")).want(t, http.StatusUnauthorized, "no token")
	s.ask(t, "PUT", path, reader, strings.NewReader("x")).want(t, http.StatusForbidden, "bob may not write in the namespace team")
	s.ask(t, "PUT", path, admin, strings.NewReader("<html>")).want(t, http.StatusUnprocessableEntity, "neither a zip archive nor a gzipped tar archive")
	s.ask(t, "PUT", path, admin, strings.NewReader(strings.Repeat("x", 5<<20))).want(t, http.StatusRequestEntityTooLarge, "larger than the limit of 4194304 bytes")
	s.ask(t, "PUT", "/v1/modules/team/vpc/aws/v1.0.0", admin, strings.NewReader("x")).want(t, http.StatusUnprocessableEntity, `write it as "1.0.0"`)
	s.ask(t, "PUT", "/v1/modules/team/vpc/AWS/1.0.0", admin, strings.NewReader("x")).want(t, http.StatusUnprocessableEntity, "target system")

	a := s.ask(t, "PUT", path, admin, strings.NewReader(string(one)))
	a.want(t, http.StatusCreated, "")
	if want := fmt.Sprintf(`{"version":"1.0.0","sha256":%q,"size":%d}`, registrytest.Sum(one), len(one)); a.body != want {
		t.Errorf("the answer is %s, want %s", a.body, want)
	}
	a = s.ask(t, "PUT", path, admin, strings.NewReader(string(one)))
	if a.want(t, http.StatusOK, ""); !strings.Contains(a.body, `"unchanged":true`) || !strings.Contains(a.body, `"by":"ann"`) {
		t.Errorf("the same bytes again are answered with %s", a.body)
	}
	s.ask(t, "PUT", path, admin, strings.NewReader(string(two))).want(t, http.StatusConflict, "published content never changes")

	var wait sync.WaitGroup
	var statuses [10]int
	for i := range statuses {
		content := saying(t, fmt.Sprint(i))
		wait.Go(func() {
			statuses[i] = s.ask(t, "PUT", "/v1/modules/team/vpc/aws/2.0.0", admin, strings.NewReader(string(content))).StatusCode
		})
	}
	wait.Wait()
	won := map[int]int{}
	for _, status := range statuses {
		won[status]++
	}
	if won[http.StatusCreated] != 1 || won[http.StatusConflict] != len(statuses)-1 {
		t.Errorf("the statuses of uploads at once are %v, want one 201", won)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, secret := range []string{admin, reader, "wrong", "signature="} {
		if strings.Contains(s.log.String(), secret) {
			t.Errorf("the log has %q", secret)
		}
	}
}

// RG-08: a retracted version is not chosen, and an address of it is gone.
func TestRetractedModules(t *testing.T) {
	s := start(t)
	s.push(t, "team/vpc/aws", "1.0.0", saying(t, "one"))
	s.push(t, "team/vpc/aws", "1.1.0", saying(t, "two"))
	const path = "/v1/modules/team/vpc/aws/1.1.0"
	s.ask(t, "POST", path+"/retract", reader, strings.NewReader(`{"reason":"x"}`)).want(t, http.StatusForbidden, "bob may not write")
	s.ask(t, "POST", path+"/retract", admin, strings.NewReader(`{}`)).want(t, http.StatusUnprocessableEntity, "a retraction needs a reason")
	s.ask(t, "POST", path+"/retract", admin, strings.NewReader(`{"why":"x"}`)).want(t, http.StatusUnprocessableEntity, "unknown field")
	s.ask(t, "POST", path+"/retract", admin, strings.NewReader(`{"reason":"it deletes the gateway"}`)).want(t, http.StatusNoContent, "")
	if got := s.engine(reader, "").Says(t, enginetest.Using(t, s.host()+"/team/vpc/aws", "~> 1.0")); got != "one" {
		t.Errorf("the module says %q, want the version before", got)
	}
	s.refused(t, enginetest.Using(t, s.host()+"/team/vpc/aws", "1.1.0"), reader, "no available version")
	s.ask(t, "GET", path+"/download", reader, nil).want(t, http.StatusGone, "version 1.1.0 of team/vpc/aws was retracted: it deletes the gateway")
	if a := s.ask(t, "GET", "/v1/modules/team/vpc/aws/versions", reader, nil); !strings.Contains(a.body, `"retracted":[{"version":"1.1.0","by":"ann","reason":"it deletes the gateway"`) {
		t.Errorf("versions are %s", a.body)
	}
	s.ask(t, "POST", path+"/restore", admin, nil).want(t, http.StatusNoContent, "")
	if got := s.engine(reader, "").Says(t, enginetest.Using(t, s.host()+"/team/vpc/aws", "~> 1.0")); got != "two" {
		t.Errorf("the module says %q, want the version that was restored", got)
	}
}

// RG-17: a bucket of boring-registry is served as it is.
func TestEngineInstallsFromABucketOfBoringRegistry(t *testing.T) {
	s := start(t)
	for key, text := range map[string]string{"modules/team/vpc/aws/team-vpc-aws-1.0.0.tar.gz": "one", "modules/team/vpc/awscc/team-vpc-awscc-9.9.9.tar.gz": "sibling"} {
		if err := s.store.Put(t.Context(), key, strings.NewReader(string(saying(t, text)))); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.engine(reader, "").Says(t, enginetest.Using(t, s.host()+"/team/vpc/aws", ">= 1.0")); got != "one" {
		t.Errorf("the module says %q", got)
	}
}

// Archives are fetched by signed addresses, whole or in ranges (RG-19, RG-22).
func TestArchives(t *testing.T) {
	s := start(t)
	content := string(saying(t, "one"))
	s.push(t, "team/vpc/aws", "1.0.0", []byte(content))
	location := func() string {
		t.Helper()
		a := s.ask(t, "GET", "/v1/modules/team/vpc/aws/1.0.0/download", reader, nil)
		a.want(t, http.StatusOK, "")
		if got := a.Header.Get("Cache-Control"); got != "no-store" {
			t.Errorf("Cache-Control of an address that expires is %q", got)
		}
		u, err := a.Request.URL.Parse(a.Header.Get("X-Terraform-Get"))
		if err != nil {
			t.Fatal(err)
		}
		return u.RequestURI()
	}
	path := location()
	a := s.ask(t, "GET", path, "", nil)
	a.want(t, http.StatusOK, "")
	if a.body != content || a.ContentLength != int64(len(content)) || a.Header.Get("Content-Type") != "application/gzip" || a.Header.Get("ETag") != `"`+registrytest.Sum([]byte(content))+`"` {
		t.Errorf("the archive has %d bytes and the headers %v", len(a.body), a.Header)
	}
	if a := s.ask(t, "HEAD", path, "", nil); a.ContentLength != int64(len(content)) || a.Header.Get("Accept-Ranges") != "bytes" {
		t.Errorf("HEAD has the headers %v", a.Header)
	}
	a = s.ask(t, "GET", path, "", nil, "Range", "bytes=10-19", "If-Range", a.Header.Get("ETag"))
	a.want(t, http.StatusPartialContent, "")
	if a.body != content[10:20] {
		t.Errorf("the range is %q, want %q", a.body, content[10:20])
	}
	// One request for many ranges would be many for the bucket.
	a = s.ask(t, "GET", path, "", nil, "Range", "bytes=0-0,2-2,4-4")
	a.want(t, http.StatusOK, "")
	if a.body != content || a.Header.Get("Content-Type") != "application/gzip" || a.ContentLength != int64(len(content)) {
		t.Errorf("several ranges have %d bytes and the headers %v, want the whole archive", len(a.body), a.Header)
	}
	s.ask(t, "GET", path, "", nil, "If-None-Match", `"`+registrytest.Sum([]byte(content))+`"`).want(t, http.StatusNotModified, "")
	s.ask(t, "GET", path, "", nil, "Range", "bytes=999999-").want(t, http.StatusRequestedRangeNotSatisfiable, "")

	for name, other := range map[string]string{
		"another archive":  strings.Replace(path, "vpc-aws-1.0.0", "vpc-aws-1.0.1", 1),
		"another tenant":   strings.Replace(path, "for=team", "for=other", 1),
		"another checksum": strings.Replace(path, "sha256=", "sha256=0", 1),
		"a later end":      strings.Replace(path, "expires=", "expires=9", 1),
		"no signature":     path[:strings.Index(path, "?")],
	} {
		t.Log(name)
		s.ask(t, "GET", other, admin, nil).want(t, http.StatusForbidden, "not signed")
	}
	s.mu.Lock()
	s.now = time.Now().Add(16 * time.Minute)
	s.mu.Unlock()
	s.ask(t, "GET", path, "", nil).want(t, http.StatusForbidden, "the address has expired")
	s.ask(t, "GET", location(), "", nil).want(t, http.StatusOK, "")
}

// What breaks off is an error for the client, and no part of it is kept.
func TestBrokenTransfers(t *testing.T) {
	s := start(t)
	content := tarGz(t, map[string]string{"main.tf": "# " + string(noise(1<<20))})
	t.Run("an upload", func(t *testing.T) {
		body, from := io.Pipe()
		go func() {
			_, err := from.Write(content[:len(content)/2])
			from.CloseWithError(errors.Join(errors.New("the client stops here"), err))
		}()
		req, err := http.NewRequestWithContext(t.Context(), "PUT", s.URL+"/v1/modules/team/vpc/aws/1.0.0", body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+admin)
		if res, err := s.Do(req); err == nil {
			t.Errorf("the upload has the status %d, %v", res.StatusCode, res.Body.Close())
		}
		if keys, err := s.store.List(t.Context(), ""); err != nil || len(keys) > 0 {
			t.Errorf("the store has %v, %v", keys, err)
		}
	})
	s.push(t, "team/vpc/aws", "1.0.0", content)
	t.Run("a download", func(t *testing.T) {
		a := s.ask(t, "GET", "/v1/modules/team/vpc/aws/1.0.0/download", reader, nil)
		u, err := a.Request.URL.Parse(a.Header.Get("X-Terraform-Get"))
		if err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		s.broken = 300_000
		s.mu.Unlock()
		res, err := s.Get(u.String())
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if n, err := io.Copy(io.Discard, res.Body); err == nil || n > 300_000 {
			t.Errorf("%d bytes came, %v, want an error", n, err)
		}
		s.refused(t, enginetest.Using(t, s.host()+"/team/vpc/aws", "1.0.0"), reader, "Failed to download module")
		s.mu.Lock()
		defer s.mu.Unlock()
		if !strings.Contains(s.log.String(), "archive not sent") || !strings.Contains(s.log.String(), "the store is gone") {
			t.Errorf("the log does not say why: %s", s.log.String())
		}
	})
}
