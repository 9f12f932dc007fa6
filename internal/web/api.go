package web

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"reflect"

	"github.com/gin-gonic/gin"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
)

// The API is rows of the one table. reads makes a row that only reads, and
// acts makes a row that acts, from a function that knows nothing of
// HTTP. The document of the API is generated from these rows.

const api = "/api/v1"

// document is the OpenAPI document of the API, generated from the table of routes
// by a test, so that serving it takes no reflection.
//
//go:embed openapi.json
var document []byte

// Addresses of one object of each kind.
const (
	inNamespace = api + "/namespaces/:namespace"
	oneStack    = inNamespace + "/stacks/:name"
	oneTenant   = inNamespace + "/tenants/:name"
	oneRegistry = inNamespace + "/registries/:name"
	oneTemplate = inNamespace + "/templates/:name"
)

// operation is the entry of a row in the document of the API. The zero operation is
// in no document.
type operation struct {
	id      string // of the operation, for generated clients
	summary string // one sentence
	area    string // the group that it belongs to
	query   []parameter
	takes   reflect.Type // the body; nil if there is none
	gives   reflect.Type // the answer; nil if that is empty
	made    bool         // the answer is 201
	as      string       // its media type, if that is not JSON
	also    requirement  // a second permission that it needs
	fails   []fault.Kind // besides Invalid, Denied and Broken, which every row can return
}

// parameter is one name in the query of an address.
type parameter struct {
	name, about string
	kind        reflect.Kind // of its values
	several     bool         // it may occur more than once
}

func word(name, about string) parameter {
	return parameter{name: name, about: about, kind: reflect.String}
}
func number(name, about string) parameter {
	return parameter{name: name, about: about, kind: reflect.Int}
}
func yes(name, about string) parameter {
	return parameter{name: name, about: about, kind: reflect.Bool}
}

// gate makes the rows of the API, and checks what every row of it checks.
type gate struct {
	auth    Auth
	people  func(access.User) (command.Person, error) // nil if commands are not carried out
	scopes  scopes
	replies *replies
}

// call is one request to the API.
type call struct {
	*gin.Context
	gate *gate
}

func (c call) ctx() context.Context { return c.Request.Context() }

func (c call) key() query.Key { return keyOf(c.Context) }

// errNoPeople is the answer of a server without impersonation.
var errNoPeople = fault.New(fault.Later, "NoCommands", errors.New("this server carries out no commands"))

// person acts with the permissions of the caller.
func (c call) person() (command.Person, error) {
	if c.gate.people == nil {
		return command.Person{}, errNoPeople
	}
	return c.gate.people(userOf(c.Context))
}

// scope is the namespaces whose stacks the caller may list.
func (c call) scope() (access.Scope, error) { return c.gate.scopes.of(c.ctx(), userOf(c.Context)) }

// everywhere checks a permission to the stacks of a kind in all namespaces. What a stack left
// whose namespace was deleted is for users who have it.
func (g *gate) everywhere(c *gin.Context, verb string, r access.Resource, kind string) error {
	return g.auth.Authorize(c.Request.Context(), userOf(c), access.Request{Verb: verb, Resource: r, Kind: kind})
}

// none is a body or an answer with nothing in it.
type none struct{}

// reads is a row that reads.
func reads[A any](g *gate, path string, d door, a requirement, o operation, f func(call) (A, error)) route {
	o.gives = reflect.TypeFor[A]()
	r := route{method: http.MethodGet, path: path, door: d, access: a, operation: o}
	r.handle = func(c *gin.Context) {
		if err := g.admitted(c, r.operation); err != nil {
			g.replies.refuse(c, err)
			return
		}
		v, err := f(call{c, g})
		answer(g, c, v, err)
	}
	return r
}

// commandBytes bounds the body of a command.
const commandBytes = 64 << 10

// acts is a row that acts, with the permissions of the caller.
func acts[B, A any](g *gate, path string, a requirement, o operation, f func(call, command.Person, B) (A, error)) route {
	o.takes = reflect.TypeFor[B]()
	silent := reflect.TypeFor[A]() == reflect.TypeFor[none]()
	if !silent {
		o.gives = reflect.TypeFor[A]()
	}
	r := route{method: http.MethodPost, path: path, door: guarded, access: a, body: commandBytes, operation: o}
	r.handle = func(c *gin.Context) {
		var body B
		var p command.Person
		err := g.admitted(c, r.operation)
		if err == nil {
			err = readBody(c.Request.Body, &body)
		}
		if err == nil {
			p, err = call{c, g}.person()
		}
		var v A
		if err == nil {
			v, err = f(call{c, g}, p, body)
		}
		if err == nil && silent {
			c.Status(http.StatusNoContent)
			return
		}
		answer(g, c, v, err)
	}
	return r
}

// raw is a row that sends something other than one JSON value.
func (g *gate) raw(path string, a requirement, o operation, handle gin.HandlerFunc) route {
	r := route{method: http.MethodGet, path: path, door: guarded, access: a, operation: o}
	r.handle = func(c *gin.Context) {
		if err := g.admitted(c, r.operation); err != nil {
			g.replies.refuse(c, err)
			return
		}
		handle(c)
	}
	return r
}

// admitted makes the checks of every row of the API: that nothing in the
// query is ignored, that a body is JSON, and the second permission if there is one.
func (g *gate) admitted(c *gin.Context, o operation) error {
	if err := knownQuery(c.Request.URL.RawQuery, o.query); err != nil {
		return err
	}
	if o.takes != nil {
		if kind, _, err := mime.ParseMediaType(c.GetHeader("Content-Type")); err != nil || kind != "application/json" {
			return errMedia
		}
	}
	if o.also == nil {
		return nil
	}
	right, err := o.also(c)
	if err != nil {
		return err
	}
	return g.auth.Authorize(c.Request.Context(), userOf(c), right)
}

var errMedia = &httpError{http.StatusUnsupportedMediaType, fault.New(fault.Invalid, "NotJSON", errors.New("the body must be application/json, and its Content-Type must say so"))}

// list is the shape of every list that is not a page.
type list[T any] struct {
	Items []T `json:"items"`
}

func listOf[T any](items []T) list[T] {
	if items == nil {
		items = []T{} // null is no list
	}
	return list[T]{items}
}

// listed makes the answer of a function that returns a slice.
func listed[T any](items []T, err error) (list[T], error) { return listOf(items), err }

// answer sends v, or err if there is one.
func answer[T any](g *gate, c *gin.Context, v T, err error) {
	if err != nil {
		g.replies.refuse(c, err)
		return
	}
	c.JSON(http.StatusOK, v)
}

// area is rows of the table.
type area interface{ routes() []route }

// aboutAPI describes the API itself.
type aboutAPI struct {
	*gate
	version string
}

func (a aboutAPI) routes() []route {
	return []route{
		reads(a.gate, api+"/version", known, nil, operation{id: "version", area: "server", summary: "The version of the server."},
			func(call) (versionView, error) { return versionView{a.version}, nil }),
		reads(a.gate, api+"/openapi.json", known, nil, operation{id: "openapi", area: "server", summary: "This document."},
			func(call) (json.RawMessage, error) { return document, nil }),
	}
}

// versionView is the version of the server.
type versionView struct {
	Version string `json:"version"`
}
