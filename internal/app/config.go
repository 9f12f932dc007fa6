package app

import (
	"os"
	"path/filepath"
	"time"
)

// Config is all settings. Tags name the flag, the environment
// variable, the default and the help. Of several variables the first that is set counts.
type Config struct {
	DataDir        string   `flag:"data-dir" env:"TERRIER_DATA_DIR" default:".terrier" help:"directory for all data: kubeconfig, store, records, caches"`
	Records        string   `flag:"records" env:"TERRIER_RECORDS" help:"where records are: absolute path of a directory, s3://BUCKET/PREFIX?region=REGION, gs://BUCKET/PREFIX or azblob://CONTAINER/PREFIX?account=NAME; default the directory records of the data directory"`
	RecordsKey     string   `flag:"records-key" env:"TERRIER_RECORDS_KEY" help:"where the keys are that encrypt records: file, in the data directory, or secret, the Secret terrier-records-keys; default secret for a controller with --records, else file"`
	RecordsKMS     []string `flag:"records-kms" env:"TERRIER_RECORDS_KMS" help:"key of a key management service that wraps the keys of records in the Secret: vault://HOST/transit/KEY, awskms://KEY?region=REGION, gcpkms://projects/PROJECT/locations/LOCATION/keyRings/RING/cryptoKeys/KEY or azurekv://VAULT/KEY, or a URL of gocloud.dev/secrets; the first one wraps, further ones only unwrap; with plain as the first value none wraps, and the keys in the Secret become plain again (repeatable)"`
	AdoptRecords   bool     `flag:"adopt-records" env:"TERRIER_ADOPT_RECORDS" help:"take over the records of a cluster that is gone; for one start"`
	APIAddress     string   `flag:"api-address" env:"TERRIER_API_ADDRESS" default:"127.0.0.1:0" help:"loopback address of the Kubernetes API; port 0 reuses the port of the last start"`
	HTTPAddress    string   `flag:"http-address" env:"TERRIER_HTTP_ADDRESS" default:"127.0.0.1:0" help:"address of the HTTP API, artifacts and registry, on loopback unless this is a controller of a cluster; port 0 reuses the port of the last start"`
	MetricsAddress string   `flag:"metrics-address" env:"TERRIER_METRICS_ADDRESS" help:"address that serves /metrics to Prometheus, without encryption and authentication; off if empty"`
	StackMetrics   bool     `flag:"metrics-stack-names" env:"TERRIER_METRICS_STACK_NAMES" help:"add the names of stacks to gotk_reconcile_duration_seconds, as Flux does; this adds a dozen series per stack"`
	Quickstart     bool     `flag:"quickstart" env:"TERRIER_QUICKSTART" help:"apply the examples, two stacks and three tenants, and print what to try"`
	Examples       []string `flag:"example" env:"TERRIER_EXAMPLES" help:"apply an example, and print what to try: quickstart, or alustan, which has stacks of scripts, and a git server and a registry on loopback (repeatable)"`
	Output         string   `flag:"output" short:"o" help:"json prints one line when ready"`

	Engine      string   `flag:"engine" env:"TERRIER_ENGINE" help:"path of tofu or terraform; by default beside this program or on the PATH"`
	Engines     []string `flag:"engine-named" env:"TERRIER_ENGINES" help:"NAME=/PATH of an engine that stacks may select with the annotation terrier.dev/engine (repeatable)"`
	Backends    []string `flag:"backend-plugin" env:"TERRIER_BACKEND_PLUGINS" help:"NAME=/PATH of a program that keeps the states of stacks with the annotation terrier.dev/backend: NAME; if runs are pods, a path in their image (repeatable)"`
	AdoptStates []string `flag:"adopt-states-of" env:"TERRIER_ADOPT_STATES_OF" help:"UID of the namespace kube-system of a cluster that is gone: stacks here take over the states that stacks there kept with the annotation terrier.dev/backend (repeatable)"`
	Runner      string   `flag:"runner" env:"TERRIER_RUNNER" help:"path of terrier-runner; by default beside this program"`
	Mirror      string   `flag:"provider-mirror" env:"TERRIER_PROVIDER_MIRROR" help:"directory with providers for runs, instead of their registries; by default the directory mirror beside this program, if it exists"`
	Registries  bool     `flag:"provider-registries" env:"TERRIER_PROVIDER_REGISTRIES" default:"true" help:"take providers and versions that the mirror lacks from their registries; with false all providers come from the mirror"`
	RunEnv      []string `flag:"run-env" env:"TERRIER_RUN_ENV" help:"NAME=VALUE of an environment variable for all runs, such as HTTPS_PROXY; NAME alone takes the value from the environment of this program (repeatable)"`
	StackEnv    []string `flag:"allow-stack-env" env:"TERRIER_ALLOW_STACK_ENV" help:"name of a proxy variable that stacks may set for their runs, such as NO_PROXY (repeatable)"`
	RunCA       string   `flag:"run-ca-file" env:"TERRIER_RUN_CA_FILE" help:"PEM file with certificate authorities that runs trust besides those of the system"`
	Writable    []string `flag:"run-writable" env:"TERRIER_RUN_WRITABLE" help:"host directory that every run may write, at the same path (repeatable)"`
	Network     string   `flag:"run-network" env:"TERRIER_RUN_NETWORK" default:"host" help:"network of runs: host, or none"`
	HostNetwork bool     `flag:"allow-host-network" env:"TERRIER_ALLOW_HOST_NETWORK" help:"allow stacks to request the network of the host if --run-network is none"`
	Isolation   int      `flag:"min-isolation" env:"TERRIER_MIN_ISOLATION" default:"2" help:"minimum level of isolation for runs: 1 basic, 2 kernel, 3 full; at level 1, if this program is not root, a run can read all files of its user"`
	Reuse       bool     `flag:"provider-reuse" env:"TERRIER_PROVIDER_REUSE" default:"true" help:"start each provider once per run; with false the engine starts it several times"`
	MaxRuns     int      `flag:"max-runs" env:"TERRIER_MAX_RUNS" default:"4" help:"number of runs at the same time"`

	MaxTenantRuns int      `flag:"max-runs-per-tenant" env:"TERRIER_MAX_RUNS_PER_TENANT" default:"0" help:"number of runs of one tenant at the same time; 0 means --max-runs"`
	MaxClassRuns  []string `flag:"max-runs-per-class" env:"TERRIER_MAX_RUNS_PER_CLASS" help:"number of runs of one class at the same time, as CLASS=NUMBER: apply, person, spec, upstream or drift; drift=6 keeps the other slots free of drift checks; a class without a limit may take --max-runs (repeatable)"`
	TenantLabel   string   `flag:"tenant-label" env:"TERRIER_TENANT_LABEL" default:"terrier.dev/tenant" help:"label of stacks whose value is their tenant, for fair scheduling; stacks without the label use their namespace, and so do all stacks if this flag is empty"`
	RunsMemory    int      `flag:"memory-for-runs" env:"TERRIER_MEMORY_FOR_RUNS" default:"0" help:"MiB of memory for all active runs together, estimated from earlier runs; 0 means 70 % of the memory of this machine or its control group; without effect if runs are pods"`

	RunTimeout     time.Duration `flag:"run-timeout" env:"TERRIER_RUN_TIMEOUT" default:"1h" help:"timeout of one plan or apply, after which it is interrupted"`
	RunGrace       time.Duration `flag:"run-grace" env:"TERRIER_RUN_GRACE" default:"30m" help:"time for an interrupted run to write its state before it is killed"`
	RunMemory      int           `flag:"run-memory" env:"TERRIER_RUN_MEMORY" default:"4096" help:"MiB of memory for one run"`
	RunFile        int           `flag:"run-file-size" env:"TERRIER_RUN_FILE_SIZE" default:"2048" help:"maximum size of one file of a run in MiB"`
	RunProcesses   int           `flag:"run-processes" env:"TERRIER_RUN_PROCESSES" default:"1024" help:"maximum number of processes and threads of one run"`
	CrossNamespace bool          `flag:"allow-cross-namespace-refs" env:"TERRIER_ALLOW_CROSS_NAMESPACE_REFS" help:"allow sources and dependencies in other namespaces, without a ReferenceGrant there"`
	ReadAsAccount  bool          `flag:"read-as-service-account" env:"TERRIER_READ_AS_SERVICE_ACCOUNT" help:"read the Secrets and ConfigMaps that a stack names with the rights of its serviceAccountName, or of --run-service-account if it names none; with false with those of this controller"`
	StateGitHosts  []string      `flag:"state-git-host" env:"TERRIER_STATE_GIT_HOSTS" help:"host, or host:port, of a git server on which stacks may keep their states with the backend git; * allows all; none by default (repeatable)"`
	AllowHosts     []string      `flag:"allow-host" env:"TERRIER_ALLOW_HOSTS" help:"host:port, address or CIDR that sources, webhooks and prerequisites may reach although it is local or private (repeatable)"`
	DenyNetworks   []string      `flag:"deny-network" env:"TERRIER_DENY_NETWORKS" help:"address or CIDR that nothing is asked at that a user names: no source, no webhook, no prerequisite; entries of --allow-host, --prerequisite-host and --prerequisite-body-host that are host:port or narrower are exceptions (repeatable)"`
	PrereqHosts    []string      `flag:"prerequisite-host" env:"TERRIER_PREREQUISITE_HOSTS" help:"host:port, address or CIDR that prerequisites of stacks may ask although it is private or local: whether it answers, and with which status; those of --allow-host as well (repeatable)"`
	PrereqBodies   []string      `flag:"prerequisite-body-host" env:"TERRIER_PREREQUISITE_BODY_HOSTS" help:"the same as --prerequisite-host, and prerequisites may also search the answers for a text, so that users who may create stacks can find out what these answers hold (repeatable)"`
	PlainHTTP      bool          `flag:"allow-plain-http" env:"TERRIER_ALLOW_PLAIN_HTTP" help:"allow sources, webhooks and prerequisites over unencrypted http"`
	WebhookCerts   string        `flag:"webhook-certs" env:"TERRIER_WEBHOOK_CERTS" help:"directory with HOST/ca.crt, HOST/tls.crt and HOST/tls.key for webhooks that need them"`
	WebhookKey     string        `flag:"webhook-key" env:"TERRIER_WEBHOOK_KEY" help:"file with the key that signs requests to webhooks"`
	Unmasked       bool          `flag:"allow-unmasked-plans" env:"TERRIER_ALLOW_UNMASKED_PLANS" help:"allow stacks to send plans with their secrets to webhooks"`
	Glass          bool          `flag:"allow-break-the-glass" env:"TERRIER_ALLOW_BREAK_THE_GLASS" help:"allow break-glass sessions: users who may change a stack can run commands of the engine on it"`
	GlassLasts     time.Duration `flag:"break-the-glass-timeout" env:"TERRIER_BREAK_THE_GLASS_TIMEOUT" default:"1h" help:"timeout of a break-glass session"`
	SyncInterval   time.Duration `flag:"sync-interval" env:"TERRIER_SYNC_INTERVAL,SYNC_INTERVAL,INFRA_SYNC_INTERVAL" default:"6h" help:"time between two drift checks of a stack of alustan.io without the annotation terrier.dev/interval; 0 checks none"`
	Sources        bool          `flag:"sources" env:"TERRIER_SOURCES" default:"true" help:"reconcile GitRepository, OCIRepository and Bucket; set false if another source controller does"`
	ImageBase      string        `flag:"stack-image-base" env:"TERRIER_STACK_IMAGE_BASE" help:"image that the images of stacks are made on, with terrier-runner and the engine; by default --run-image, and where runs are processes none"`
	KnownHosts     string        `flag:"ssh-known-hosts" env:"TERRIER_SSH_KNOWN_HOSTS" help:"file in the form of known_hosts with the keys of git servers, for sources over ssh whose Secret has no known_hosts; the keys of github.com, gitlab.com and bitbucket.org are built in"`
	TrustedRoot    string        `flag:"sigstore-trusted-root" env:"TERRIER_SIGSTORE_TRUSTED_ROOT" help:"file trusted_root.json of Sigstore, which the certificates on signatures of OCI artifacts have to lead to, for sources that name none; read again for each verification"`
	EventsAddress  string        `flag:"events-addr" env:"TERRIER_EVENTS_ADDR" help:"http address of the notification-controller of Flux, which receives every event; off if empty"`
	Notifications  bool          `flag:"notifications" env:"TERRIER_NOTIFICATIONS" default:"true" help:"deliver notifications for Alert and Provider; set false if another notification controller does"`

	Registry        bool     `flag:"registry" env:"TERRIER_REGISTRY" default:"true" help:"serve a registry of modules and providers, and a mirror of other registries, below the HTTP API"`
	RegistryStorage string   `flag:"registry-storage" env:"TERRIER_REGISTRY_STORAGE" help:"where the registry keeps modules and providers: absolute path of a directory, or the URL of a bucket as --records has them; default the directory packages of the data directory"`
	RegistryConfig  string   `flag:"registry-config" env:"TERRIER_REGISTRY_CONFIG" help:"file with the upstream registries of the mirror, and its rules; by default the public registries are mirrored for all users"`
	RegistryHosts   []string `flag:"registry-host" env:"TERRIER_REGISTRY_NAMES" help:"name of this registry in the addresses of modules and providers, such as registry.example.com, by which runs reach it without DNS; the address of the HTTP API is one (repeatable)"`
	RunMirror       bool     `flag:"run-mirror" env:"TERRIER_RUN_MIRROR" default:"true" help:"runs take providers that --provider-mirror lacks from the mirror of this registry, if it has one; with false from the registries of their addresses"`
	RunDirect       []string `flag:"run-direct" env:"TERRIER_RUN_DIRECT" help:"providers that runs take from the registries of their addresses, and not from the mirror of this registry: HOST/NAMESPACE/TYPE, of which the last part or the last two may be *; also with --provider-registries=false (repeatable)"`

	QuotaSize     int           `flag:"registry-quota-size" env:"TERRIER_REGISTRY_QUOTA_SIZE" default:"0" help:"MiB that each namespace may have in the registry, unless its annotation terrier.dev/registry-quota-size says otherwise; 0 for no limit"`
	QuotaVersions int           `flag:"registry-quota-versions" env:"TERRIER_REGISTRY_QUOTA_VERSIONS" default:"0" help:"number of versions of modules and providers that each namespace may have in the registry, unless its annotation terrier.dev/registry-quota-versions says otherwise; 0 for no limit"`
	RegistryLogin time.Duration `flag:"registry-login-life" env:"TERRIER_REGISTRY_LOGIN_LIFE" default:"720h" help:"how long a token for the registry is valid that tofu login gets; at most 8784h, a year"`

	IdentityIssuer string        `flag:"identity-issuer" env:"TERRIER_IDENTITY_ISSUER" help:"https address at which verifiers find the keys of the identities of runs; this program serves them below /.well-known, and terrier identity jwks writes them for a bucket; runs have no identity if empty"`
	IdentityRules  string        `flag:"identity-rules" env:"TERRIER_IDENTITY_RULES" help:"file that says which audiences and roles the stacks of which namespaces may ask for; without it none"`
	IdentityLife   time.Duration `flag:"identity-token-life" env:"TERRIER_IDENTITY_TOKEN_LIFE" default:"15m" help:"how long a token of a run is valid, from 5m to 1h; runs get new ones in time"`

	TenantNamespaces []string `flag:"tenant-namespaces" env:"TERRIER_TENANT_NAMESPACES" help:"pattern of namespaces that tenants may write to besides their own, unless their template names a ServiceAccount; * includes all namespaces and cluster-scoped objects; default * on one machine, none in a cluster (repeatable)"`
	SQLiteDirs       []string `flag:"sqlite-dir" env:"TERRIER_SQLITE_DIRS" help:"directory with SQLite files that registries may read; default the current and the data directory on one machine, none in a cluster (repeatable)"`
	RegistryWorkers  int      `flag:"registry-concurrency" env:"TERRIER_REGISTRY_CONCURRENCY" default:"3" help:"number of registries that are reconciled at the same time"`
	TemplateWorkers  int      `flag:"template-concurrency" env:"TERRIER_TEMPLATE_CONCURRENCY" default:"5" help:"number of templates that are reconciled at the same time"`
	TenantWorkers    int      `flag:"tenant-concurrency" env:"TERRIER_TENANT_CONCURRENCY" default:"10" help:"number of tenants that are reconciled at the same time"`

	SessionLife time.Duration `flag:"session-life" env:"TERRIER_SESSION_LIFE" default:"12h" help:"maximum lifetime of a browser session"`
	SessionIdle time.Duration `flag:"session-idle" env:"TERRIER_SESSION_IDLE" default:"2h" help:"idle timeout of a browser session"`

	OIDCIssuer      string   `flag:"oidc-issuer" env:"TERRIER_OIDC_ISSUER" help:"address of the OpenID Connect issuer for signing in with a browser; off if empty"`
	OIDCName        string   `flag:"oidc-name" env:"TERRIER_OIDC_NAME" help:"name of the issuer on the sign-in button; by default its host"`
	OIDCClient      string   `flag:"oidc-client-id" env:"TERRIER_OIDC_CLIENT_ID" help:"client ID of this server at the issuer"`
	OIDCSecret      string   `flag:"oidc-client-secret-file" env:"TERRIER_OIDC_CLIENT_SECRET_FILE" help:"file with the client secret, if the client has one"`
	OIDCScopes      []string `flag:"oidc-scope" env:"TERRIER_OIDC_SCOPES" default:"profile,email" help:"scope to request besides openid (repeatable)"`
	OIDCUsername    string   `flag:"oidc-username-claim" env:"TERRIER_OIDC_USERNAME_CLAIM" default:"sub" help:"claim with the name of the user; email is accepted only if the issuer has verified it"`
	OIDCUserPrefix  string   `flag:"oidc-username-prefix" env:"TERRIER_OIDC_USERNAME_PREFIX" help:"prefix of user names; default ISSUER# if the claim is not email, - for no prefix"`
	OIDCGroups      string   `flag:"oidc-groups-claim" env:"TERRIER_OIDC_GROUPS_CLAIM" help:"claim with the groups of the user; no groups if empty"`
	OIDCGroupPrefix string   `flag:"oidc-groups-prefix" env:"TERRIER_OIDC_GROUPS_PREFIX" help:"prefix of groups"`
	OIDCAuthority   string   `flag:"oidc-ca-file" env:"TERRIER_OIDC_CA_FILE" help:"file with the certificate authority of the issuer; by default those of the system"`

	Vault          string        `flag:"vault" env:"TERRIER_VAULT" help:"address of the OpenBao or Vault that stacks read secrets from; off if empty"`
	VaultNamespace string        `flag:"vault-namespace" env:"TERRIER_VAULT_NAMESPACE" help:"namespace of that server; its root if empty"`
	VaultAuthority string        `flag:"vault-ca-file" env:"TERRIER_VAULT_CA_FILE" help:"file with the certificate authority of that server; by default those of the system"`
	VaultMethod    string        `flag:"vault-auth-method" env:"TERRIER_VAULT_AUTH_METHOD" default:"kubernetes" help:"how ServiceAccounts sign in there: kubernetes, jwt, approle or token; with the last two each names a Secret of its namespace with the annotation terrier.dev/vault-credentials"`
	VaultPath      string        `flag:"vault-auth-path" env:"TERRIER_VAULT_AUTH_PATH" help:"where the method is mounted, for ServiceAccounts without the annotation vault.hashicorp.com/auth-path; by default its name"`
	VaultRole      string        `flag:"vault-role" env:"TERRIER_VAULT_ROLE" help:"role of ServiceAccounts without the annotation vault.hashicorp.com/role; they read nothing if empty"`
	VaultAudience  string        `flag:"vault-audience" env:"TERRIER_VAULT_AUDIENCE" help:"audience of the tokens that they sign in with; by default the address of that server with jwt, and that of the Kubernetes API with kubernetes: such a token opens the Kubernetes API, too, so give the roles an audience and name it here"`
	HTTPFrom       string        `flag:"http-certificate-from" env:"TERRIER_HTTP_CERTIFICATE_FROM" help:"role of a PKI at the server of --vault that signs the certificate of the HTTP API and the webhooks: vault://MOUNT/ROLE?role=ROLE, with the role to sign in with, and auth=PATH, token-file=FILE or ttl=TIME if they are wanted; by default the own authority signs it"`
	VaultReread    time.Duration `flag:"vault-refresh-interval" env:"TERRIER_VAULT_REFRESH_INTERVAL" default:"10m" help:"how often secrets that stacks use are read again"`

	LogLevel string `flag:"log-level" env:"TERRIER_LOG_LEVEL" default:"warn" help:"debug, info, warn or error"`
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
