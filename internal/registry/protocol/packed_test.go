package protocol_test

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/registry"
	"github.com/terrier-iac/terrier/internal/registry/registrytest/enginetest"
)

// A list of many versions is packed for clients that take gzip, as engines do, and for no
// other. Archives and small answers are what they are.
func TestLongListsArePacked(t *testing.T) {
	s := start(t)
	s.push(t, "team/small/aws", "1.0.0", saying(t, "small"))
	s.push(t, "team/vpc/aws", "0.1.0", saying(t, "one"))
	versions := map[string]registry.ModuleVersion{"0.1.0": {File: "team-vpc-aws-0.1.0.tar.gz"}}
	for i := range 1000 {
		versions[fmt.Sprintf("0.0.%d", i)] = registry.ModuleVersion{File: "x"}
	}
	index, err := json.Marshal(map[string]any{"versions": versions})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.store.Put(t.Context(), "index/modules/team/vpc/aws.json", strings.NewReader(string(index))); err != nil {
		t.Fatal(err)
	}
	s.Transport.(*http.Transport).DisableCompression = true // else the client adds a header, and unpacks
	const list = "/v1/modules/team/vpc/aws/versions"
	plain := s.ask(t, "GET", list, reader, nil)
	if plain.Header.Get("Content-Encoding") != "" || plain.Header.Get("Vary") != "Accept-Encoding" || len(plain.body) < 16<<10 {
		t.Errorf("without a header the list has %d bytes and %v", len(plain.body), plain.Header)
	}
	for accepted, want := range map[string]bool{
		"gzip": true, "identity, GZIP ; q=0.5": true, "br, gzip": true,
		"gzip;q=0": false, "gzip; q=0.0": false, "identity": false, "x-gzip": false, "gzip;q=none": false,
	} {
		a := s.ask(t, "GET", list, reader, nil, "Accept-Encoding", accepted)
		if got := a.Header.Get("Content-Encoding") == "gzip"; got != want || a.Header.Get("Content-Length") != strconv.Itoa(len(a.body)) {
			t.Errorf("%q: the list is packed: %v, want %v; the headers are %v", accepted, got, want, a.Header)
			continue
		}
		text := a.body
		if want {
			z, err := gzip.NewReader(strings.NewReader(a.body))
			if err != nil {
				t.Fatal(err)
			}
			whole, err := io.ReadAll(z)
			if err != nil || len(a.body) > len(plain.body)/4 {
				t.Errorf("%q: %d bytes are packed to %d, %v", accepted, len(plain.body), len(a.body), err)
			}
			text = string(whole)
		}
		if text != plain.body {
			t.Errorf("%q: the list is another one", accepted)
		}
	}
	for _, path := range []string{"/v1/modules/team/small/aws/versions", "/v1/modules/team/vpc/aws/0.1.0/download"} {
		if a := s.ask(t, "GET", path, reader, nil, "Accept-Encoding", "gzip"); a.Header.Get("Content-Encoding") != "" || a.Header.Get("Vary") != "" {
			t.Errorf("%s is packed: %v", path, a.Header)
		}
	}
	if got := s.engine(reader, "").Says(t, enginetest.Using(t, s.host()+"/team/vpc/aws", ">= 0.1.0")); got != "one" {
		t.Errorf("the module says %q", got)
	}
}
