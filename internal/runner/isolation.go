package runner

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/terrier-iac/terrier/internal/encryption"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/sandbox"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// Where things are in a run's sandbox. MirrorInside and CLIConfig are also a
// promise to the caller that generates the CLI configuration file of a job.
const (
	MirrorInside = "/mirror"           // Config.Mirror, read-only
	CLIConfig    = "terrier.tfrc"      // the generated File that is the CLI configuration, if there is one
	BackendFile  = "terrier.tfbackend" // the generated File that completes the backend, if there is one
	trusted      = "terrier.pem"       // the certificates that runs trust, if the operator added some
	engineInside = "/engine"
	shownInside  = "/shown"
	homeInside   = "/work/" + dirHome // of runs that have files there; others have an empty one
)

// ReservedPaths are where a run has its own things in its sandbox. A volume of a user at, above
// or below one of them would be confused with it.
func ReservedPaths() []string {
	return []string{"/work", MirrorInside, engineInside, shownInside, backendInside, programsInside, path.Dir(sealInside)}
}

// isolation is the part of a run that decides what its programs see: the sandbox
// and the environment.
type isolation struct {
	*run
	config sandbox.Config
	cli    string // the CLI configuration file, relative to the root module
}

// decide chooses the sandbox of all steps of the run.
func (r *isolation) decide() error {
	probed := sandbox.Probed{Level: sandbox.Level(r.job.Sandbox.Level)}
	if probed.Level == sandbox.None {
		probed = sandbox.Probe()
	}
	if int(probed.Level) < r.job.Sandbox.MinLevel || probed.Level == sandbox.None {
		return fault.New(fault.Denied, "IsolationTooWeak", fmt.Errorf(
			"this machine can isolate runs at level %d and at least %d is asked for: %s",
			probed.Level, r.job.Sandbox.MinLevel, strings.Join(probed.Reasons, "; ")))
	}
	network := sandbox.NoNetwork
	if r.job.Sandbox.Network != "" {
		network = sandbox.Network(r.job.Sandbox.Network)
	}
	r.config = sandbox.Config{
		Level:    probed.Level,
		Work:     r.work.path(dirWork),
		Dir:      r.work.module(),
		ReadOnly: []sandbox.Bind{{Host: r.host.Engine, Inside: r.engineInside()}},
		Writable: r.host.Writable,
		Network:  network,
		Home:     r.home(),
		Shared:   r.job.Shares != "",
		OwnShm:   r.host.OwnShm && r.job.Shares == "",
		Limits: sandbox.Limits{
			Memory:    r.job.Limits.Memory,
			FileBytes: r.job.Limits.FileBytes,
			Processes: r.job.Limits.Processes,
		},
	}
	if r.host.Mirror != "" {
		r.config.ReadOnly = append(r.config.ReadOnly, sandbox.Bind{Host: r.host.Mirror, Inside: MirrorInside})
	}
	for _, path := range r.host.Readable {
		r.config.ReadOnly = append(r.config.ReadOnly, sandbox.Bind{Host: path, Inside: path})
	}
	if k := r.job.Kind; !k.Writes() || k == stack.DestroyRun || k == stack.ScriptRun {
		shown := r.work.path(dirShown)
		if err := errors.Join(os.MkdirAll(shown, 0o711), os.Chmod(shown, 0o711)); err != nil {
			return err
		}
		r.config.ReadOnly = append(r.config.ReadOnly, sandbox.Bind{Host: shown, Inside: shownInside})
	}
	r.reportFile.set(func(rep *Report) { rep.Level = int(probed.Level) })
	return r.openParents(probed.Level)
}

// openParents lets the sandbox's user pass through the directories above the
// work directory, without listing them. In a full sandbox no program passes
// there, and a supervisor that is not root runs its sandboxes as itself.
func (r *isolation) openParents(level sandbox.Level) error {
	if level == sandbox.Full || os.Geteuid() != 0 {
		return nil
	}
	for _, dir := range []string{r.layout.dir, r.layout.stacks(), r.work.dir} {
		if err := os.Chmod(dir, 0o711); err != nil {
			return err
		}
	}
	return nil
}

func (r *isolation) home() string {
	if len(r.job.Home) > 0 {
		return homeInside
	}
	return "/home"
}

func (r *isolation) engineInside() string {
	return path.Join(engineInside, filepath.Base(r.host.Engine))
}

// smallPlan is how large a plan may be, in bytes, for its apply to be small: the
// memory of a large one would grow to several times its size.
const smallPlan = 64 << 10

// environ is the environment of the engine, but for the address of its state:
// the variables of the operator, those of the job, those of its identity, and those of the platform, of
// which later ones win. Nothing is inherited.
func (r *isolation) environ() []string {
	env := map[string]string{}
	maps.Copy(env, r.host.Env)
	maps.Copy(env, r.job.Env)
	maps.Copy(env, r.identity.environ())
	if len(r.host.Authority) > 0 {
		at := r.config.PathInside(path.Join("/work", r.config.Dir, trusted))
		for _, name := range trustVariables {
			env[name] = at
		}
	}
	for name, value := range map[string]string{
		"PATH":               "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME":               r.config.PathInside(r.home()),
		"TMPDIR":             r.config.PathInside("/tmp"),
		"LANG":               "C.UTF-8",
		"TF_IN_AUTOMATION":   "1",
		"TF_INPUT":           "0",
		"CHECKPOINT_DISABLE": "1",
		"TF_CLI_CONFIG_FILE": r.cli,
	} {
		env[name] = value
	}
	r.registry.trust(env)
	if r.foreign.encryption != "" {
		env[encryption.Variable] = r.foreign.encryption
	}
	if r.state.locally {
		env["TF_WORKSPACE"] = r.job.Workspace
	}
	if n := r.job.Limits.CPUs; n > 0 {
		env["GOMAXPROCS"] = strconv.Itoa(n)
	}
	if m := r.job.Limits.Memory; m > 0 {
		// A hint to collect garbage before the limit kills, with space for the
		// providers, which inherit it.
		env["GOMEMLIMIT"] = strconv.FormatInt(m/10*6, 10)
		if !r.job.Kind.Writes() || r.job.Plan.Size < smallPlan {
			// Below that limit, collecting less often saves a tenth of the CPU
			// time of a plan, which is short, and a quarter of that of a small
			// apply.
			env["GOGC"] = "400"
		}
	}
	list := make([]string, 0, len(env))
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return list
}

// configure finds the CLI configuration among the job's files and makes it
// name the mirror where this sandbox shows it. The certificates that the run
// trusts become one more of them.
func (r *isolation) configure() {
	if added := r.host.Authority; len(added) > 0 {
		r.job.Files = append(r.job.Files, workdir.File{Path: trusted, Mode: 0o600, Content: slices.Concat(systemTrust(), []byte("\n"), added)})
	}
	r.registry.configure()
	r.cli = "/dev/null"
	for i, f := range r.job.Files {
		if f.Path != CLIConfig {
			continue
		}
		r.cli = CLIConfig
		seen := strconv.Quote(r.config.PathInside(MirrorInside))
		r.job.Files[i].Content = bytes.ReplaceAll(f.Content, []byte(strconv.Quote(MirrorInside)), []byte(seen))
	}
}

// cliConfig is the path of the CLI configuration, which a command in another directory
// has to find as well.
func (r *isolation) cliConfig() string {
	if filepath.IsAbs(r.cli) {
		return r.cli
	}
	return r.config.PathInside(path.Join("/work", r.work.module(), r.cli))
}

// trustVariables are by which programs of a run find the certificates that they
// trust: the engine and its providers, git, curl, and the libraries of clouds.
// Each of them replaces the certificates of the system, so the file that they
// name holds those as well.
var trustVariables = []string{"SSL_CERT_FILE", "GIT_SSL_CAINFO", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"}

// systemBundles are where systems keep the certificates that they trust, in the
// order in which Go looks for them.
var systemBundles = []string{
	"/etc/ssl/certs/ca-certificates.crt",
	"/etc/pki/tls/certs/ca-bundle.crt",
	"/etc/ssl/ca-bundle.pem",
	"/etc/pki/tls/cacert.pem",
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
	"/etc/ssl/cert.pem",
}

// systemTrust is the first of these files that there is; empty on a system that
// trusts nothing.
func systemTrust() []byte {
	for _, name := range systemBundles {
		if data, err := os.ReadFile(name); err == nil {
			return data
		}
	}
	return nil
}
