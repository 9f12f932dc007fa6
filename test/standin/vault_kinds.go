package main

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
)

// vaultKind is a kind of what a Vault holds. Functions get the arguments.
type vaultKind struct {
	name       string
	attributes attributes
	path       func(asked map[string]any) string         // where it is read, and deleted
	method     string                                    // that writes it there
	body       func(asked map[string]any) map[string]any // what is written
	remove     func(asked map[string]any) string         // where it is deleted, if not at path; empty: it stays
	// made are attributes that the server or the provider sets, but for id, which is path.
	made func(asked, data map[string]any) map[string]any
	// read are arguments as they are now, which others may have changed.
	read func(asked, data map[string]any) map[string]any
}

// only are some arguments, as they are.
func only(names ...string) func(map[string]any) map[string]any {
	return func(asked map[string]any) map[string]any {
		body := map[string]any{}
		for _, name := range names {
			if v, ok := asked[name]; ok {
				body[name] = v
			}
		}
		return body
	}
}

// same reads some arguments by their names.
func same(names ...string) func(asked, data map[string]any) map[string]any {
	return func(_, data map[string]any) map[string]any { return only(names...)(data) }
}

func nothing(_, _ map[string]any) map[string]any { return nil }

func accessor(_, data map[string]any) map[string]any {
	return map[string]any{"accessor": str(data, "accessor")}
}

func at(parts ...string) func(map[string]any) string {
	return func(asked map[string]any) string {
		path := ""
		for _, part := range parts {
			if name, ok := strings.CutPrefix(part, "$"); ok {
				part = strings.Trim(str(asked, name), "/")
			}
			path += part
		}
		return path
	}
}

// mountPath is an argument that is named after its type where the configuration has none.
func mountPath() schema.Attribute {
	return schema.StringAttribute{Optional: true, Computed: true, PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown(), stringplanmodifier.RequiresReplace()}}
}

func required() schema.Attribute { return schema.StringAttribute{Required: true} }
func requiredSecret() schema.Attribute {
	return schema.StringAttribute{Required: true, Sensitive: true}
}

func vaultKinds() []vaultKind {
	return []vaultKind{
		{
			name:       "vault_mount",
			attributes: attributes{"id": computed(), "accessor": computed(), "path": naming(), "type": naming(), "description": text(), "options": tags()},
			path:       at("sys/mounts/", "$path"), method: http.MethodPost, body: only("type", "description", "options"),
			made: accessor, read: nothing,
		},
		{
			name: "vault_kv_secret_v2",
			attributes: attributes{
				"id": computed(), "path": computed(), "mount": naming(), "name": naming(), "data_json": requiredSecret(), "delete_all_versions": truth(),
			},
			path: at("$mount", "/data/", "$name"), method: http.MethodPost,
			body: func(asked map[string]any) map[string]any {
				return map[string]any{"data": json.RawMessage(str(asked, "data_json"))}
			},
			remove: func(asked map[string]any) string {
				if asked["delete_all_versions"] == true {
					return at("$mount", "/metadata/", "$name")(asked)
				}
				return at("$mount", "/data/", "$name")(asked)
			},
			made: func(asked, _ map[string]any) map[string]any {
				return map[string]any{"path": at("$mount", "/data/", "$name")(asked)}
			},
			read: func(asked, data map[string]any) map[string]any {
				var was any
				if json.Unmarshal([]byte(str(asked, "data_json")), &was) == nil && reflect.DeepEqual(was, data["data"]) {
					return nil // the text may differ
				}
				text, err := json.Marshal(data["data"])
				if err != nil {
					return nil // it came from JSON
				}
				return map[string]any{"data_json": string(text)}
			},
		},
		{
			name:       "vault_policy",
			attributes: attributes{"id": computed(), "name": naming(), "policy": required()},
			path:       at("sys/policies/acl/", "$name"), method: http.MethodPut, body: only("policy"), made: nothing, read: same("policy"),
		},
		{
			name:       "vault_auth_backend",
			attributes: attributes{"id": computed(), "accessor": computed(), "type": naming(), "path": mountPath(), "description": text()},
			path: func(asked map[string]any) string {
				if str(asked, "path") == "" {
					return at("sys/auth/", "$type")(asked)
				}
				return at("sys/auth/", "$path")(asked)
			},
			method: http.MethodPost, body: only("type", "description"),
			made: func(asked, data map[string]any) map[string]any {
				return map[string]any{"path": str(asked, "type"), "accessor": str(data, "accessor")}
			},
			read: nothing,
		},
		{
			name: "vault_kubernetes_auth_backend_config",
			attributes: attributes{
				"id": computed(), "backend": naming(), "kubernetes_host": required(), "kubernetes_ca_cert": text(), "token_reviewer_jwt": secret(), "disable_local_ca_jwt": truth(),
			},
			path: at("auth/", "$backend", "/config"), method: http.MethodPost,
			body:   only("kubernetes_host", "kubernetes_ca_cert", "token_reviewer_jwt", "disable_local_ca_jwt"),
			remove: func(map[string]any) string { return "" }, // it goes with its backend
			made:   nothing, read: same("kubernetes_host", "kubernetes_ca_cert"),
		},
		{
			name: "vault_kubernetes_auth_backend_role",
			attributes: attributes{
				"id": computed(), "backend": naming(), "role_name": naming(), "bound_service_account_names": set(), "bound_service_account_namespaces": set(),
				"token_policies": set(), "token_ttl": number(), "audience": text(),
			},
			path: at("auth/", "$backend", "/role/", "$role_name"), method: http.MethodPost,
			body: only("bound_service_account_names", "bound_service_account_namespaces", "token_policies", "token_ttl", "audience"),
			made: nothing, read: nothing,
		},
	}
}
