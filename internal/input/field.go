package input

import "github.com/terrier-iac/terrier/internal/stack"

// Object is the object of the stack itself, whose fields are inputs, too.
type Object struct {
	Name, Namespace, UID string
	Labels, Annotations  map[string]string
}

// Field is a field of the object; one that it does not have is empty.
func (o Object) Field(path string) string {
	switch of, key, _ := stack.CutField(path); of {
	case "name":
		return o.Name
	case "namespace":
		return o.Namespace
	case "uid":
		return o.UID
	case "labels":
		return o.Labels[key]
	case "annotations":
		return o.Annotations[key]
	default:
		return ""
	}
}
