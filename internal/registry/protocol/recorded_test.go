package protocol_test

import (
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/registry/registrytest"
	"github.com/terrier-iac/terrier/internal/registry/registrytest/enginetest"
)

var (
	update    = flag.Bool("update", false, "record the requests of the engine in testdata")
	terraform = flag.String("terraform", "", "the path of terraform, whose requests are compared or recorded, too")
)

// noted is a request as testdata has it: without what differs each time and on each machine.
func noted(r *http.Request) string {
	here := strings.NewReplacer(runtime.GOOS+"/"+runtime.GOARCH, "OS/ARCH", here, "OS_ARCH")
	line := r.Method + " " + here.Replace(r.URL.Path)
	if parameters := slices.Sorted(maps.Keys(r.URL.Query())); len(parameters) > 0 {
		line += "?" + strings.Join(parameters, "&")
	}
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		line += "\n  " + name + ": " + strings.Join(r.Header[name], ", ")
	}
	return line
}

// asked are requests, noted while a service answers them.
type asked struct {
	mu  sync.Mutex
	all []string
}

func (a *asked) note(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		a.all = append(a.all, noted(r))
		a.mu.Unlock()
		h.ServeHTTP(w, r)
	})
}

// take returns what was asked since the last time, each request once: an engine asks for some
// documents again.
func (a *asked) take() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	slices.Sort(a.all)
	text := strings.Join(slices.Compact(a.all), "\n")
	a.all = nil
	return text
}

// hosts is a registry with a module and a provider, and a mirror with a provider.
type hosts struct {
	*service
	mirror         *served
	module         []byte
	own, mirrored  *registrytest.Release
	direct, behind *asked
}

func newHosts(t *testing.T) *hosts {
	t.Helper()
	signer := registrytest.NewSigner(t)
	h := &hosts{
		service: start(t), module: saying(t, "one"), direct: &asked{}, behind: &asked{},
		own:      registrytest.NewRelease(t, signer, "team/cloud", "1.0.0", 5000, here, other),
		mirrored: registrytest.NewRelease(t, signer, "acme/cloud", "1.0.0", 5000, here, other),
	}
	h.push(t, "team/vpc/aws", "1.0.0", h.module)
	h.publish(t, signer, h.own)
	upstream := registrytest.New(t)
	upstream.Publish(h.mirrored)
	h.mirror = serveMirror(t, upstream)
	h.between(h.direct.note)
	h.mirror.Config.Handler = h.behind.note(h.mirror.Config.Handler)
	return h
}

// recorded is the file with the requests of an engine.
func recorded(engine string) string { return filepath.Join("testdata", "requests-"+engine+".txt") }

// The requests in testdata are those that the engine sends: without -terraform, OpenTofu.
func TestRequestsOfEngines(t *testing.T) {
	programs := map[string]string{"tofu": ""}
	if *terraform != "" {
		programs["terraform"] = *terraform
	}
	for name, program := range programs {
		t.Run(name, func(t *testing.T) {
			h := newHosts(t)
			dir := enginetest.Written(t, fmt.Sprintf("terraform {\n  required_providers {\n    cloud = {\n      source = \"%[1]s/team/cloud\"\n    }\n  }\n}\nmodule \"m\" {\n  source  = \"%[1]s/team/vpc/aws\"\n  version = \"~> 1.0\"\n}\n", h.host()))
			init := func(e enginetest.Client, dir string) {
				t.Helper()
				e.Program = program
				if out, err := e.Init(t, dir); err != nil {
					t.Fatalf("init: %v: %s", err, out)
				}
			}
			init(h.engine(reader, ""), dir)
			init(h.mirror.engine("token-team-a", ""), enginetest.Requiring(t, private+"/acme/cloud", "1.0.0"))
			got := h.direct.take() + "\n\n" + h.behind.take() + "\n"
			if *update {
				if err := os.WriteFile(recorded(name), []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(recorded(name))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("the requests are others: record them with -update (-want +got):\n%s", diff)
			}
		})
	}
}
