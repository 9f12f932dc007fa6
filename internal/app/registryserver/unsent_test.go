package registryserver

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A request whose body never arrives is answered within --stall-timeout: one that is refused,
// and one of a caller that may publish.
func TestBodiesThatNeverArrive(t *testing.T) {
	r := start(t, func(c *Config) { c.Stall = 4 * time.Second })
	token := r.token(t)
	const one = "/v1/modules/example/hello/demo/"
	for name, tt := range map[string]struct {
		method, path, token, part string
		want                      int
	}{
		"no token":                 {"GET", one + "versions", "", "", http.StatusUnauthorized},
		"a wrong token":            {"PUT", one + "1.0.0", "wrong", "", http.StatusUnauthorized},
		"no address":               {"POST", "/other", "", "", http.StatusNotFound},
		"an OCI registry":          {"POST", "/v2/", "", "", http.StatusUnauthorized},
		"discovery":                {"GET", "/.well-known/terraform.json", "", "", http.StatusOK},
		"a probe":                  {"GET", "/healthz", "", "", http.StatusOK},
		"a list":                   {"GET", one + "versions", token, "", http.StatusNotFound},
		"an upload that ends":      {"PUT", one + "1.0.0", token, "part", http.StatusRequestTimeout},
		"a file of a provider":     {"PUT", "/v1/providers/example/hello/1.0.0/terraform-provider-hello_1.0.0_SHA256SUMS", token, "part", http.StatusRequestTimeout},
		"a key with a part":        {"PUT", "/v1/providers/example/signing-keys", token, "-", http.StatusRequestTimeout},
		"a retraction with a part": {"POST", one + "1.0.0/retract", token, "{", http.StatusRequestTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := tls.Dial("tcp", strings.TrimPrefix(r.URL, "https://"), r.http.Transport.(*http.Transport).TLSClientConfig)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if err := conn.SetDeadline(time.Now().Add(5 * time.Minute)); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n", tt.method, tt.path)
			if tt.token != "" {
				fmt.Fprintf(conn, "Authorization: Bearer %s\r\n", tt.token)
			}
			fmt.Fprintf(conn, "\r\n%s", tt.part)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatalf("there is no answer: %v", err)
			}
			defer resp.Body.Close()
			if resp.StatusCode != tt.want || !resp.Close {
				t.Errorf("the answer is %s, and the connection ends: %v; want %d, and that it ends", resp.Status, resp.Close, tt.want)
			}
		})
	}
}
