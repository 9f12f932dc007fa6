package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	coldInits = 100
	perMinute = 100 // warm inits: 1,000 in ten minutes
)

// installs are engines that install from a registry.
type installs struct{ *site }

// initialised is what many inits took.
type initialised struct {
	took         []time.Duration // sorted
	all          time.Duration
	client, with time.Duration // CPU of the engines, and of the server
}

// each is the CPU of one init.
func (i initialised) each(cpu time.Duration) string {
	return ms(cpu/time.Duration(len(i.took))) + " ms"
}

func (i initialised) walls() string {
	return fmt.Sprintf("%s, %s, %s", seconds(percentile(i.took, 50)), seconds(percentile(i.took, 95)), seconds(i.took[len(i.took)-1]))
}

// user is the computer of a user: a configuration, and a CLI configuration.
type user struct{ dir, program, ca string }

// user makes a new one below dir.
func (s installs) user(dir, config, module string) (*user, error) {
	u := &user{dir, s.b.bin("tofu"), s.ca}
	err := os.MkdirAll(dir, 0o700)
	for name, text := range map[string]string{"main.tf": module, "cli.tfrc": "disable_checkpoint = true\n" + config} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return u, err
}

func (u *user) init(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	c := exec.CommandContext(ctx, u.program, "init", "-input=false")
	c.Dir = u.dir
	c.Env = []string{"TF_CLI_CONFIG_FILE=" + filepath.Join(u.dir, "cli.tfrc"), "TF_IN_AUTOMATION=1", "HOME=" + u.dir, "TMPDIR=" + u.dir, "PATH=" + os.Getenv("PATH"), "SSL_CERT_FILE=" + u.ca}
	if out, err := c.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("tofu init: %w: %s", err, out)
	}
	return time.Since(began), nil
}

// requires is a configuration with the provider of the upstream.
const requires = `
terraform {
  required_providers {
    cloud = {
      source  = "` + mirroredHost + `/acme/cloud"
      version = "~> 1.0"
    }
  }
}
`

// throughMirror is the CLI configuration of a client of the registry.
func (s installs) throughMirror() string {
	host := strings.TrimPrefix(s.url, "https://")
	return fmt.Sprintf("credentials %q {\n  token = %q\n}\nprovider_installation {\n  network_mirror {\n    url = \"https://%s/v1/mirror/\"\n  }\n}\n", host, s.token, host)
}

// counting measures inits that do starts and waits for.
func (s installs) counting(do func(record func(time.Duration)) error) (initialised, error) {
	var mu sync.Mutex
	var i initialised
	before, err := s.used()
	if err != nil {
		return i, err
	}
	engines, began := cpuBy(syscall.RUSAGE_CHILDREN), time.Now()
	err = do(func(took time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		i.took = append(i.took, took)
	})
	i.all, i.client = time.Since(began), cpuBy(syscall.RUSAGE_CHILDREN)-engines
	after, failed := s.used()
	i.with = after - before
	slices.Sort(i.took)
	return i, errors.Join(err, failed)
}

// atOnce measures many inits that begin together, each with a directory of its own.
func (s installs) atOnce(ctx context.Context, name, config string) (initialised, error) {
	dir := filepath.Join(s.dir, name)
	var all []*user
	for i := range coldInits {
		u, err := s.user(filepath.Join(dir, fmt.Sprint(i)), config, requires)
		if err != nil {
			return initialised{}, err
		}
		all = append(all, u)
	}
	i, err := s.counting(func(record func(time.Duration)) error {
		inits, ctx := errgroup.WithContext(ctx)
		for _, u := range all {
			inits.Go(func() error {
				took, err := u.init(ctx)
				record(took)
				return err
			})
		}
		return inits.Wait()
	})
	return i, errors.Join(err, os.RemoveAll(dir))
}

// cold measures inits at once of a provider that no client asked for before, beside the same
// from a directory.
func (s installs) cold(ctx context.Context, out io.Writer) error {
	f := newFacts(out, fmt.Sprintf("%d inits at once of a provider of %s that the mirror has not", coldInits, mib(cloudWeight)))
	mirrored, err := s.atOnce(ctx, "cold", s.throughMirror())
	if err != nil {
		return err
	}
	f.fact("downloads from the upstream", fmt.Sprint(s.upstream.Count(".zip")), "1")
	f.fact("all have it after", seconds(mirrored.all), "")
	f.fact("… one init: p50, p95, max", mirrored.walls(), "")
	f.fact("CPU for each init: engine", mirrored.each(mirrored.client), "")
	f.fact("… registry", mirrored.each(mirrored.with), "")
	if err := s.held(f); err != nil {
		return err
	}
	dir := filepath.Join(s.dir, "filesystem")
	local, err := s.fromDirectory(ctx, dir)
	if err != nil {
		return err
	}
	f.fact("the same with filesystem_mirror: all have it after", seconds(local.all), "")
	f.fact("… one init: p50, p95, max", local.walls(), "")
	f.fact("… CPU for each init: engine", local.each(local.client), "")
	return errors.Join(f.err, os.RemoveAll(dir))
}

// fromDirectory measures the same inits with the archive in a directory.
func (s installs) fromDirectory(ctx context.Context, dir string) (initialised, error) {
	at := filepath.Join(dir, mirroredHost, "acme", "cloud")
	if err := os.MkdirAll(at, 0o700); err != nil {
		return initialised{}, err
	}
	if err := os.WriteFile(filepath.Join(at, "terraform-provider-cloud_1.0.0_"+here+".zip"), s.archive, 0o600); err != nil {
		return initialised{}, err
	}
	return s.atOnce(ctx, "local", fmt.Sprintf("provider_installation {\n  filesystem_mirror {\n    path = %q\n  }\n}\n", dir))
}

// warm measures inits at a steady rate of what the mirror has, with a module of the registry.
func (s installs) warm(ctx context.Context, out io.Writer, minutes int) error {
	host := strings.TrimPrefix(s.url, "https://")
	module := requires + fmt.Sprintf("module \"hello\" {\n  source  = \"%s/bench/hello/demo\"\n  version = \"~> 1.0\"\n}\n", host)
	f := newFacts(out, fmt.Sprintf("%d inits a minute for %d minutes of a module and a provider that the mirror has", perMinute, minutes))
	downloads := s.upstream.Count(".zip")
	i, err := s.counting(func(record func(time.Duration)) error {
		inits, ctx := errgroup.WithContext(ctx)
		tick := time.NewTicker(time.Minute / perMinute)
		defer tick.Stop()
		for n := range perMinute * minutes {
			u, err := s.user(filepath.Join(s.dir, "warm", fmt.Sprint(n)), s.throughMirror(), module)
			if err != nil {
				return err
			}
			inits.Go(func() error {
				took, err := u.init(ctx)
				record(took)
				return errors.Join(err, os.RemoveAll(u.dir))
			})
			select {
			case <-tick.C:
			case <-ctx.Done():
				return errors.Join(ctx.Err(), inits.Wait())
			}
		}
		return inits.Wait()
	})
	if err != nil {
		return err
	}
	f.fact("one init: p50, p95, max", i.walls(), "")
	f.fact("CPU for each init: engine", i.each(i.client), "")
	f.fact("… registry", i.each(i.with), "")
	f.fact("downloads from the upstream", fmt.Sprint(s.upstream.Count(".zip")-downloads), "0")
	f.fact("registry: CPU", fmt.Sprintf("%.1f %% of a core", 100*i.with.Seconds()/i.all.Seconds()), "≤ 100 % of a core")
	return errors.Join(s.held(f), f.err)
}

// tarball is an archive of one file.
func tarball(name, content string) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), Typeflag: tar.TypeReg})
	if err == nil {
		_, err = io.WriteString(w, content)
	}
	err = errors.Join(err, w.Close(), z.Close())
	return b.Bytes(), err
}
