package module

import (
	"fmt"
	"maps"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/terrier-iac/terrier/internal/backend"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Place is where a backend of the engine keeps a state. Two configurations have the
// same place if the engine would use the same object for both, however they spell it.
type Place struct {
	Parts []string // what identifies the place, the type of the backend first; nil if that is not known
	Why   string   // why it is not known; empty where no other stack can mean the same place

	// Secret names the Secret of a kubernetes backend in the cluster of its run, as
	// NAMESPACE, WORKSPACE and SUFFIX.
	Secret []string
}

// Shown is the place for people: the type of the backend, and its arguments where none of
// them can be a credential. It is empty if the place is not known.
func (p Place) Shown() string {
	if len(p.Parts) == 0 {
		return ""
	}
	switch p.Parts[0] {
	case "local", "s3", "gcs", "azurerm", "oss", "cos", "http", "kubernetes", "cloud":
		var rest []string
		for _, part := range p.Parts[1:] {
			if part, _, _ := strings.Cut(part, "?"); part != "" { // a query may have a token
				rest = append(rest, part)
			}
		}
		return p.Parts[0] + " (" + strings.Join(rest, ", ") + ")"
	default:
		return p.Parts[0]
	}
}

// CustomPlace finds out where the one backend block of a custom configuration keeps
// the state of a workspace. Arguments that a place does not depend on, such as
// credentials, may be anything.
func CustomPlace(custom, workspace string) Place {
	f, diags := hclsyntax.ParseConfig([]byte(custom), customField, hcl.InitialPos)
	if diags.HasErrors() {
		return Place{Why: "its configuration cannot be parsed"}
	}
	body, ok := f.Body.(*hclsyntax.Body)
	if !ok {
		return Place{Why: "its configuration cannot be parsed"}
	}
	for _, b := range body.Blocks {
		if b.Type != "backend" || len(b.Labels) != 1 {
			continue
		}
		if len(b.Body.Attributes) == 0 && len(b.Body.Blocks) == 0 {
			return Place{Why: "its arguments are in the environment of the engine"}
		}
		a := &arguments{body: b.Body}
		p := placeIn(b.Labels[0], a, workspace)
		if a.why != "" {
			return Place{Why: a.why}
		}
		return p
	}
	return Place{Why: "it has no backend block"}
}

// PluginPlace finds out where a plug-in keeps the state of a workspace.
func PluginPlace(b stack.Backend, namespace, workspace string) Place {
	known, ok := backend.Find(b.Plugin)
	if !ok {
		return Place{Why: fmt.Sprintf("the backend %s is a plug-in of the operator, which decides where states are", b.Plugin)}
	}
	block, err := known.Render(backend.For(b, namespace, workspace))
	if err != nil {
		return Place{Why: err.Error()}
	}
	if block.Type == "pg" && block.Text("conn_str") == "" {
		return Place{Why: "its server is named by the environment of the engine"}
	}
	inside, err := block.HCL()
	if err != nil {
		return Place{Why: err.Error()}
	}
	return CustomPlace(inside, workspace)
}

// workspaceOne is the workspace of the engine that has no name of its own in a
// backend.
const workspaceOne = "default"

// placeIn knows the arguments of each backend that identify a place, their defaults,
// and how a workspace becomes a part of it.
func placeIn(kind string, a *arguments, workspace string) Place {
	known := func(parts ...string) Place { return Place{Parts: append([]string{kind}, parts...)} }
	joined := func(key string, prefix ...string) string { // the object of a workspace among keys
		if workspace == workspaceOne {
			return key
		}
		return path.Join(append(prefix, workspace, key)...)
	}
	suffixed := func(key, with string) string {
		if workspace == workspaceOne {
			return key
		}
		return key + with + workspace
	}
	switch kind {
	case "local":
		return localPlace(a, workspace)
	case "s3":
		return known(a.s3Endpoint(), a.text("bucket", ""), joined(a.text("key", ""), a.text("workspace_key_prefix", "env:")))
	case "gcs":
		return known(a.text("bucket", ""), path.Join(strings.TrimLeft(a.text("prefix", ""), "/"), workspace+".tfstate"))
	case "azurerm":
		return known(a.text("environment", "public"), strings.ToLower(a.text("storage_account_name", "")), a.text("container_name", ""), suffixed(a.text("key", ""), "env:"))
	case "oss":
		prefix := a.text("prefix", "env:")
		return known(address(a.text("endpoint", "")), a.text("bucket", ""), path.Join(prefix, joined(a.text("key", "terraform.tfstate"))))
	case "cos":
		prefix := a.text("prefix", "")
		return known(a.text("bucket", ""), path.Join(prefix, joined(a.text("key", "terraform.tfstate"))))
	case "consul":
		return known(address(a.text("scheme", "http")+"://"+withoutScheme(a.text("address", "127.0.0.1:8500"))), a.text("datacenter", ""), suffixed(a.text("path", ""), "-env:"))
	case "http":
		return known(address(a.text("address", "")))
	case "pg":
		return known(database(a.text("conn_str", "")), a.text("schema_name", "terraform_remote_state"), a.text("table_name", "states"), workspace)
	case "kubernetes":
		return kubernetesPlace(a, workspace)
	case "remote":
		return remotePlace(a, workspace)
	default:
		return known(append(a.everything(), workspace)...)
	}
}

// localPlace is a file. With a relative path it is in the workdir of each stack.
func localPlace(a *arguments, workspace string) Place {
	file := a.text("path", "terraform.tfstate")
	if workspace != workspaceOne {
		file = filepath.Join(a.text("workspace_dir", "terraform.tfstate.d"), workspace, "terraform.tfstate")
	}
	if !filepath.IsAbs(file) {
		return Place{}
	}
	return Place{Parts: []string{"local", filepath.Clean(file)}}
}

func kubernetesPlace(a *arguments, workspace string) Place {
	secret := []string{a.text("namespace", "default"), workspace, a.text("secret_suffix", "")}
	if a.text("in_cluster_config", "false") == "true" {
		return Place{Parts: append([]string{"kubernetes", "in-cluster"}, secret...), Secret: secret}
	}
	cluster := a.text("config_path", "")
	switch host := a.text("host", ""); {
	case host != "":
		return Place{Parts: append([]string{"kubernetes", address(host), ""}, secret...)}
	case cluster == "" && a.body.Attributes["config_paths"] != nil:
		cluster = a.json("config_paths")
	case cluster == "":
		return Place{Why: "its cluster is named by the environment of the engine"}
	default:
		cluster = path.Clean(cluster)
	}
	return Place{Parts: append([]string{"kubernetes", cluster, a.text("config_context", "")}, secret...)}
}

// KubernetesPlace is where a kubernetes backend with a kubeconfig keeps a state.
func KubernetesPlace(config, namespace, workspace, suffix string) []string {
	return []string{"kubernetes", path.Clean(config), "", namespace, workspace, suffix}
}

// CloudPlace is where a workspace of a cloud is.
func CloudPlace(hostname, organization, workspace string) []string {
	if hostname == "" {
		hostname = CloudHost
	}
	return []string{"cloud", strings.TrimSuffix(strings.ToLower(hostname), ":443"), organization, workspace}
}

func remotePlace(a *arguments, workspace string) Place {
	name := ""
	for _, b := range a.body.Blocks {
		if b.Type == "workspaces" {
			in := &arguments{body: b.Body}
			name = in.text("name", "")
			if prefix := in.text("prefix", ""); prefix != "" {
				name = prefix + workspace
			}
			a.why = in.why
		}
	}
	organization := a.text("organization", "")
	if organization == "" || name == "" {
		return Place{Why: "its organization or workspace is named by the environment of the engine"}
	}
	return Place{Parts: CloudPlace(a.text("hostname", ""), organization, name)}
}

// arguments reads those of a backend block.
type arguments struct {
	body *hclsyntax.Body
	why  string // the first that cannot be known
}

// value evaluates an argument; cty.NilVal if it is absent or null.
func (a *arguments) value(name string) cty.Value {
	attr, ok := a.body.Attributes[name]
	if !ok {
		return cty.NilVal
	}
	v, diags := attr.Expr.Value(nil)
	if diags.HasErrors() || !v.IsWhollyKnown() {
		a.unknown(name)
		return cty.NilVal
	}
	if v.IsNull() {
		return cty.NilVal
	}
	return v
}

func (a *arguments) unknown(name string) {
	if a.why == "" {
		a.why = fmt.Sprintf("its argument %q is not a literal value", name)
	}
}

// text is an argument as a text, and what the engine takes if there is none.
func (a *arguments) text(name, absent string) string {
	v := a.value(name)
	if v == cty.NilVal {
		return absent
	}
	s, err := convert.Convert(v, cty.String)
	if err != nil {
		a.unknown(name)
		return ""
	}
	return s.AsString()
}

func (a *arguments) json(name string) string {
	v := a.value(name)
	if v == cty.NilVal {
		return ""
	}
	b, err := ctyjson.Marshal(v, v.Type())
	if err != nil {
		a.unknown(name)
	}
	return string(b)
}

// everything is all arguments of a backend that is not known here, without those
// that only say who reads the state.
func (a *arguments) everything() []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(a.body.Attributes)) {
		if !slices.Contains(backendCredentials, name) {
			all = append(all, name+"="+a.json(name))
		}
	}
	for _, b := range a.body.Blocks {
		in := &arguments{body: b.Body}
		all = append(all, b.Type+"{"+strings.Join(in.everything(), ",")+"}")
		if a.why == "" {
			a.why = in.why
		}
	}
	return all
}

// awsHost is a host of Amazon's own S3, where the name of a bucket says enough.
var awsHost = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^s3[.-]?([-a-z0-9.]*\.)?amazonaws\.com(\.cn)?$|^s3\.amazonaws\.com$`)
})

// s3Endpoint is the server of the buckets; empty for Amazon's own.
func (a *arguments) s3Endpoint() string {
	endpoint := a.text("endpoint", "")
	if v := a.value("endpoints"); v != cty.NilVal && v.CanIterateElements() {
		if own, ok := v.AsValueMap()["s3"]; ok && !own.IsNull() && own.Type() == cty.String {
			endpoint = own.AsString()
		}
	}
	for _, b := range a.body.Blocks {
		if b.Type == "endpoints" {
			in := &arguments{body: b.Body}
			endpoint = in.text("s3", endpoint)
			if a.why == "" {
				a.why = in.why
			}
		}
	}
	if endpoint == "" {
		return ""
	}
	if !strings.Contains(endpoint, "://") {
		endpoint = "https://" + endpoint
	}
	normal := address(endpoint)
	if awsHost().MatchString(withoutScheme(normal)) {
		return ""
	}
	return normal
}

func withoutScheme(address string) string {
	if _, rest, ok := strings.Cut(address, "://"); ok {
		return rest
	}
	return address
}

// address is a URL in one spelling: without credentials, with its host in lower case,
// without the port that its scheme has anyway, and with a clean path.
func address(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return strings.TrimRight(raw, "/")
	}
	u.User, u.Scheme, u.Host = nil, strings.ToLower(u.Scheme), strings.ToLower(u.Host)
	if port := u.Port(); port == "443" && u.Scheme == "https" || port == "80" && u.Scheme == "http" {
		u.Host = strings.TrimSuffix(u.Host, ":"+port)
	}
	u.Path = strings.TrimRight(path.Clean("/"+u.Path), "/")
	u.RawPath, u.Fragment = "", ""
	return u.String()
}

// database is the server and the name in a connection string of PostgreSQL, as a URL
// or as words.
func database(conn string) string {
	host, port, name := "localhost", "5432", ""
	if u, err := url.Parse(conn); err == nil && strings.HasPrefix(u.Scheme, "postgres") {
		if u.Hostname() != "" {
			host = u.Hostname()
		}
		if u.Port() != "" {
			port = u.Port()
		}
		name = strings.Trim(u.Path, "/")
		if q := u.Query().Get("host"); q != "" {
			host = q
		}
		if name == "" && u.User != nil {
			name = u.User.Username()
		}
		return strings.ToLower(host) + ":" + port + "/" + name
	}
	user := ""
	for word := range strings.FieldsSeq(conn) {
		key, value, _ := strings.Cut(word, "=")
		value = strings.Trim(value, "'")
		switch key {
		case "host":
			host = value
		case "port":
			port = value
		case "dbname":
			name = value
		case "user":
			user = value
		}
	}
	if name == "" {
		name = user
	}
	return strings.ToLower(host) + ":" + port + "/" + name
}
