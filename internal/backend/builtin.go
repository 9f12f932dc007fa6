package backend

import (
	"cmp"
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/stack"
)

// The backends that Terrier knows.
const (
	AWS        = "aws"
	GCS        = "gcs"
	Azure      = "azurerm"
	Kubernetes = "kubernetes"
	HTTP       = "http"
	Postgres   = "pg"
	Local      = "local"
)

// Builtin is a backend that Terrier knows, as far as it can be computed.
type Builtin struct {
	known       []setting
	credentials string // where they come from, for messages
	render      func(Request, values) (Block, error)
}

// Find returns the backend of a name.
func Find(name string) (Builtin, bool) {
	b, ok := builtins()[name]
	return b, ok
}

// Names are the backends that Terrier knows.
func Names() []string {
	return slices.Sorted(slices.Values(append(slices.Collect(maps.Keys(builtins())), Git)))
}

// Validate checks the settings.
func (b Builtin) Validate(r Request) error {
	_, err := b.Render(r)
	return err
}

// Render makes the block.
func (b Builtin) Render(r Request) (Block, error) {
	v, err := read(r, b.known, b.credentials)
	if err != nil {
		return Block{}, err
	}
	return b.render(r, v)
}

// Of is the backend that an object asks for by name. Suffix is unique among the stacks of
// its namespace. A state of Terrier's own needs no plug-in.
func Of(name string, settings map[string]string, namespace, suffix string) (stack.Backend, error) {
	if name == HTTP && settings["address"] == "" {
		for _, key := range slices.Sorted(maps.Keys(settings)) {
			return stack.Backend{}, wrong(key, "needs the setting address. Without an address Terrier keeps the state")
		}
		return stack.Backend{Kind: stack.Managed, Suffix: suffix, InCluster: true}, nil
	}
	if name == Git {
		place, err := inGit(settings)
		if err != nil {
			return stack.Backend{}, err
		}
		return stack.Backend{Kind: stack.Managed, Suffix: suffix, InCluster: true, Git: place}, nil
	}
	b := stack.Backend{Kind: stack.Plugin, Plugin: name, Settings: settings, Suffix: suffix}
	if known, ok := Find(name); ok {
		return b, known.Validate(For(b, namespace, ""))
	}
	return b, nil
}

// For is the request about the backend of a stack, but for its operation.
func For(b stack.Backend, namespace, workspace string) Request {
	return Request{
		Version: Version, Backend: b.Plugin, Settings: b.Settings,
		Stack: Stack{Namespace: namespace, Name: b.Suffix, Workspace: workspace},
	}
}

// key is where the state of a stack is in a place that many stacks share.
func (s Stack) key() string { return path.Join(s.Namespace, s.Name) }

const (
	stateName        = "/terraform.tfstate"
	defaultWorkspace = "default"
)

func (s Stack) workspace() string { return cmp.Or(s.Workspace, defaultWorkspace) }

// longestObject bounds the part of the name of an object that a user chooses, in bytes. A
// store takes 1024, and the engine and Terrier add to it.
const longestObject = 900

// checkObject refuses a name of an object that a program on the way to the store could take
// for another one.
func checkObject(field, name string) error {
	if len(name) > longestObject {
		return wrong(field, "has %d bytes; it may have %d", len(name), longestObject)
	}
	for _, part := range strings.Split(name, "/") {
		if part == "." || part == ".." {
			return wrong(field, "is %.80q: a part of it is %q, which names no object", name, part)
		}
	}
	return nil
}

func builtins() map[string]Builtin {
	return map[string]Builtin{
		AWS: {
			known: []setting{
				{name: "bucket", also: "s3", required: true}, {name: "region", required: true}, {name: "key"},
				{name: "dynamodb_table", also: "dynamoDB"}, {name: "use_lockfile", boolean: true}, {name: "kms_key_id"},
				{name: "endpoint"}, {name: "dynamodb_endpoint"},
			},
			credentials: "Credentials are in the environment of the run: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY there, or give its ServiceAccount a role",
			render:      renderAWS,
		},
		GCS: {
			known: []setting{
				{name: "bucket", required: true}, {name: "prefix"}, {name: "project"}, {name: "location"},
				{name: "kms_encryption_key"}, {name: "endpoint"},
			},
			credentials: "Credentials are in the environment of the run: set GOOGLE_APPLICATION_CREDENTIALS there, or give its ServiceAccount an identity",
			render: func(r Request, v values) (Block, error) {
				if !matches(`^[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]$`, v.text("bucket")) {
					return Block{}, wrong("bucket", "is %.80q, which is no name of a bucket: it has 3 to 63 lower-case letters, digits, dots, hyphens and underscores", v.text("bucket"))
				}
				if err := checkObject("prefix", v.text("prefix")); err != nil {
					return Block{}, err
				}
				more := map[string]any{"prefix": cmp.Or(v.text("prefix"), r.Stack.key())}
				if e := v.text("endpoint"); e != "" {
					if err := httpURL("endpoint", e); err != nil {
						return Block{}, err
					}
					more["storage_custom_endpoint"] = strings.TrimSuffix(e, "/") + "/storage/v1/"
				}
				return v.block("gcs", []string{"bucket", "kms_encryption_key"}, more), nil
			},
		},
		Azure: {
			known: []setting{
				{name: "storage_account_name", also: "storageAccount", required: true}, {name: "container_name", also: "container", required: true}, {name: "key"},
				{name: "resource_group_name"}, {name: "subscription_id"}, {name: "tenant_id"}, {name: "client_id"},
				{name: "use_azuread_auth", boolean: true}, {name: "use_oidc", boolean: true},
			},
			credentials: "Credentials are in the environment of the run: set ARM_ACCESS_KEY, or ARM_CLIENT_ID, ARM_TENANT_ID and ARM_CLIENT_SECRET there",
			render: func(r Request, v values) (Block, error) {
				switch account, container := v.text("storage_account_name"), v.text("container_name"); {
				case !matches(`^[a-z0-9]{3,24}$`, account):
					return Block{}, wrong("storage_account_name", "is %.80q, which is no name of a storage account: it has 3 to 24 lower-case letters and digits", account)
				case !matches(`^[a-z0-9$][a-z0-9-]{1,61}[a-z0-9]$`, container):
					return Block{}, wrong("container_name", "is %.80q, which is no name of a container: it has 3 to 63 lower-case letters, digits and hyphens", container)
				}
				if err := checkObject("key", v.text("key")); err != nil {
					return Block{}, err
				}
				return v.block("azurerm", []string{
					"storage_account_name", "container_name", "resource_group_name", "subscription_id", "tenant_id", "client_id", "use_azuread_auth", "use_oidc",
				}, map[string]any{"key": cmp.Or(v.text("key"), r.Stack.key()+stateName)}), nil
			},
		},
		Kubernetes: {
			known: []setting{
				{name: "secret_suffix"}, {name: "namespace"}, {name: "config_path"}, {name: "config_context"}, {name: "in_cluster_config", boolean: true},
			},
			credentials: "Credentials are in the kubeconfig that config_path names: give it to the run with spec.fileMappings",
			render: func(r Request, v values) (Block, error) {
				if v.is("in_cluster_config") == (v.text("config_path") != "") {
					return Block{}, wrong("config_path", "is needed, or in_cluster_config, and not both")
				}
				return v.block("kubernetes", []string{"config_path", "config_context", "in_cluster_config"}, map[string]any{
					"secret_suffix": cmp.Or(v.text("secret_suffix"), r.Stack.Name),
					"namespace":     cmp.Or(v.text("namespace"), r.Stack.Namespace),
				}), nil
			},
		},
		HTTP: {
			known: []setting{
				{name: "address", required: true}, {name: "update_method"},
				{name: "lock_address"}, {name: "lock_method"}, {name: "unlock_address"}, {name: "unlock_method"},
			},
			credentials: "Credentials are in the environment of the run: set TF_HTTP_USERNAME and TF_HTTP_PASSWORD there",
			render: func(_ Request, v values) (Block, error) {
				for _, name := range []string{"address", "lock_address", "unlock_address"} {
					if err := httpURL(name, v.text(name)); err != nil {
						return Block{}, err
					}
				}
				return v.block("http", v.names(), nil), nil
			},
		},
		Postgres: {
			known:       []setting{{name: "conn_str"}, {name: "schema_name"}, {name: "skip_schema_creation", boolean: true}},
			credentials: "Credentials are in the environment of the run: set PG_CONN_STR there, or PGUSER and PGPASSWORD",
			render:      renderPostgres,
		},
		Local: {
			known:       []setting{{name: "path", required: true}},
			credentials: "It takes no credentials",
			render: func(_ Request, v values) (Block, error) {
				p := v.text("path")
				if !path.IsAbs(p) || path.Clean(p) != p {
					return Block{}, wrong("path", "is %.200q: the state would be lost with the directory of the run. Name an absolute path below a directory that the operator lets runs write with --run-writable", p)
				}
				return v.block("local", []string{"path"}, map[string]any{"workspace_dir": p + ".d"}), nil
			},
		},
	}
}

func renderPostgres(r Request, v values) (Block, error) {
	if at, err := url.Parse(v.text("conn_str")); err == nil && at.User != nil {
		if _, secret := at.User.Password(); secret {
			return Block{}, wrong("conn_str", "holds a password, which every reader of the object would see. Set PG_CONN_STR or PGPASSWORD in the environment of the run instead")
		}
	}
	if strings.Contains(strings.ToLower(v.text("conn_str")), "password") {
		return Block{}, wrong("conn_str", "holds a password, which every reader of the object would see. Set PG_CONN_STR or PGPASSWORD in the environment of the run instead")
	}
	schema := cmp.Or(v.text("schema_name"), r.Stack.key())
	if len(schema) > longestSchema {
		return Block{}, wrong("schema_name", "is needed: %s has more than the %d bytes that PostgreSQL allows, and it would cut the name", schema, longestSchema)
	}
	return v.block("pg", []string{"conn_str", "skip_schema_creation"}, map[string]any{"schema_name": schema}), nil
}

// longestSchema is how long a name in PostgreSQL can be; it cuts longer ones.
const longestSchema = 63

func httpURL(field, text string) error {
	if text == "" {
		return nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return wrong(field, "is not a URL of http or https")
	}
	if u.User != nil {
		return wrong(field, "holds a user or a password, which every reader of the object would see. Set them in the environment of the run instead")
	}
	return nil
}
