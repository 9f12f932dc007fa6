package app

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Config is everything that can be set. Tags name the flag, the environment
// variable that stands in for it, its default and its help.
type Config struct {
	DataDir        string `flag:"data-dir" env:"TERRIER_DATA_DIR" default:".terrier" help:"directory that holds everything: kubeconfig, store, records, caches"`
	APIAddress     string `flag:"api-address" env:"TERRIER_API_ADDRESS" default:"127.0.0.1:0" help:"loopback address of the Kubernetes API; port 0 keeps the port of the last start"`
	HTTPAddress    string `flag:"http-address" env:"TERRIER_HTTP_ADDRESS" default:"127.0.0.1:0" help:"address of the HTTP API, artifacts and registry, on loopback unless this is a controller of a cluster; port 0 keeps the port of the last start"`
	MetricsAddress string `flag:"metrics-address" env:"TERRIER_METRICS_ADDRESS" help:"address on which /metrics is served to Prometheus, unencrypted and without asking who it is; not served if empty"`
	StackMetrics   bool   `flag:"metrics-stack-names" env:"TERRIER_METRICS_STACK_NAMES" help:"give gotk_reconcile_duration_seconds the names of stacks, as Flux has it: a dozen series for each of them"`
	Quickstart     bool   `flag:"quickstart" env:"TERRIER_QUICKSTART" help:"apply the examples, two stacks and three tenants, and say what to try"`
	Output         string `flag:"output" short:"o" help:"json prints one line when ready"`

	Engine      string   `flag:"engine" env:"TERRIER_ENGINE" help:"path of tofu or terraform; found beside this program or on the PATH if empty"`
	Engines     []string `flag:"engine-named" env:"TERRIER_ENGINES" help:"NAME=/PATH of an engine that stacks may choose with the annotation terrier.dev/engine (repeatable)"`
	Runner      string   `flag:"runner" env:"TERRIER_RUNNER" help:"path of terrier-runner; beside this program if empty"`
	Mirror      string   `flag:"provider-mirror" env:"TERRIER_PROVIDER_MIRROR" help:"directory of providers that runs take instead of asking their registries; mirror beside this program if there is one"`
	Writable    []string `flag:"run-writable" env:"TERRIER_RUN_WRITABLE" help:"host directory that every run may write, at the same path (repeatable)"`
	Network     string   `flag:"run-network" env:"TERRIER_RUN_NETWORK" default:"host" help:"network of runs: host, or none"`
	HostNetwork bool     `flag:"allow-host-network" env:"TERRIER_ALLOW_HOST_NETWORK" help:"let stacks ask for the host's network where --run-network is none"`
	Isolation   int      `flag:"min-isolation" env:"TERRIER_MIN_ISOLATION" default:"2" help:"least level of isolation at which runs are allowed: 1 basic, 2 kernel, 3 full; at 1 a run that this program starts without being root can read what its user can"`
	Reuse       bool     `flag:"provider-reuse" env:"TERRIER_PROVIDER_REUSE" default:"true" help:"start each provider once for a run; false leaves it to the engine, which starts it several times"`
	MaxRuns     int      `flag:"max-runs" env:"TERRIER_MAX_RUNS" default:"4" help:"runs at work at once"`

	MaxTenantRuns int    `flag:"max-runs-per-tenant" env:"TERRIER_MAX_RUNS_PER_TENANT" default:"0" help:"runs of one tenant at work at once; 0 is as many as --max-runs"`
	TenantLabel   string `flag:"tenant-label" env:"TERRIER_TENANT_LABEL" default:"terrier.dev/tenant" help:"label of stacks whose value is their tenant, for fair turns; the namespace is where it is not set, and everywhere if this is empty"`
	RunsMemory    int    `flag:"memory-for-runs" env:"TERRIER_MEMORY_FOR_RUNS" default:"0" help:"MiB of memory that the runs at work may take together, by what was seen of earlier runs; 0 is 70 % of this machine or its control group"`

	RunTimeout     time.Duration `flag:"run-timeout" env:"TERRIER_RUN_TIMEOUT" default:"1h" help:"how long one plan or apply may take before it is interrupted"`
	RunGrace       time.Duration `flag:"run-grace" env:"TERRIER_RUN_GRACE" default:"30m" help:"how long an interrupted run may take to write its state before it is killed"`
	RunMemory      int           `flag:"run-memory" env:"TERRIER_RUN_MEMORY" default:"4096" help:"MiB of memory that one run may take"`
	RunFile        int           `flag:"run-file-size" env:"TERRIER_RUN_FILE_SIZE" default:"2048" help:"MiB that one file of a run may take"`
	RunProcesses   int           `flag:"run-processes" env:"TERRIER_RUN_PROCESSES" default:"1024" help:"processes and threads that one run may have"`
	CrossNamespace bool          `flag:"allow-cross-namespace-refs" env:"TERRIER_ALLOW_CROSS_NAMESPACE_REFS" help:"allow sources and dependencies in other namespaces"`
	AllowHosts     []string      `flag:"allow-host" env:"TERRIER_ALLOW_HOSTS" help:"host:port, address or CIDR that sources and webhooks may reach although it is local or private to this machine (repeatable)"`
	PlainHTTP      bool          `flag:"allow-plain-http" env:"TERRIER_ALLOW_PLAIN_HTTP" help:"allow sources and webhooks over unencrypted http"`
	WebhookCerts   string        `flag:"webhook-certs" env:"TERRIER_WEBHOOK_CERTS" help:"directory with HOST/ca.crt, HOST/tls.crt and HOST/tls.key for webhooks that need them"`
	WebhookKey     string        `flag:"webhook-key" env:"TERRIER_WEBHOOK_KEY" help:"file with the key that signs what webhooks are sent"`
	Unmasked       bool          `flag:"allow-unmasked-plans" env:"TERRIER_ALLOW_UNMASKED_PLANS" help:"let stacks show their webhooks the secrets in a plan"`
	Glass          bool          `flag:"allow-break-the-glass" env:"TERRIER_ALLOW_BREAK_THE_GLASS" help:"let people who may change a stack run some commands of the engine on it by hand"`
	GlassLasts     time.Duration `flag:"break-the-glass-timeout" env:"TERRIER_BREAK_THE_GLASS_TIMEOUT" default:"1h" help:"how long the glass of a stack stays broken at most"`
	Sources        bool          `flag:"sources" env:"TERRIER_SOURCES" default:"true" help:"reconcile GitRepository, OCIRepository and Bucket here; false leaves them to another source controller"`
	EventsAddress  string        `flag:"events-addr" env:"TERRIER_EVENTS_ADDR" help:"http address of Flux's notification-controller, which is sent every event; not sent if empty"`
	Notifications  bool          `flag:"notifications" env:"TERRIER_NOTIFICATIONS" default:"true" help:"deliver what Alert and Provider ask for; false leaves them to another notification controller"`

	TenantNamespaces []string `flag:"tenant-namespaces" env:"TERRIER_TENANT_NAMESPACES" help:"pattern of the namespaces that tenants may write to besides their own, unless their template names a ServiceAccount; * is all of them and what is in none; not given: * for one machine, none in a cluster (repeatable)"`
	SQLiteDirs       []string `flag:"sqlite-dir" env:"TERRIER_SQLITE_DIRS" help:"directory below which registries of tenants may read SQLite files; not given: the current and the data directory for one machine, none in a cluster (repeatable)"`
	RegistryWorkers  int      `flag:"registry-concurrency" env:"TERRIER_REGISTRY_CONCURRENCY" default:"3" help:"registries of tenants that are looked at at once"`
	TemplateWorkers  int      `flag:"template-concurrency" env:"TERRIER_TEMPLATE_CONCURRENCY" default:"5" help:"templates of tenants that are looked at at once"`
	TenantWorkers    int      `flag:"tenant-concurrency" env:"TERRIER_TENANT_CONCURRENCY" default:"10" help:"tenants that are looked at at once"`

	SessionLife time.Duration `flag:"session-life" env:"TERRIER_SESSION_LIFE" default:"12h" help:"how long a browser stays signed in at most"`
	SessionIdle time.Duration `flag:"session-idle" env:"TERRIER_SESSION_IDLE" default:"2h" help:"how long a browser stays signed in while nobody opens a page in it"`

	OIDCIssuer      string   `flag:"oidc-issuer" env:"TERRIER_OIDC_ISSUER" help:"address of the OpenID Connect issuer that people sign in with in a browser; nobody does if empty"`
	OIDCName        string   `flag:"oidc-name" env:"TERRIER_OIDC_NAME" help:"what people call the issuer, for the button; its host if empty"`
	OIDCClient      string   `flag:"oidc-client-id" env:"TERRIER_OIDC_CLIENT_ID" help:"id by which the issuer knows this server"`
	OIDCSecret      string   `flag:"oidc-client-secret-file" env:"TERRIER_OIDC_CLIENT_SECRET_FILE" help:"file with the secret of that client, if it has one"`
	OIDCScopes      []string `flag:"oidc-scope" env:"TERRIER_OIDC_SCOPES" default:"profile,email" help:"scope that is asked for besides openid (repeatable)"`
	OIDCUsername    string   `flag:"oidc-username-claim" env:"TERRIER_OIDC_USERNAME_CLAIM" default:"sub" help:"claim that is the name of the user; email counts only if the issuer has verified it"`
	OIDCUserPrefix  string   `flag:"oidc-username-prefix" env:"TERRIER_OIDC_USERNAME_PREFIX" help:"put before names of the issuer; ISSUER# if empty and the claim is not email, - for none"`
	OIDCGroups      string   `flag:"oidc-groups-claim" env:"TERRIER_OIDC_GROUPS_CLAIM" help:"claim that lists the groups of the user; no groups if empty"`
	OIDCGroupPrefix string   `flag:"oidc-groups-prefix" env:"TERRIER_OIDC_GROUPS_PREFIX" help:"put before groups of the issuer"`
	OIDCAuthority   string   `flag:"oidc-ca-file" env:"TERRIER_OIDC_CA_FILE" help:"file with the certificate authority of the issuer; the system's if empty"`

	LogLevel string `flag:"log-level" env:"TERRIER_LOG_LEVEL" default:"warn" help:"debug, info, warn or error"`
}

// bind registers the flags of c. A flag wins over its environment variable,
// which wins over the default. Those of omit are left at zero.
func bind(flags *pflag.FlagSet, c any, environ func(string) string, omit ...string) error {
	v := reflect.ValueOf(c).Elem()
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		name, help, def := tag.Get("flag"), tag.Get("help"), tag.Get("default")
		if slices.Contains(omit, name) {
			continue
		}
		if env := tag.Get("env"); env != "" {
			help += " [" + env + "]"
			if set := environ(env); set != "" {
				def = set
			}
		}
		var err error
		switch p := v.Field(i).Addr().Interface().(type) {
		case *string:
			flags.StringVarP(p, name, tag.Get("short"), def, help)
		case *[]string:
			var list []string
			if def != "" {
				list = strings.Split(def, ",") // a colon is part of HOST:PORT
			}
			flags.StringArrayVar(p, name, list, help)
		case *int:
			var n int
			n, err = strconv.Atoi(def)
			flags.IntVar(p, name, n, help)
		case *bool:
			on := false
			if def != "" {
				on, err = strconv.ParseBool(def)
			}
			flags.BoolVar(p, name, on, help)
		case *time.Duration:
			var d time.Duration
			d, err = time.ParseDuration(def)
			flags.DurationVar(p, name, d, help)
		default:
			err = fmt.Errorf("a field of type %T cannot be a flag", p)
		}
		if err != nil {
			return fmt.Errorf("--%s: %w", name, err)
		}
	}
	return nil
}

// beside is the path of a file in the directory of this program, empty if it
// is not there.
func beside(name string) string {
	exe, err := os.Executable()
	if err != nil {
		return ""
	}
	if exe, err = filepath.EvalSymlinks(exe); err != nil {
		return ""
	}
	path := filepath.Join(filepath.Dir(exe), name)
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}
