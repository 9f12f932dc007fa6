package scan

// Remedy is what to do instead of a secret in a place of this kind. The secret was readable
// where it stands, so it is replaced in any case.
func (k Kind) Remedy() string {
	switch k {
	case Environment:
		return "Give the variable valueFrom.secretKeyRef. In a stack its name may be vault://MOUNT/PATH"
	case Secret:
		return "Keep the value in OpenBao or Vault, and let an ExternalSecret make the Secret. A stack can read vault://MOUNT/PATH without a Secret"
	case ConfigMap:
		return "Move the value to a Secret, or name vault://MOUNT/PATH in the stack that needs it"
	case Variable:
		return "Replace the value by valueFrom.secretKeyRef, or use varsFrom: the name may be vault://MOUNT/PATH"
	case VarFile:
		return "Remove the value from the file. Give it with varsFrom: a Secret, or vault://MOUNT/PATH"
	case Provider:
		return "Remove the attribute. Let the provider read an environment variable from vault://MOUNT/PATH, or the identity of the run (docs/identities.md)"
	case Default:
		return "Remove the default, declare the variable as sensitive, and give its value with varsFrom: a Secret, or vault://MOUNT/PATH"
	case Resource:
		return "Use a sensitive or ephemeral variable, and the write-only attribute of the resource where its provider has one (NAME_wo)"
	case Module:
		return "Use a sensitive variable, and give its value with varsFrom: a Secret, or vault://MOUNT/PATH"
	case State:
		return "Use write-only attributes (NAME_wo) or ephemeral resources, so that the state does not hold the value, and keep states out of Git"
	default:
		return "Move the value to OpenBao, Vault or a Secret, and refer to it"
	}
}

// Title says what a kind of place is.
func (k Kind) Title() string {
	switch k {
	case Environment:
		return "environment variables"
	case Secret:
		return "Secrets"
	case ConfigMap:
		return "ConfigMaps"
	case Variable:
		return "variables of stacks"
	case Manifest:
		return "manifests"
	case VarFile:
		return "files of variables"
	case Provider:
		return "configurations of providers and backends"
	case Default:
		return "defaults of variables"
	case Resource:
		return "resources"
	case Module:
		return "modules"
	case State:
		return "states"
	default:
		return "other texts"
	}
}
