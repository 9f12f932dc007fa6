package cloud

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// Parameter is one of the parameters of a place.
type Parameter struct{ Name, Value string }

// ReadPlace reads SCHEME://NAME?PARAMETERS, which says where something is in a cloud. Each
// scheme has parameters of its own, in their order; one that ends in * stands for all that
// begin so. The place has those that it gives in the order of their names, each once. A place
// holds no credentials.
func ReadPlace(text string, schemes map[string][]string) (*url.URL, []Parameter, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, nil, errors.New("it is no URL")
	}
	known := schemes[u.Scheme]
	if known == nil {
		return nil, nil, fmt.Errorf("the scheme %q is none of %s", u.Scheme, strings.Join(slices.Sorted(maps.Keys(schemes)), ", "))
	}
	if u.User != nil {
		return nil, nil, errors.New("a URL must not hold credentials: give them in the environment")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, nil, errors.New("its parameters are not NAME=VALUE")
	}
	var given []Parameter
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if !slices.ContainsFunc(known, is(name)) || len(query[name]) > 1 {
			return nil, nil, fmt.Errorf("the parameter %q is unknown or given twice: %s knows %s", name, u.Scheme, strings.Join(known, ", "))
		}
		given = append(given, Parameter{name, query.Get(name)})
	}
	return u, given, nil
}

// is reports whether a known parameter is one with this name.
func is(name string) func(string) bool {
	return func(known string) bool {
		prefix, open := strings.CutSuffix(known, "*")
		return known == name || open && strings.HasPrefix(name, prefix)
	}
}

// Endpoint reads the parameter endpoint=.
func Endpoint(value string) (*url.URL, error) {
	u, err := url.Parse(value)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("endpoint= is not https://HOST")
	}
	return u, nil
}
