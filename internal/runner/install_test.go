package runner_test

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/runnertest"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// asksFor is a module that asks for a version of a provider of which the bundled
// mirror has 2.0.0.
func asksFor(version string) string {
	return "terraform {\n  required_providers {\n    random = {\n      source  = \"hashicorp/random\"\n      version = \"" + version +
		"\"\n    }\n  }\n}\nresource \"random_id\" \"a\" {\n  byte_length = 4\n}\n"
}

// behindProxy is a stack whose runs reach a registry through a proxy, as an
// operator has set.
func behindProxy(t *testing.T, module string) (*runnertest.Stack, *runnertest.Registry, *runnertest.Local) {
	t.Helper()
	reg := runnertest.NewRegistry(t)
	local := open(t, t.TempDir())
	s := runnertest.NewStack(t, local, tofu(t), module)
	s.UseMirror(mirror(t))
	last := len(s.Job.Files) - 1
	s.Job.Files[last].Content = append(s.Job.Files[last].Content, reg.Host("registry.opentofu.org")...)
	s.Job.Sandbox.Network = "host"
	local.Host().Provide(func(p *runner.Platform) {
		p.Authority = reg.Authority
		p.Env = map[string]string{"HTTPS_PROXY": reg.Proxy}
	})
	return s, reg, local
}

// What the mirror lacks by version comes from the registry, through the proxy and
// by the authority that the operator has set.
func TestAVersionThatTheMirrorLacksComesFromItsRegistry(t *testing.T) {
	s, reg, local := behindProxy(t, asksFor("~> 3.6"))
	reg.Publish(mirror(t), "hashicorp/random", "3.6.1")
	plan := s.Must(stack.PlanRun)
	if !runnertest.Has(`version     = "3.6.1"`, plan.LockFile) || plan.Providers[runner.FromRegistry] == 0 {
		t.Errorf("lock file %s, providers %v; want 3.6.1 of the registry", plan.LockFile, plan.Providers)
	}
	if !runnertest.Has("(--provider-mirror) has registry.opentofu.org/hashicorp/random 2.0.0", plan.Log) {
		t.Errorf("the log does not name the mirror:\n%s", plan.Log)
	}
	if runnertest.Has("proxy-canary-4711", plan.Log, plan.Events) {
		t.Error("the log shows the password of the proxy")
	}
	if len(plan.Diagnostics) != 0 {
		t.Errorf("diagnostics = %+v, want none of the first try", plan.Diagnostics)
	}
	s.Must(stack.ApplyRun, runnertest.Saved(plan))

	// The lock file of a module names the registry's package of a version that the
	// mirror has, too.
	other, reg2, _ := behindProxy(t, asksFor("2.0.0"))
	reg2.Publish(mirror(t), "hashicorp/random", "2.0.0")
	other.Job.Files = append(other.Job.Files, workdir.File{Path: ".terraform.lock.hcl", Mode: 0o600, Content: []byte(
		"provider \"registry.opentofu.org/hashicorp/random\" {\n  version     = \"2.0.0\"\n  constraints = \"2.0.0\"\n  hashes = [\n    \"" +
			reg2.Hash("hashicorp/random", "2.0.0") + "\",\n  ]\n}\n")})
	if locked := other.Must(stack.PlanRun); locked.Providers[runner.FromRegistry] == 0 {
		t.Errorf("providers %v, want the one that the lock file names; asked %q\n%s", locked.Providers, reg2.Asked(), locked.Log)
	}

	// A mirror that has what is asked for leaves the registry in peace.
	before := len(reg.Asked())
	s.Job.Files[0].Content = []byte(asksFor("~> 2.0"))
	s.Job.Options.InitKey = "another"
	mirrored := s.Must(stack.PlanRun)
	if asked := reg.Asked()[before:]; len(asked) > 0 || mirrored.Providers[runner.FromMirror] == 0 {
		t.Errorf("providers %v, asked %q; want the mirror's and no request", mirrored.Providers, asked)
	}
	if len(mirrored.Diagnostics) != 0 || runnertest.Has("Incomplete lock file", mirrored.Log, mirrored.Events) {
		t.Errorf("diagnostics = %+v, want no word of checksums for other platforms\n%s", mirrored.Diagnostics, mirrored.Log)
	}

	for name, c := range map[string]struct {
		change   func(*runner.Platform)
		module   string
		network  string
		says     []string
		requests bool
	}{
		"the registry has no such version": {module: asksFor("~> 9.0"), network: "host", requests: true,
			says: []string{"no available releases match", "has registry.opentofu.org/hashicorp/random 2.0.0", "--provider-mirror", "so init asked the registry"}},
		"the operator allows only the mirror": {module: asksFor("~> 3.6"), network: "host",
			change: func(p *runner.Platform) { p.MirrorOnly = true },
			says:   []string{"no available releases match", mirror(t), "--provider-mirror", "--provider-registries=false"}},
		"runs have no network": {module: asksFor("~> 3.6"), network: "none",
			says: []string{"no available releases match", "--provider-mirror", "have no network"}},
		"a provider that is nowhere": {module: strings.ReplaceAll(asksFor("~> 3.6"), "hashicorp/random", "hashicorp/nowhere"), network: "host", requests: true,
			says: []string{"hashicorp/nowhere", "--provider-mirror", "does not have registry.opentofu.org/hashicorp/nowhere either"}},
		"a provider that is nowhere, without a mirror": {module: strings.ReplaceAll(asksFor("~> 3.6"), "hashicorp/random", "hashicorp/nowhere"), network: "host", requests: true,
			change: func(p *runner.Platform) { p.Mirror = "" },
			says:   []string{"hashicorp/nowhere", "An operator can name one with --provider-mirror"}},
	} {
		t.Run(name, func(t *testing.T) {
			s.Job.Files[0].Content = []byte(c.module)
			s.Job.Options.InitKey, s.Job.Sandbox.Network = name, c.network
			files := slices.Clone(s.Job.Files)
			var was runner.Platform
			local.Host().Provide(func(p *runner.Platform) {
				was = *p
				if c.change != nil {
					c.change(p)
				}
				if p.MirrorOnly || p.Mirror == "" {
					config := workdir.CLIConfig(workdir.Mirror{Dir: runner.MirrorInside, Only: p.MirrorOnly})
					config.Path, config.Content = runner.CLIConfig, append(config.Content, reg.Host("registry.opentofu.org")...)
					s.Job.Files = slices.DeleteFunc(slices.Clone(files), func(f workdir.File) bool { return f.Path == runner.CLIConfig })
					s.Job.Files = append(s.Job.Files, config)
				}
			})
			before := len(reg.Asked())
			d := s.Finish(s.Start(stack.PlanRun))
			s.Job.Files = files
			local.Host().Provide(func(p *runner.Platform) { *p = was })
			if d.Outcome != stack.Failed || (len(reg.Asked()) > before) != c.requests {
				t.Errorf("ended %s after %d requests", d.Outcome, len(reg.Asked())-before)
			}
			for _, want := range c.says {
				if !strings.Contains(d.Message, want) {
					t.Errorf("message = %q, want %q in it", d.Message, want)
				}
			}
		})
	}
}

// Of a cache no package is used that neither the operator nor the module names by its hash:
// init takes it from its registry, or the run is refused. Nothing of it was started by then.
func TestAPackageOfTheCacheThatNoLockFileNames(t *testing.T) {
	s, reg, local := behindProxy(t, asksFor("2.0.0"))
	reg.Publish(mirror(t), "hashicorp/random", "2.0.0")
	hostile := runnertest.NewMirror(t, mirror(t), "")
	lockOf := func(hash string) []byte {
		return []byte("provider \"registry.opentofu.org/hashicorp/random\" {\n  version = \"2.0.0\"\n  hashes = [\n    \"" + hash + "\",\n  ]\n}\n")
	}
	good := lockOf(hashOf(t, mirror(t)))
	local.Host().Provide(func(p *runner.Platform) { p.Mirror, p.ProviderLock = hostile.Dir, good })
	s.Allow(hostile.Cloud)

	plan := s.Must(stack.PlanRun)
	if plan.Providers[runner.FromRegistry] == 0 || !runnertest.Has(reg.Hash("hashicorp/random", "2.0.0"), plan.LockFile) {
		t.Errorf("providers %v with the lock file %s, want the package of the registry\n%s", plan.Providers, plan.LockFile, plan.Log)
	}
	if started := hostile.Started(); started != "" {
		t.Errorf("the providers %q of the cache were started, want none", started)
	}
	if !runnertest.Has("The provider cache (--run-provider-cache) has registry.opentofu.org/hashicorp/random 2.0.0. Init takes", plan.Log) {
		t.Errorf("the log does not say so:\n%s", plan.Log)
	}

	s.Job.Options.InitKey, s.Job.Sandbox.Network = "offline", "none"
	refused := s.Finish(s.Start(stack.PlanRun))
	if refused.Outcome != stack.Failed || refused.Reason != runner.ProviderUnnamed || !strings.Contains(refused.Message, "registry.opentofu.org/hashicorp/random") {
		t.Errorf("without a registry the plan ended %s (%s): %s; want a refusal that names the provider", refused.Outcome, refused.Reason, refused.Message)
	}
	if started := hostile.Started(); started != "" {
		t.Errorf("the providers %q of the cache were started, want none", started)
	}

	local.Host().Provide(func(p *runner.Platform) { p.Mirror = mirror(t) })
	s.Job.Options.InitKey = "named by the operator"
	if named := s.Must(stack.PlanRun); named.Providers[runner.FromMirror] == 0 {
		t.Errorf("providers %v, want the one of the cache that the operator names\n%s", named.Providers, named.Log)
	}
	local.Host().Provide(func(p *runner.Platform) { p.ProviderLock = []byte("# It names none.\n") })
	s.Job.Options.InitKey = "named by the module"
	s.Job.Files = append(s.Job.Files, workdir.File{Path: ".terraform.lock.hcl", Mode: 0o600, Content: good})
	if named := s.Must(stack.PlanRun); named.Providers[runner.FromMirror] == 0 {
		t.Errorf("providers %v, want the one of the cache that the module names\n%s", named.Providers, named.Log)
	}
}

// A lock file that names no provider is one that can be verified.
func TestALockFileWithoutProviders(t *testing.T) {
	local := open(t, t.TempDir())
	s := runnertest.NewStack(t, local, tofu(t), builtIn)
	s.UseMirror(mirror(t))
	local.Host().Provide(func(p *runner.Platform) { p.ProviderLock = []byte("# It names none.\n") })
	s.Job.Files = append(s.Job.Files, workdir.File{Path: ".terraform.lock.hcl", Mode: 0o600, Content: []byte("# This file is maintained automatically.\n")})
	if plan := s.Must(stack.PlanRun); engineSteps(plan) != "init plan show" {
		t.Errorf("the plan took the steps %q, want one with init", engineSteps(plan))
	}
}

// hashOf is the hash of a provider of a mirror, as lock files have it.
func hashOf(t *testing.T, mirror string) string {
	t.Helper()
	hash, err := archive.HashPackage(os.DirFS(filepath.Join(mirror, "registry.opentofu.org/hashicorp/random/2.0.0", runtime.GOOS+"_"+runtime.GOARCH)))
	if err != nil {
		t.Fatal(err)
	}
	return hash
}
