package chart

import (
	"net/http"
	"slices"
	"strings"
	"sync"
)

// request is what a client asked of the API server, as RBAC sees it.
type request struct {
	verb, group, resource, namespace, name string
	as, uid, extras                        string // the impersonated user
	status                                 int
}

// recorder keeps every request that goes to the API server through it.
type recorder struct {
	next  http.RoundTripper
	token string // of the account: a client sends none without TLS

	mu   sync.Mutex
	seen map[request]int
}

func (r *recorder) RoundTrip(q *http.Request) (*http.Response, error) {
	asked := readRequest(q)
	q = q.Clone(q.Context())
	q.Header.Set("Authorization", "Bearer "+r.token)
	answer, err := r.next.RoundTrip(q)
	if err == nil && asked.resource != "" {
		asked.status = answer.StatusCode
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.seen == nil {
			r.seen = map[request]int{}
		}
		r.seen[asked]++
	}
	return answer, err
}

// all are the requests so far.
func (r *recorder) all() []request {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []request
	for q := range r.seen {
		all = append(all, q)
	}
	return all
}

// readRequest says what a request asks for; the resource is empty for discovery.
func readRequest(q *http.Request) request {
	parts := strings.Split(strings.Trim(q.URL.Path, "/"), "/")
	r := request{as: q.Header.Get("Impersonate-User"), uid: q.Header.Get("Impersonate-Uid")}
	for name := range q.Header {
		if key, ok := strings.CutPrefix(name, "Impersonate-Extra-"); ok {
			r.extras += " " + strings.ReplaceAll(strings.ToLower(key), "%2f", "/")
		}
	}
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		r.group, parts = parts[1], parts[3:]
	default:
		return request{}
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		r.namespace, parts = parts[1], parts[2:]
	}
	r.resource = parts[0]
	if len(parts) > 1 {
		r.name = parts[1]
	}
	if len(parts) > 2 {
		r.resource += "/" + parts[2]
	}
	asked := q.URL.Query()
	watching := asked.Get("watch")
	r.verb = map[string]string{
		http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete", http.MethodGet: "get",
	}[q.Method]
	switch {
	case r.name != "":
	case r.verb == "delete":
		r.verb = "deletecollection"
	case r.verb == "get" && watching != "" && watching != "0" && watching != "false":
		r.verb = "watch"
	case r.verb == "get":
		r.verb = "list"
	}
	if name, ok := strings.CutPrefix(asked.Get("fieldSelector"), "metadata.name="); ok && r.name == "" {
		r.name = name // a selector of one name counts as that name
	}
	return r
}

// uses reports whether a request needs a right. Acting for a user needs the right to
// impersonate; the rest is the user's own.
func (q request) uses(r right) bool {
	if q.as != "" {
		account, isAccount := strings.CutPrefix(q.as, "system:serviceaccount:")
		if r.verb != "impersonate" {
			return false
		}
		if r.resource == "uids" {
			return q.uid != ""
		}
		if key, ok := strings.CutPrefix(r.resource, "userextras/"); ok {
			return strings.Contains(q.extras, key)
		}
		if isAccount {
			namespace, _, _ := strings.Cut(account, ":")
			return r.resource == "serviceaccounts" && (r.where == "everywhere" || slices.Contains(strings.Split(r.where, ","), namespace))
		}
		return r.resource == "users" || r.resource == "groups"
	}
	return q.verb == r.verb && q.group == r.group && q.resource == r.resource &&
		(r.where == "everywhere" || slices.Contains(strings.Split(r.where, ","), q.namespace)) &&
		(len(r.names) == 0 || slices.Contains(r.names, q.name))
}
