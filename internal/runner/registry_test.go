package runner_test

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/registry/registrytest"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/runnertest"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// What the mirror of the registry cannot give comes from the registry of the provider, where
// the operator allows that. A refusal is never passed over, and the hosts that a stack names
// are its own.
func TestWhereProvidersComeFromIfTheRegistryHasNone(t *testing.T) {
	const provider = "example.com/team/small"
	for name, tt := range map[string]struct {
		port   string // of the host of the provider, in its address
		status int    // of the registry of the platform
		change func(*runner.Platform, *runner.Job)
		says   string // the log, or the message
		from   bool   // it comes from its registry
		asks   bool   // the registry of the platform is asked for it
		none   bool   // its registry has none either
	}{
		"no registry has it":           {status: http.StatusServiceUnavailable, none: true, says: "The registry of this platform did not answer: the registry says why it cannot. So init asked the registry of the address of " + provider, asks: true},
		"the registry is away":         {status: http.StatusServiceUnavailable, says: "does not answer: the registry says why it cannot. Init takes providers from their registries", from: true, asks: true},
		"its mirror has none":          {says: "The registry of this platform does not mirror " + provider + ". Init takes it from its registry", from: true, asks: true},
		"the registry refuses it":      {status: http.StatusForbidden, says: "The registry of this platform refused /v1/mirror/" + provider, asks: true},
		"its upstream is wrong":        {status: http.StatusBadGateway, says: "refused /v1/mirror/" + provider + "/index.json: the registry says why it cannot. Init takes it from no other registry", asks: true},
		"the operator allows no other": {status: http.StatusServiceUnavailable, change: func(p *runner.Platform, _ *runner.Job) { p.MirrorOnly = true }, says: "The registry of this platform did not serve", asks: true},
		"no mirror, and no other": {change: func(p *runner.Platform, _ *runner.Job) { p.MirrorOnly = true },
			says: "The registry of this platform does not mirror " + provider + ", and --provider-registries=false", asks: true},
		"the operator has it come from there": {status: http.StatusServiceUnavailable, from: true, change: func(_ *runner.Platform, j *runner.Job) {
			j.Registry.Direct = []string{"example.com/team/*"}
		}},
		"its host has a port": {port: ":8443", from: true, change: func(_ *runner.Platform, j *runner.Job) {
			j.Registry.Direct = []string{"example.com:8443/*/*"}
		}},
		"only that comes from there": {from: true, change: func(p *runner.Platform, j *runner.Job) {
			p.MirrorOnly, j.Registry.Direct = true, []string{provider}
			only := workdir.CLIConfig(workdir.Mirror{Dir: runner.MirrorInside, Only: true})
			j.Files[len(j.Files)-1].Content = only.Content
		}},
		"another one comes from there": {change: func(p *runner.Platform, j *runner.Job) {
			p.MirrorOnly, j.Registry.Direct = true, []string{"example.com/team/smaller", "example.com/te/*", "ample.com/*/*"}
		}, says: "The registry of this platform does not mirror " + provider, asks: true},
		"it was to come from there, which has none": {none: true, change: func(_ *runner.Platform, j *runner.Job) {
			j.Registry.Direct = []string{"example.com/*/*"}
		}, says: "registry example.com does not have a provider named " + provider},
		"the stack names the host": {from: true, change: func(_ *runner.Platform, j *runner.Job) {
			j.Files[len(j.Files)-1].Content = append(j.Files[len(j.Files)-1].Content, "\ncredentials \"example.com\" {\n  token = \"x\"\n}\n"...)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			provider := strings.Replace(provider, "/", tt.port+"/", 1)
			upstream := registrytest.New(t)
			if !tt.none {
				upstream.Publish(registrytest.NewRelease(t, registrytest.NewSigner(t), "team/small", "1.0.0", 0, runtime.GOOS+"_"+runtime.GOARCH))
			}
			platform := runnertest.NewPlatformRegistry(t, mirror(t))
			platform.Fail(tt.status)
			server := httptest.NewServer(platform)
			t.Cleanup(server.Close)

			local := open(t, t.TempDir())
			s := runnertest.NewStack(t, local, tofu(t), "terraform {\n  required_providers {\n    small = { source = \""+provider+"\" }\n  }\n}\nresource \"small_thing\" \"a\" {}\n")
			config := workdir.CLIConfig(workdir.Mirror{})
			config.Path = runner.CLIConfig
			s.Job.Files = append(s.Job.Files, config)
			s.Job.Sandbox.Network = "host"
			s.Job.Registry = &runner.Registry{URL: server.URL, Token: runnertest.PlatformToken, Mirror: true}
			local.Host().Provide(func(p *runner.Platform) {
				p.Authority, p.Env = upstream.Authority, map[string]string{"HTTPS_PROXY": upstream.Proxy}
				if tt.change != nil {
					tt.change(p, &s.Job)
				}
			})
			d := s.Finish(s.Start(stack.PlanRun)) // the provider is none, so the plan fails in any case
			if got := runnertest.Has(provider, d.LockFile); got != tt.from {
				t.Errorf("the lock file is %q, %s: %s\n%s", d.LockFile, d.Step, d.Message, d.Log)
			}
			if !strings.Contains(string(d.Log)+d.Message, tt.says) {
				t.Errorf("the log and the message lack %q: %s\n%s", tt.says, d.Message, d.Log)
			}
			if got := upstream.Count("/v1/providers/") > 0; got != (tt.from || tt.none) {
				t.Errorf("the registry of the provider got %+v", upstream.Asked())
			}
			if got := slices.Contains(platform.Asked(), "/v1/mirror/"+provider+"/index.json"); got != tt.asks {
				t.Errorf("the registry of the platform was asked for %q", platform.Asked())
			}
		})
	}
}
