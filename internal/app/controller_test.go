package app

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/runner"
)

var update = flag.Bool("update", false, "write pages instead of comparing with them")

const (
	page  = "../../docs/controller.md"
	begin = "<!-- flags: made by go test ./internal/app -update -->\n"
)

// The page says what the command takes.
func TestControllerPage(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, old, ok := strings.Cut(string(text), begin)
	if !ok {
		t.Fatalf("%s has no line %q", page, begin)
	}
	cmd, err := Controller("terrier", "v1", func(string) string { return "" }, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	table := "\n| flag | default | |\n| --- | --- | --- |\n"
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		def := f.DefValue
		if def != "" && def != "[]" {
			def = "`" + def + "`"
		} else {
			def = ""
		}
		table += fmt.Sprintf("| `--%s` | %s | %s |\n", f.Name, def, f.Usage)
	})
	if *update {
		if err := os.WriteFile(page, []byte(head+begin+table), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(table, old); diff != "" {
		t.Errorf("%s has drifted, go test ./internal/app -update mends it (-got +want):\n%s", page, diff)
	}
}

// The controller of a cluster has no flags of the control plane.
func TestControllerHasNoFlagsOfTheControlPlane(t *testing.T) {
	cmd, err := Controller("terrier", "v1", func(string) string { return "" }, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range notInCluster {
		if cmd.Flags().Lookup(name) != nil {
			t.Errorf("there is a flag --%s, which would do nothing", name)
		}
	}
}

func TestClusterConfigIsChecked(t *testing.T) {
	for name, tt := range map[string]struct {
		config ClusterConfig
		want   string
	}{
		"as it is by default":   {ClusterConfig{Keys: "file", Lease: "l", LeaseTime: 15 * time.Second}, ""},
		"without a Lease":       {ClusterConfig{Keys: "file"}, ""},
		"a Lease too short":     {ClusterConfig{Keys: "file", Lease: "l", LeaseTime: time.Millisecond}, "--lease-duration"},
		"a host with a port":    {ClusterConfig{Keys: "file", Hosts: []string{"terrier:8443"}}, "--http-host"},
		"an IPv6 address":       {ClusterConfig{Keys: "secret", Hosts: []string{"fd00::1"}}, ""},
		"keys elsewhere":        {ClusterConfig{Keys: "vault"}, "--installation-keys"},
		"a host that is an URL": {ClusterConfig{Keys: "file", Hosts: []string{"https://terrier"}}, "--http-host"},
	} {
		t.Run(name, func(t *testing.T) {
			err := tt.config.check()
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("check() = %v, want %q", err, tt.want)
			}
		})
	}
}

// told is an API server that counts who comes through.
type told struct{ seen []string }

func (s *told) RoundTrip(r *http.Request) (*http.Response, error) {
	s.seen = append(s.seen, r.Method)
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
}

// A controller that may have been replaced reads, and acts no more.
func TestFence(t *testing.T) {
	lost := fault.New(fault.Later, "NotLeading", errNotLeading)
	server := &told{}
	config := &rest.Config{}
	leads := error(nil)
	fence(config, func() error { return leads })
	through := config.WrapTransport(server)
	for _, leads = range []error{nil, lost} {
		for _, method := range []string{http.MethodGet, http.MethodPatch, http.MethodPost, http.MethodPut, http.MethodDelete} {
			r, err := http.NewRequestWithContext(t.Context(), method, "https://api.example/apis/x", nil)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := through.RoundTrip(r)
			if answer != nil {
				answer.Body.Close()
			}
			if refused := errors.Is(err, errNotLeading); refused != (leads != nil && method != http.MethodGet) {
				t.Errorf("%s while leading is %v: refused is %t", method, leads, refused)
			}
		}
	}
	if want := []string{"GET", "PATCH", "POST", "PUT", "DELETE", "GET"}; !slices.Equal(server.seen, want) {
		t.Errorf("the server saw %v, want %v", server.seen, want)
	}
	runs, err := runner.New(runner.Config{Dir: t.TempDir(), Binary: filepath.Join(t.TempDir(), "none")})
	if err != nil {
		t.Fatal(err)
	}
	defer runs.Close()
	err = fencedRuns{runs, func() error { return lost }}.Start(context.Background(), runner.Job{ID: "plan-1", Stack: "s"})
	if !errors.Is(err, errNotLeading) {
		t.Errorf("starting a run: %v, want it refused", err)
	}
}
