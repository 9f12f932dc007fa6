package tenant

// Type is the type of a field by the schema of its kind.
type Type int

// The types that a rendered text is converted to.
const (
	Unknown     Type = iota // no schema, or none for this field: texts stay texts
	Text                    // stays a text
	Integer                 // becomes int64
	Number                  // becomes int64 or float64
	Boolean                 // becomes bool
	IntOrString             // becomes int64 if it is a whole number, as ports do
)

// Types knows the schemas of kinds. Path steps are field names, keys of maps whose
// keys are free among them; "[]" stands for any element of a list.
type Types interface {
	At(apiVersion, kind string, path []string) Type
	List(apiVersion, kind string, path []string) List
}

// List is a list field by the schema of its kind. The zero List is one whose schema
// could not be read.
type List struct {
	Known bool      // the schema was read, or the cluster has none for this field
	Keys  []ListKey // identify an element together; none for a list that is one value
}

// ListKey is a field that identifies the elements of a list.
type ListKey struct {
	Name    string
	Default any // of an element that leaves the field out; nil for none
}

// ResourceError is a problem with one text of a template.
type ResourceError struct {
	ID      string // of the resource; empty for the template as a whole
	Field   string // nameTemplate, spec.data.url, …
	Message string
}

func (e ResourceError) Error() string {
	switch {
	case e.ID == "":
		return e.Message
	case e.Field == "":
		return e.ID + ": " + e.Message
	}
	return e.ID + ": " + e.Field + ": " + e.Message
}
