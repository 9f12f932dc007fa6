package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/terrier-iac/terrier/internal/controller"
	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/image"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/pods"
	"github.com/terrier-iac/terrier/internal/pods/build"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/agent"
	"github.com/terrier-iac/terrier/internal/runner/remote"
	"github.com/terrier-iac/terrier/internal/sandbox"
)

// PodsConfig is the additional settings of a controller about how runs are carried out.
type PodsConfig struct {
	As            string        `flag:"runs-as" env:"TERRIER_RUNS_AS" default:"processes" help:"processes beside this controller, or pods: one for each run, in the namespace of its stack"`
	Image         string        `flag:"run-image" env:"TERRIER_RUN_IMAGE" help:"image of the pods of runs, with terrier-runner and the engine"`
	PullPolicy    string        `flag:"run-image-pull-policy" env:"TERRIER_RUN_IMAGE_PULL_POLICY" default:"IfNotPresent" help:"Always, IfNotPresent or Never"`
	PullSecrets   []string      `flag:"run-image-pull-secret" env:"TERRIER_RUN_IMAGE_PULL_SECRETS" help:"Secret in the namespace of a stack with credentials of the registry of --run-image (repeatable)"`
	Account       string        `flag:"run-service-account" env:"TERRIER_RUN_SERVICE_ACCOUNT" default:"default" help:"ServiceAccount of the pods of runs whose stack names none; under the one called default a pod has no token for the Kubernetes API"`
	Resources     []string      `flag:"run-resources" env:"TERRIER_RUN_RESOURCES" default:"requests.cpu=800m,requests.memory=150Mi" help:"requests.NAME=QUANTITY or limits.NAME=QUANTITY of the pods of runs; limits.memory is that of --run-memory by default (repeatable)"`
	PriorityClass string        `flag:"run-priority-class" env:"TERRIER_RUN_PRIORITY_CLASS" help:"PriorityClass of the pods of runs"`
	Audience      string        `flag:"run-audience" env:"TERRIER_RUN_AUDIENCE" default:"terrier-run" help:"audience of the tokens by which the pods of runs are known"`
	Engines       []string      `flag:"run-engine-version" env:"TERRIER_RUN_ENGINE_VERSIONS" default:"tofu 1.12.6" help:"engine in the image, as tofu VERSION or terraform VERSION; NAME=tofu VERSION is one that stacks may select with the annotation terrier.dev/engine and have in an image of their own (repeatable)"`
	NodeTimeout   time.Duration `flag:"run-node-timeout" env:"TERRIER_RUN_NODE_TIMEOUT" default:"1m" help:"time that the pod of a run may wait for a node, and at most 20s of it for its image, until it is deleted and the run waits for its turn again; 0 keeps it until --run-start-timeout"`
	Prepared      int           `flag:"run-prepared-size" env:"TERRIER_RUN_PREPARED_SIZE" default:"16" help:"MiB, packed, that the controller keeps for each stack of what init made beside the providers, so that a drift check in a pod needs no init; 0 keeps nothing"`
	ProviderCache string        `flag:"run-provider-cache" env:"TERRIER_RUN_PROVIDER_CACHE" help:"volume with a cache of providers, which the pods of runs mount read-only, in JSON as in a Pod: {\"persistentVolumeClaim\": {\"claimName\": \"providers\", \"readOnly\": true}}"`
	ProviderLock  string        `flag:"run-provider-lock" env:"TERRIER_RUN_PROVIDER_LOCK" help:"dependency lock file with the providers in that cache; a package that neither it nor the lock file of a module names is not used"`
	ChecksPerPod  int           `flag:"checks-per-pod" env:"TERRIER_CHECKS_PER_POD" default:"1" help:"drift checks of one tenant that one pod carries out at most, one after another, while they find nothing; 1 gives each check a pod of its own; needs --min-isolation 2 or 3 and one active controller"`
	StartTimeout  time.Duration `flag:"run-start-timeout" env:"TERRIER_RUN_START_TIMEOUT" default:"10m" help:"time that the pod of a run may take to start before the run fails"`
}

// BuildsConfig is how Dockerfiles of stacks are built.
type BuildsConfig struct {
	Namespace string        `flag:"image-build-namespace" env:"TERRIER_IMAGE_BUILD_NAMESPACE" help:"namespace where BuildKit builds the Dockerfiles of stacks that ask for an image, for nothing else; off if empty"`
	Image     string        `flag:"image-build-image" env:"TERRIER_IMAGE_BUILD_IMAGE" help:"rootless image of BuildKit, with its digest: moby/buildkit@sha256:…"`
	Resources []string      `flag:"image-build-resources" env:"TERRIER_IMAGE_BUILD_RESOURCES" default:"requests.cpu=500m,requests.memory=512Mi,limits.memory=4Gi,limits.ephemeral-storage=20Gi" help:"requests.NAME=QUANTITY or limits.NAME=QUANTITY of a build (repeatable)"`
	Timeout   time.Duration `flag:"image-build-timeout" env:"TERRIER_IMAGE_BUILD_TIMEOUT" default:"30m" help:"time that a build may take, with the wait for its pod"`
}

// check reports invalid settings. The namespace of builds has no stacks.
func (c BuildsConfig) check(o Options) error {
	if c.Namespace == "" {
		return nil
	}
	if o.asPods() == nil {
		return usage("--image-build-namespace needs --runs-as=pods: BuildKit runs as a Job of the cluster")
	}
	if len(validation.IsDNS1123Label(c.Namespace)) > 0 {
		return usage("--image-build-namespace: %q is no name of a namespace", c.Namespace)
	}
	if o.Cluster != nil && slices.Contains(o.Cluster.Namespaces, c.Namespace) {
		return usage("--image-build-namespace: %s has stacks (--watch-namespace). Name a namespace that has nothing else", c.Namespace)
	}
	if _, err := name.NewDigest(c.Image); err != nil {
		return usage("--image-build-image: %q has no digest. Write it as moby/buildkit@sha256:…", c.Image)
	}
	if c.Timeout < time.Minute {
		return usage("--image-build-timeout: %s is less than a minute", c.Timeout)
	}
	_, err := parseResources("--image-build-resources", c.Resources)
	return err
}

// asPods are the settings of runs that are pods; nil if runs are processes.
func (o Options) asPods() *PodsConfig {
	if o.Pods == nil || o.Pods.As != runsAsPods {
		return nil
	}
	return o.Pods
}

// defaultRunAccount is the default of --run-service-account.
const defaultRunAccount = "default"

// The values of --runs-as.
const (
	runsAsProcesses = runner.AsProcesses
	runsAsPods      = runner.AsPods
)

// maxPrepared is the largest --run-prepared-size, in MiB.
const maxPrepared = 128

// maxChecks is the largest --checks-per-pod.
const maxChecks = 100

// check reports invalid settings. A pod reaches the HTTP API by the first of hosts.
func (c PodsConfig) check(address string, hosts []string) error {
	if c.As != runsAsProcesses && c.As != runsAsPods {
		return usage("--runs-as: %q is neither processes nor pods", c.As)
	}
	if c.As == runsAsProcesses {
		return nil
	}
	if c.Image == "" {
		return usage("--runs-as=pods needs --run-image, the image with terrier-runner and the engine")
	}
	switch corev1.PullPolicy(c.PullPolicy) {
	case corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever:
	default:
		return usage("--run-image-pull-policy: %q is none of Always, IfNotPresent and Never", c.PullPolicy)
	}
	for _, name := range c.PullSecrets {
		if len(validation.IsDNS1123Subdomain(name)) > 0 {
			return usage("--run-image-pull-secret: %q is no name of a Secret", name)
		}
	}
	if c.Account == "" || c.Audience == "" {
		return usage("--run-service-account and --run-audience cannot be empty")
	}
	if c.StartTimeout < time.Second {
		return usage("--run-start-timeout: %s is less than a second", c.StartTimeout)
	}
	if c.NodeTimeout < 0 {
		return usage("--run-node-timeout: %s is negative", c.NodeTimeout)
	}
	if c.Prepared < 0 || c.Prepared > maxPrepared {
		return usage("--run-prepared-size: %d is not between 0 and %d MiB", c.Prepared, maxPrepared)
	}
	if c.ChecksPerPod < 1 || c.ChecksPerPod > maxChecks {
		return usage("--checks-per-pod: %d is not between 1 and %d", c.ChecksPerPod, maxChecks)
	}
	if _, err := c.cache(); err != nil {
		return err
	}
	if _, err := c.lock(); err != nil {
		return err
	}
	r, err := c.resources()
	if err != nil {
		return err
	}
	if err := agent.TooSmall(r.Limits.Memory().Value(), runner.Job{Engine: runner.Engine{Name: "tofu"}}); err != nil {
		return usage("--run-resources limits.memory: %v", err)
	}
	if _, err := c.engines(); err != nil {
		return err
	}
	host, _, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && len(hosts) == 0 && (ip == nil || !ip.IsLoopback()) {
		return usage("--runs-as=pods needs --http-host, the name by which pods reach this controller")
	}
	return nil
}

// checkIsolation reports that runs which share a pod would not be kept apart.
func (c PodsConfig) checkIsolation(level int) error {
	if c.As == runsAsPods && c.ChecksPerPod > 1 && sandbox.Level(level) < sandbox.Kernel {
		return usage("--checks-per-pod %d needs --min-isolation 2 or 3: at level 1 a run can read the files of the next one in its pod", c.ChecksPerPod)
	}
	return nil
}

// cache is the volume with a cache of providers; nil if there is none.
func (c PodsConfig) cache() (*corev1.VolumeSource, error) {
	if (c.ProviderCache == "") != (c.ProviderLock == "") {
		return nil, usage("--run-provider-cache and --run-provider-lock need each other: no package of the cache is used that no lock file names")
	}
	if c.ProviderCache == "" {
		return nil, nil
	}
	var volume corev1.VolumeSource
	in := json.NewDecoder(strings.NewReader(c.ProviderCache))
	in.DisallowUnknownFields()
	var kinds map[string]json.RawMessage
	if err := errors.Join(in.Decode(&volume), json.Unmarshal([]byte(c.ProviderCache), &kinds)); err != nil {
		return nil, usage("--run-provider-cache is no volume in JSON such as {\"persistentVolumeClaim\": {\"claimName\": \"providers\"}}: %v", err)
	}
	if len(kinds) != 1 {
		return nil, usage("--run-provider-cache names %d kinds of volume, want one", len(kinds))
	}
	return &volume, nil
}

// maxLock bounds the file of --run-provider-lock.
const maxLock = 1 << 20

// lock is the dependency lock file with the providers in the cache; nil without one. It is read
// for each run, for it may change.
func (c PodsConfig) lock() ([]byte, error) {
	if c.ProviderLock == "" {
		return nil, nil
	}
	data, err := os.ReadFile(c.ProviderLock)
	if err != nil {
		return nil, fault.New(fault.Missing, "ProviderLockMissing", fmt.Errorf("--run-provider-lock: %w", err))
	}
	if len(data) > maxLock {
		return nil, usage("--run-provider-lock: %s has %d bytes, more than %d", c.ProviderLock, len(data), maxLock)
	}
	if _, err := engine.ParseLockFile(data); err != nil {
		return nil, usage("--run-provider-lock: %s: %v: make it with `tofu providers lock`", c.ProviderLock, err)
	}
	return data, nil
}

// resources reads entries of requests.NAME=QUANTITY and limits.NAME=QUANTITY.
func (c PodsConfig) resources() (corev1.ResourceRequirements, error) {
	return parseResources("--run-resources", c.Resources)
}

// parseResources reads the entries of a flag.
func parseResources(flag string, entries []string) (corev1.ResourceRequirements, error) {
	r := corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	for _, entry := range entries {
		name, value, ok := strings.Cut(entry, "=")
		kind, of, ok2 := strings.Cut(name, ".")
		list := map[string]corev1.ResourceList{"requests": r.Requests, "limits": r.Limits}[kind]
		if !ok || !ok2 || of == "" || list == nil {
			return r, usage("%s %q is neither requests.NAME=QUANTITY nor limits.NAME=QUANTITY", flag, entry)
		}
		quantity, err := resource.ParseQuantity(value)
		if err != nil || quantity.Sign() < 0 {
			return r, usage("%s %s: %q is no quantity such as 800m or 150Mi", flag, name, value)
		}
		list[corev1.ResourceName(of)] = quantity
	}
	return r, nil
}

// engines are the engines in images, by the name that stacks select them with; that of
// all others has an empty name.
func (c PodsConfig) engines() (map[string]engine.Engine, error) {
	known := map[string]engine.Engine{}
	for _, entry := range c.Engines {
		name, what, ok := strings.Cut(entry, "=")
		if !ok {
			name, what = "", entry
		}
		program, version, ok := strings.Cut(what, " ")
		if !ok || version == "" || program != "tofu" && program != "terraform" {
			return nil, usage("--run-engine-version %q is neither tofu VERSION nor terraform VERSION, with or without NAME= before it", entry)
		}
		known[name] = engine.Engine{Name: program, Version: strings.TrimPrefix(version, "v")}
	}
	if _, ok := known[""]; !ok {
		return nil, usage("--run-engine-version: the engine in the image of --run-image is missing: add one without a name, such as --run-engine-version 'tofu 1.12.6'")
	}
	return known, nil
}

// find returns the function that finds an engine by its name. It has no path: the agent
// in the pod finds it there, and compares the version.
func (c PodsConfig) find() (findEngine, error) {
	known, err := c.engines()
	if err != nil {
		return nil, err
	}
	return func(_ context.Context, name string) (engine.Engine, error) {
		e, ok := known[name]
		if !ok {
			return e, fault.New(fault.Missing, "EngineMissing", fmt.Errorf("the engine %q is not known: the operator adds it with --run-engine-version '%s=tofu VERSION'", name, name))
		}
		return e, nil
	}, nil
}

// podRuns are runs that are pods.
type podRuns struct {
	*remote.Runner
	pods *pods.Pods
}

// Close ends the watch of the pods, which go on.
func (r podRuns) Close() error { return errors.Join(r.Runner.Close(), r.pods.Close()) }

// imageBuilder makes the images of stacks. Pods start from them. Runs that are processes
// have the code that is read back from the registry.
func imageBuilder(o Options, api *rest.Config, dir string, out *outbound.Client, code image.Store) (controller.Images, error) {
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700)); err != nil { // what a crash left
		return nil, fmt.Errorf("making a directory for images: %w", err)
	}
	b := &image.Builder{Base: o.Config.ImageBase, Out: out, Scratch: dir}
	pods := o.asPods()
	if pods == nil {
		b.Code = code
		return b, nil
	}
	b.Base = cmp.Or(o.Config.ImageBase, pods.Image)
	c := o.Builds
	if c.Namespace == "" {
		return b, nil
	}
	resources, err := parseResources("--image-build-resources", c.Resources)
	if err != nil {
		return nil, err
	}
	b.Dockerfiles, err = build.New(api, build.Config{
		Namespace: c.Namespace, Image: c.Image, Resources: resources, Deadline: c.Timeout,
	})
	return b, err
}

// openPods opens the runner whose runs are pods, and finds the pods of an earlier
// process.
func (p *parts) openPods(ctx context.Context, c *PodsConfig) (runs, error) {
	resources, err := c.resources()
	if err != nil {
		return nil, err
	}
	cache, err := c.cache()
	if err != nil {
		return nil, err
	}
	launcher, err := pods.New(pods.Config{
		API: p.plane.rest(), Installation: p.keys.ID(), Namespaces: p.watched(), Audience: c.Audience,
		Settings: pods.Settings{
			Image: c.Image, PullPolicy: corev1.PullPolicy(c.PullPolicy), PullSecrets: c.PullSecrets, Account: c.Account, PriorityClass: c.PriorityClass, Resources: resources,
			ProviderCache: cache,
		},
		Server: func() (string, []byte) { return p.http.url, p.http.ca }, // no run starts before it listens
		Now:    p.Now, Log: p.log,
	})
	if err != nil {
		return nil, err
	}
	config := remote.Config{
		Dir: p.dir("runner"), Launcher: launcher, Identify: launcher.Identify, LeftOut: launcher.LeftOut, Contents: p.contents(), Key: p.keys.Runs(),
		Prepared: int64(c.Prepared) << 20, RunsPerPlace: c.ChecksPerPod, StartLimit: c.StartTimeout, Shared: p.members != nil, Stale: p.plane.division().stale, RoomLimit: c.NodeTimeout, Now: p.Now, Log: p.log,
		Registry: p.reads.Answer,
	}
	if p.identities != nil {
		config.Tokens = p.identities.Answer
	}
	r, err := remote.New(ctx, config)
	if err != nil {
		return nil, errors.Join(err, launcher.Close())
	}
	return podRuns{r, launcher}, nil
}
