package chart

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// ownFlags are the flags of the controller that the chart sets, and the value that
// each comes from. All others are keys of the value flags.
var ownFlags = map[string]string{
	"admission-webhooks":         "admissionWebhooks.enabled",
	"allow-break-the-glass":      "allowBreakTheGlass",
	"allow-cross-namespace-refs": "allowCrossNamespaceRefs",
	"data-dir":                   "persistence",
	"drain":                      "drain",
	"events-addr":                "eventsAddress",
	"health-address":             "livenessProbe",
	"http-address":               "http.port",
	"http-host":                  "http.hosts",
	"image-build-image":          "imageBuilds.image",
	"image-build-namespace":      "imageBuilds.namespace",
	"install-crds":               "crds",
	"installation-keys":          "installationKeys",
	"kinds":                      "kinds",
	"log-level":                  "logLevel",
	"metrics-address":            "metrics.enabled",
	"oidc-client-secret-file":    "oidc.clientSecret.name",
	"output":                     "extraArgs",
	"read-as-service-account":    "rbac.readAsServiceAccount",
	"records":                    "records",
	"records-kms":                "recordsKMS",
	"registry":                   "registry.enabled",
	"identity-issuer":            "identity.issuer",
	"identity-rules":             "identity.rules",
	"registry-config":            "registry.mirror.settings",
	"registry-host":              "registry.hosts",
	"registry-login-life":        "registry.loginLife",
	"registry-quota-size":        "registry.quota.size",
	"registry-quota-versions":    "registry.quota.versions",
	"registry-storage":           "registry.storage",
	"replica-address":            "replicaCount",
	"run-ca-file":                "caBundle.configMap",
	"run-image":                  "runs.image.repository",
	"run-image-pull-policy":      "runs.image.pullPolicy",
	"run-image-pull-secret":      "runs.imagePullSecrets",
	"run-priority-class":         "runs.priorityClass.name",
	"run-provider-cache":         "runs.providerCache.volume",
	"run-provider-lock":          "runs.providerCache.lock",
	"run-resources":              "runs.resources",
	"run-service-account":        "runs.serviceAccountName",
	"runs-as":                    "runs.as",
	"share-stacks":               "replicaCount",
	"watch-namespace":            "watchNamespaces",
}

// bothWays begins the flags that were keys of the value flags before they had values of their
// own, and still are.
const bothWays = "registry"

// flagOf is a flag of the controller, as docs/controller.md lists it. A test of
// internal/app keeps that list.
type flagOf struct{ name, def, help string }

var flagRow = regexp.MustCompile("(?m)^\\| `--([a-z-]+)` \\| (?:`([^`]*)`)? \\| (.*) \\|$")

func flags(t *testing.T) []flagOf {
	t.Helper()
	var all []flagOf
	for _, m := range flagRow.FindAllStringSubmatch(read(t, root+"/docs/controller.md"), -1) {
		all = append(all, flagOf{m[1], m[2], m[3]})
	}
	if len(all) < 40 {
		t.Fatalf("docs/controller.md lists %d flags", len(all))
	}
	return all
}

var duration = regexp.MustCompile(`^(\d+h)?(\d+m)?(\d+s)?$`)

// schema is what a value of the flag may be.
func (f flagOf) schema() map[string]any {
	help, _, _ := strings.Cut(f.help, " [TERRIER_")
	s := map[string]any{"description": help}
	switch {
	case strings.Contains(f.help, "(repeatable)"):
		s["type"], s["items"] = "array", map[string]any{"type": "string"}
	case f.def == "true" || f.def == "false":
		s["type"] = "boolean"
	case regexp.MustCompile(`^\d+$`).MatchString(f.def):
		s["type"] = "integer"
	case f.def != "" && duration.MatchString(f.def):
		s["type"], s["pattern"] = "string", durations
	default:
		s["type"] = "string"
	}
	return s
}

const durations = `^([0-9]+h)?([0-9]+m)?([0-9]+s)?$`

func free() map[string]any { return map[string]any{"type": "object"} }
func texts() map[string]any {
	return map[string]any{"type": "object", "additionalProperties": map[string]any{"type": "string"}}
}
func list(of map[string]any) map[string]any {
	return map[string]any{"type": "array", "items": of}
}
func names() map[string]any {
	return list(map[string]any{"type": "string", "pattern": "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"})
}
func references() map[string]any {
	return list(map[string]any{"type": "object", "required": []any{"name"}, "additionalProperties": false, "properties": map[string]any{"name": map[string]any{"type": "string"}}})
}
func oneOf(values ...any) map[string]any { return map[string]any{"enum": values} }
func least(n int) map[string]any         { return map[string]any{"type": "integer", "minimum": n} }
func port() map[string]any {
	return map[string]any{"type": "integer", "minimum": 1024, "maximum": 65535}
}

// shapes are of values whose default says too little.
var shapes = map[string]map[string]any{
	"image.pullPolicy": oneOf("Always", "IfNotPresent", "Never"), "image.digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
	"imagePullSecrets": references(), "runs.imagePullSecrets": references(),
	"replicaCount": least(0), "watchNamespaces": names(), "extraArgs": list(map[string]any{"type": "string"}),
	"extraEnv": list(map[string]any{"type": "object", "required": []any{"name"}}), "extraEnvFrom": list(free()),
	"logLevel": oneOf("debug", "info", "warn", "error"), "crds": oneOf("controller", "chart", "none"),
	"kinds":            list(oneOf("infra.contrib.fluxcd.io", "alustan.io")),
	"installationKeys": oneOf("secret", "file"), "recordsKMS": list(map[string]any{"type": "string"}),
	"http.port": port(), "http.hosts": list(map[string]any{"type": "string"}), "metrics.port": port(),
	"service.type": oneOf("ClusterIP", "NodePort", "LoadBalancer"), "service.annotations": texts(),
	"persistence.accessModes": list(oneOf("ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany")), "persistence.annotations": texts(),
	"persistence.size": {"type": []any{"string", "integer"}}, "tmpSize": {"type": []any{"string", "integer"}},
	"serviceAccount.annotations": texts(), "rbac.namespaces": names(),
	"rbac.impersonation.users":  list(map[string]any{"type": "string", "minLength": 1}),
	"rbac.impersonation.groups": list(map[string]any{"type": "string", "minLength": 1}),
	"rbac.impersonation.extras": list(map[string]any{"type": "string", "pattern": "^[^*]+$"}), "rbac.tenantRules": list(free()),
	"drain": {"type": "string", "pattern": durations}, "terminationGracePeriodSeconds": least(0),
	"resources": free(), "podAnnotations": texts(), "podLabels": texts(), "deploymentAnnotations": texts(),
	"podSecurityContext": free(), "securityContext": free(), "nodeSelector": texts(), "tolerations": list(free()), "affinity": free(),
	"topologySpreadConstraints": list(free()), "volumes": list(free()), "volumeMounts": list(free()),
	"livenessProbe": free(), "readinessProbe": free(), "podDisruptionBudget.maxUnavailable": {"type": []any{"integer", "string"}},
	"networkPolicy.from": list(free()), "networkPolicy.metricsFrom": list(free()), "networkPolicy.egress": list(free()),
	"metrics.serviceMonitor.labels": texts(), "metrics.prometheusRule.labels": texts(), "metrics.dashboard.labels": texts(),
	"networkPolicy.runsEgress": list(free()), "runs.as": oneOf("pods", "processes"), "runs.resources": free(),
	"runs.image.pullPolicy": oneOf("Always", "IfNotPresent", "Never"), "runs.image.digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
	"runs.providerCache.volume": free(), "runs.providerCache.fill.volume": free(), "runs.providerCache.fill.kind": oneOf("none", "DaemonSet", "Deployment"),
	"runs.providerCache.fill.every": {"type": "string", "pattern": durations}, "runs.providerCache.fill.env": list(map[string]any{"type": "object", "required": []any{"name"}}),
	"runs.providerCache.fill.resources": free(), "runs.providerCache.fill.podSecurityContext": free(),
	"runs.providerCache.fill.nodeSelector": texts(), "runs.providerCache.fill.tolerations": list(free()),
	"imageBuilds.namespace": {"type": "string", "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$"}, "imageBuilds.image": {"type": "string", "pattern": "^(.+@sha256:[0-9a-f]{64})?$"},
	"imageBuilds.egress": list(free()), "registry.hosts": list(map[string]any{"type": "string"}), "registry.loginLife": {"type": "string", "pattern": durations},
	"identity.issuer": {"type": "string", "pattern": "^(https://.*[^/])?$"}, "identity.rules": list(map[string]any{"type": "object", "required": []any{"audiences", "namespaces"}}),
	"registry.quota.size": least(0), "registry.quota.versions": least(0), "registry.mirror.settings": free(),
	"runs.quota.namespaces": names(), "runs.quota.pods": least(1),
}

func values(t *testing.T) *yaml.Node {
	t.Helper()
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(read(t, chart+"/values.yaml")), &doc); err != nil {
		t.Fatal(err)
	}
	return doc.Content[0]
}

// schemaOf is the schema of a value by its default; used collects the shapes.
func schemaOf(t *testing.T, path string, n *yaml.Node, used map[string]bool) map[string]any {
	t.Helper()
	if s, ok := shapes[path]; ok {
		used[path] = true
		return s
	}
	switch n.Kind {
	case yaml.MappingNode:
		properties := map[string]any{}
		for i := 0; i < len(n.Content); i += 2 {
			name := n.Content[i].Value
			properties[name] = schemaOf(t, strings.TrimPrefix(path+"."+name, "."), n.Content[i+1], used)
		}
		return map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
	case yaml.ScalarNode:
		kinds := map[string]string{"!!str": "string", "!!bool": "boolean", "!!int": "integer"}
		if kinds[n.Tag] != "" {
			return map[string]any{"type": kinds[n.Tag]}
		}
	}
	t.Errorf("%s: the default does not say what it may be: add it to shapes", path)
	return nil
}

func TestSchema(t *testing.T) {
	used := map[string]bool{}
	byFlag := map[string]any{}
	for _, f := range flags(t) {
		if ownFlags[f.name] == "" || strings.HasPrefix(f.name, bothWays) {
			byFlag[f.name] = f.schema()
		}
	}
	shapes := shapes
	shapes["flags"] = map[string]any{"type": "object", "additionalProperties": false, "properties": byFlag}
	s := schemaOf(t, "", values(t), used)
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["properties"].(map[string]any)["global"] = free() // Helm adds it to subcharts
	for path := range shapes {
		if !used[path] {
			t.Errorf("shapes has %s, which is no value", path)
		}
	}
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	generated(t, filepath.Join(chart, "values.schema.json"), string(b)+"\n")
}

// Every flag of the controller can be set by a value, and the chart sets no other.
func TestEveryFlagIsAValue(t *testing.T) {
	all := map[string]bool{}
	for _, f := range flags(t) {
		all[f.name] = true
	}
	templates := read(t, chart+"/templates/_helpers.tpl")
	for name, value := range ownFlags {
		if !all[name] {
			t.Errorf("ownFlags has --%s, which is no flag of the controller", name)
		}
		if name != "output" && !strings.Contains(templates, "--"+name) {
			t.Errorf("--%s is said to come from the value %s, and no template sets it", name, value)
		}
	}
	for _, m := range regexp.MustCompile(`--([a-z][a-z-]+)`).FindAllStringSubmatch(templates, -1) {
		if ownFlags[m[1]] == "" {
			t.Errorf("a template sets --%s, which ownFlags lacks", m[1])
		}
	}
}

const (
	tableBegin = "<!-- values: made by go test ./test/chart -update -->\n"
	tableEnd   = "<!-- end of values -->\n"
)

// The README lists all values with their defaults and what values.yaml says of them.
func TestReadme(t *testing.T) {
	path := filepath.Join(chart, "README.md")
	head, rest, ok := strings.Cut(read(t, path), tableBegin)
	_, tail, ends := strings.Cut(rest, tableEnd)
	if !ok || !ends {
		t.Fatalf("%s has no lines %q and %q", path, tableBegin, tableEnd)
	}
	var rows strings.Builder
	rows.WriteString("\n| value | default | |\n| --- | --- | --- |\n")
	list := func(string, *yaml.Node, string) {}
	list = func(path string, n *yaml.Node, about string) {
		if _, whole := shapes[path]; n.Kind == yaml.MappingNode && !whole && len(n.Content) > 0 {
			for i := 0; i < len(n.Content); i += 2 {
				list(strings.TrimPrefix(path+"."+n.Content[i].Value, "."), n.Content[i+1], said(n.Content[i].HeadComment, about, i == 0))
			}
			return
		}
		var def any
		if err := n.Decode(&def); err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(def)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&rows, "| `%s` | `%s` | %s |\n", path, b, strings.ReplaceAll(about, "|", `\|`))
	}
	list("", values(t), "")
	generated(t, path, head+tableBegin+rows.String()+"\n"+tableEnd+tail)
}

// said is the comment of a value, or that of its group for the first one.
func said(comment, group string, first bool) string {
	lines := strings.Split(comment, "\n")
	i := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "# -- ") })
	if i < 0 {
		if first {
			return group
		}
		return ""
	}
	var out []string
	for _, l := range lines[i:] {
		out = append(out, strings.TrimSpace(strings.TrimPrefix(strings.TrimPrefix(l, "#"), " -- ")))
	}
	return strings.Join(out, " ")
}
