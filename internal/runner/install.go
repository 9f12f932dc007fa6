package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/runner/disk"
	"github.com/terrier-iac/terrier/internal/sandbox"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// The platform's mirror comes first: an init asks it alone for the providers that
// it has, so that runs need no network for them. Of some it may have no version
// that a module asks for, or no package that a lock file names. Init is then
// repeated with those providers from their registries, unless the operator has
// forbidden that.

// install runs init.
func (r *preparation) install(ctx context.Context, c command) error {
	before := len(r.reportFile.content().Diagnostics)
	r.moved = nil
	lock, err := r.cache.currentLock()
	if err != nil {
		return err
	}
	for {
		r.registry.begin()
		res, err := r.engine.execute(ctx, c)
		if r.registry.withdraw(res, err) {
			r.reportFile.set(func(rep *Report) { rep.Diagnostics = rep.Diagnostics[:before] })
			continue
		}
		unfit := r.unfit(res, err)
		if err == nil {
			if unfit, err = r.cache.unnamed(lock); err != nil {
				return err
			}
			if err = r.cache.withdraw(unfit, lock); err != nil {
				return err
			}
		}
		unfit = slices.DeleteFunc(unfit, func(p string) bool { return slices.Contains(r.moved, p) })
		if len(unfit) == 0 {
			return r.explainProviders(res, err)
		}
		ok, err2 := r.useRegistries(unfit)
		if err2 != nil || !ok {
			if err == nil {
				err = denied(unfit)
			}
			return errors.Join(r.explainProviders(res, err), err2)
		}
		r.moved = append(r.moved, unfit...)
		from := "its registry"
		if r.registry.mirrors() {
			from = "the registry of this platform"
		}
		r.recorder.logf("%s. Init takes %s from %s.", r.mirrorHas(unfit), strings.Join(unfit, " and "), from)
		r.reportFile.set(func(rep *Report) { rep.Diagnostics = rep.Diagnostics[:before] })
	}
}

// unfit are the providers of the mirror that made an init fail.
func (r *preparation) unfit(res result, err error) []string {
	if e, failed := errors.AsType[ending](err); !failed || e.outcome != stack.Failed {
		return nil
	}
	return slices.DeleteFunc(engine.UnfitProviders(r.job.Engine.Name, res.output.diagnostics), func(p string) bool { return !r.mirrored(p) })
}

// mirrored reports whether the mirror has a provider.
func (r *run) mirrored(provider string) bool {
	if r.host.Mirror == "" || !filepath.IsLocal(provider) {
		return false
	}
	info, err := os.Stat(filepath.Join(r.host.Mirror, provider))
	return err == nil && info.IsDir()
}

// useRegistries changes the CLI configuration of the run so that providers come
// from their registries. It is false if it says so already, or may not.
func (r *preparation) useRegistries(providers []string) (bool, error) {
	if r.registry.mirrors() {
		return true, nil // the next init gets another configuration
	}
	if r.sandbox.config.Network == sandbox.NoNetwork {
		return false, nil
	}
	at := slices.IndexFunc(r.job.Files, func(f workdir.File) bool { return f.Path == CLIConfig })
	if at < 0 {
		return false, nil
	}
	content, ok := workdir.FromRegistries(r.job.Files[at].Content, r.sandbox.config.PathInside(MirrorInside), providers)
	if !ok {
		return false, nil
	}
	tree, err := r.work.open(dirTree)
	if err != nil {
		return false, err
	}
	defer tree.Close()
	r.job.Files[at].Content = content
	if err := disk.WriteFresh(tree, path.Join(r.work.root, CLIConfig), content, 0o600); err != nil {
		return false, fmt.Errorf("writing the CLI configuration: %w", err)
	}
	return true, sandbox.ChownWork(r.work.path(dirWork))
}

// mirrorHas says which versions the mirror has of providers.
func (r *preparation) mirrorHas(providers []string) string {
	var has []string
	for _, p := range providers {
		versions := strings.Join(workdir.MirrorVersions(os.DirFS(r.host.Mirror), p), ", ")
		if versions == "" {
			versions = "in no version"
		}
		has = append(has, p+" "+versions)
	}
	return fmt.Sprintf("%s has %s", r.cache.name(), strings.Join(has, " and "))
}

// explainProviders adds to the failure of an init what the mirror has to do with
// it.
func (r *preparation) explainProviders(res result, err error) error {
	e, failed := errors.AsType[ending](err)
	if !failed || e.outcome != stack.Failed {
		return err
	}
	if r.registry.explain(res, &e) {
		return e
	}
	var why string
	missing := engine.MissingProviders(r.job.Engine.Name, res.output.diagnostics)
	unfit := r.unfit(res, err)
	switch tried := slices.DeleteFunc(slices.Clone(r.moved), func(p string) bool { return !slices.Contains(missing, p) }); {
	case len(tried) > 0:
		why = r.mirrorHas(tried) + ", so init asked the registry."
	case len(unfit) > 0 && r.sandbox.config.Network == sandbox.NoNetwork:
		why = r.mirrorHas(unfit) + ", and runs of this stack have no network to ask the registry."
	case len(unfit) > 0 && r.host.MirrorOnly:
		why = r.mirrorHas(unfit) + ", and --provider-registries=false keeps init from its registry. Add a version that fits to the mirror, or ask the operator to allow registries."
	case len(unfit) > 0:
		why = r.mirrorHas(unfit) + ", and the provider_installation of the stack's cliConfigSecretRef does not take it from elsewhere."
	case len(missing) > 0 && r.host.Mirror == "":
		why = "This platform has no mirror of providers. An operator can name one with --provider-mirror."
	case len(missing) > 0:
		why = fmt.Sprintf("%s does not have %s either.", r.cache.name(), strings.Join(missing, " and "))
		if r.host.MirrorOnly {
			why = fmt.Sprintf("%s does not have %s, and --provider-registries=false keeps init from its registry.", r.cache.name(), strings.Join(missing, " and "))
		}
	default:
		return err
	}
	e.explain(why)
	return e
}

// routine reports whether a warning of the engine says nothing to a user: the
// lock file of a run has the checksums of one platform, since its mirror has the
// packages of one platform.
func (r *run) routine(d plan.Diagnostic) bool {
	providers := engine.LocalChecksums(r.job.Engine.Name, d)
	return len(providers) > 0 && !slices.ContainsFunc(providers, func(p string) bool { return !r.mirrored(p) && !r.registry.completes(p) })
}
