package kube

import (
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// SecretRule says which rules the Role of a controller needs for a Secret that it makes and
// reads, in YAML, and with them what to do with these.
func SecretRule(at client.ObjectKey, verbs ...string) string {
	return fmt.Sprintf(`add to the Role of the controller in the namespace %s, rules: [{apiGroups: [""], resources: [secrets], verbs: [create]}, {apiGroups: [""], resources: [secrets], resourceNames: [%s], verbs: [%s]}]`,
		at.Namespace, at.Name, strings.Join(verbs, ", "))
}
