package tenant

// Type is what the schema of a kind says of one field.
type Type int

// What a rendered text may have to become.
const (
	Unknown     Type = iota // no schema, or none for this field: texts stay texts
	Text                    // stays a text whatever it looks like
	Integer                 // becomes int64
	Number                  // becomes int64 or float64
	Boolean                 // becomes bool
	IntOrString             // becomes int64 if it is a whole number, as ports do
)

// Types knows the schemas of kinds. Path steps are field names, keys of maps whose
// keys are free among them; "[]" stands for any element of a list.
type Types interface {
	At(apiVersion, kind string, path []string) Type
}

// ResourceError is one text of a template that did not work.
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
