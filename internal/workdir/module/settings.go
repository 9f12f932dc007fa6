package module

import (
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// backendCredentials are those settings of backends that say who reads a state
// and not which.
var backendCredentials = []string{
	"access_key", "secret_key", "token", "security_token", "session_token", "password", "client_secret", "client_key", "client_certificate",
	"client_certificate_password", "sas_token", "oidc_token", "oidc_request_token", "credentials", "access_token", "client_private_key_pem", "client_certificate_pem",
}

// BackendSettings is the file that completes the configuration of a backend.
// Every value is a text to the engine, as it is on a command line.
func BackendSettings(name string, settings map[string]string) (workdir.File, error) {
	f := hclwrite.NewEmptyFile()
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		if !hclsyntax.ValidIdentifier(key) {
			return workdir.File{}, fault.New(fault.Invalid, "BackendInvalid", fmt.Errorf("spec.backendConfigsFrom: the key %.80q is no name of a setting", key))
		}
		f.Body().SetAttributeValue(key, cty.StringVal(settings[key]))
	}
	return workdir.File{Path: name, Mode: 0o600, Content: f.Bytes()}, nil
}

// LastingSettings lists what of a backend's settings says which state it is.
func LastingSettings(settings map[string]string) []string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		if slices.Contains(backendCredentials, key) {
			list = append(list, key)
		} else {
			list = append(list, key+"="+settings[key])
		}
	}
	return list
}
