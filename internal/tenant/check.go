package tenant

import (
	"fmt"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/tenant/expression"
	"github.com/terrier-iac/terrier/internal/tenant/rendering"
)

// Check finds all problems of a template that can be found without a row. With
// vars, the variables of its registry (see VariablesOf), it also checks the names
// of variables; nil means that they are not known yet.
func Check(t Template, vars []string) []ResourceError {
	c := &checking{vars: vars, errs: orderErrors(t.Resources), same: map[Ref]string{}}
	for _, r := range t.Resources {
		c.resource(r)
	}
	return c.errs
}

type checking struct {
	vars []string
	errs []ResourceError
	same map[Ref]string // resource ids by the texts that identify their objects
	r    Resource
}

func (c *checking) fail(field string, err error) {
	if err != nil {
		c.errs = append(c.errs, ResourceError{c.r.ID, field, err.Error()})
	}
}

func (c *checking) resource(r Resource) {
	c.r = r
	if err := r.kindError(); err != nil {
		for _, one := range split(err) {
			c.fail("spec", one)
		}
	} else {
		c.names()
	}
	c.text("nameTemplate", r.NameTemplate)
	c.text("targetNamespace", r.TargetNamespace)
	c.metadata()
	for _, name := range keysOf(r.Object) {
		if name != "apiVersion" && name != "kind" && name != "metadata" {
			c.value(r.Object[name], place{field: name})
		}
	}
	if r.ReadyWhen != "" {
		c.fail("readyWhen", expression.OverObject().Check(r.ReadyWhen))
	}
	if r.IncludeWhen != "" {
		c.fail("includeWhen", expression.OverRow().Check(r.IncludeWhen))
	}
	for i, path := range r.IgnoreFields {
		_, err := ParsePath(path)
		c.fail(fmt.Sprintf("ignoreFields[%d]", i), err)
	}
}

// metadata checks the fields that Render reads: not those that others override.
func (c *checking) metadata() {
	own := metadataOf(c.r)
	for _, name := range keysOf(own) {
		switch name {
		case "namespace", "labels", "annotations":
		case "name":
			if c.r.NameTemplate == "" {
				c.value(own[name], place{field: name, up: &place{field: "metadata"}})
			}
		default:
			c.value(own[name], place{field: name, up: &place{field: "metadata"}})
		}
	}
	c.texts("spec.metadata.labels", object(own["labels"]), c.r.LabelsTemplate, labelError)
	c.texts("labelsTemplate", anything(c.r.LabelsTemplate), nil, labelError)
	c.texts("spec.metadata.annotations", object(own["annotations"]), c.r.AnnotationsTemplate, func(string) error { return nil })
	c.texts("annotationsTemplate", anything(c.r.AnnotationsTemplate), nil, func(string) error { return nil })
}

// texts checks labels or annotations, except for those that others override.
func (c *checking) texts(field string, all map[string]any, over map[string]string, check func(string) error) {
	for _, key := range keysOf(all) {
		if _, ok := over[key]; ok {
			continue
		}
		if err := keyError(key); err != nil {
			c.fail(field, fmt.Errorf("%s is not a valid key: %w", quoted(key), err))
		}
		value := text(all[key])
		if c.text(field+"."+key, value); !rendering.IsTemplate(value) {
			if err := check(value); err != nil {
				c.fail(field+"."+key, fmt.Errorf("%s is not a valid label value: %w", quoted(value), err))
			}
		}
	}
}

func anything(m map[string]string) map[string]any {
	out := make(map[string]any, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

func split(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

func object(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

func metadataOf(r Resource) map[string]any { return object(r.Object["metadata"]) }

// names checks names that are no templates, and finds resources that are the same
// object for any row: those with the same texts for name and namespace.
func (c *checking) names() {
	apiVersion, kind := text(c.r.Object["apiVersion"]), text(c.r.Object["kind"])
	name, field := c.r.NameTemplate, "nameTemplate"
	if name == "" {
		name, field = text(metadataOf(c.r)["name"]), "spec.metadata.name"
	}
	if !rendering.IsTemplate(name) {
		c.fail(field, nameError(apiVersion, kind, name))
	}
	if namespace := c.r.TargetNamespace; namespace != "" && !rendering.IsTemplate(namespace) {
		if err := dnsLabelError(namespace); err != nil {
			c.fail("targetNamespace", fmt.Errorf("%s is not a valid name of a namespace: %w", quoted(namespace), err))
		}
	}
	id := Ref{Group: groupOf(apiVersion), Kind: kind, Namespace: c.r.TargetNamespace, Name: name}
	if c.r.IncludeWhen != "" {
		return // it may be for other rows
	}
	if other, ok := c.same[id]; !ok {
		c.same[id] = c.r.ID
	} else {
		c.fail(field, fmt.Errorf("it is the same %s as the one of %s", kind, other))
	}
}

func (c *checking) value(v any, at place) {
	switch v := v.(type) {
	case string:
		c.text(at.String(), v)
	case []any:
		for i := range v {
			c.value(v[i], place{index: i, inList: true, up: &at})
		}
	case map[string]any:
		for _, name := range keysOf(v) {
			c.value(v[name], place{field: name, up: &at})
		}
	}
}

func (c *checking) text(field, template string) {
	t, err := rendering.Parse(template)
	if err != nil {
		c.fail(field, err)
		return
	}
	if c.vars == nil {
		return
	}
	used := t.Variables()
	for _, name := range keysOf(used) {
		if used[name] && !slices.Contains(c.vars, name) {
			c.fail(field, fmt.Errorf("there is no variable %s; the variables are %s", name, strings.Join(c.vars, ", ")))
		}
	}
}
