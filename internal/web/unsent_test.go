package web

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
)

// A request that is refused is answered though its body never arrives, and one that no
// handler reads the body of.
func TestBodiesThatNeverArrive(t *testing.T) {
	auth := newRoles()
	auth.deny(access.ResourceRegistry)
	o := options(auth)
	o.Limits.Unread = 100 * time.Millisecond
	o.Packages = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}) // reads no body, as the registry for GET
	u, c := serve(t, o)
	for name, tt := range map[string]struct {
		method, path, host, token string
		want                      int
	}{
		"no token":           {"GET", "/v1/modules/apps/net/aws/versions", u.Host, "", http.StatusUnauthorized},
		"a token of no user": {"PUT", "/v1/modules/apps/net/aws/1.0.0", u.Host, "wrong", http.StatusUnauthorized},
		"no right":           {"PUT", "/v1/modules/apps/net/aws/1.0.0", u.Host, token, http.StatusForbidden},
		"no right in OCI":    {"PUT", "/v2/apps/x", u.Host, token, http.StatusForbidden},
		"another host":       {"GET", "/v1/modules/apps/net/aws/versions", "other.example.com", "", http.StatusForbidden},
		"no address":         {"GET", "/none", u.Host, "", http.StatusNotFound},
		"discovery":          {"GET", "/.well-known/terraform.json", u.Host, "", http.StatusOK},
		"an archive":         {"GET", "/v1/archives/x", u.Host, "", http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := tls.Dial("tcp", u.Host, c.Transport.(*http.Transport).TLSClientConfig)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if err := conn.SetDeadline(time.Now().Add(5 * time.Minute)); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: %s\r\nContent-Length: 1000\r\n", tt.method, tt.path, tt.host)
			if tt.token != "" {
				fmt.Fprintf(conn, "Authorization: Bearer %s\r\n", tt.token)
			}
			fmt.Fprint(conn, "\r\n")
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

// A user who may send a body has the time of the request for it, also over one connection:
// here the time of a body that no handler reads is over at once.
func TestBodiesOfUsersHaveTheirTime(t *testing.T) {
	o := options(newRoles())
	o.Limits.Unread = time.Nanosecond
	o.Registry = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, "%d %v", n, err)
	})
	u, c := serve(t, o)
	conn, err := tls.Dial("tcp", u.Host, c.Transport.(*http.Transport).TLSClientConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewReader(conn)
	for range 2 {
		fmt.Fprintf(conn, "PUT /v2/apps/x HTTP/1.1\r\nHost: %s\r\nContent-Length: 8\r\nAuthorization: Bearer %s\r\n\r\nhalf", u.Host, token)
		fmt.Fprint(conn, "half")
		resp, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || string(body) != "8 <nil>" {
			t.Errorf("the answer is %s %q, %v; want that the body was read", resp.Status, body, err)
		}
	}
}
