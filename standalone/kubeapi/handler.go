package kubeapi

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"
)

// serviceName is what a Kubernetes API server is called inside its cluster.
const serviceName = "kubernetes.default.svc"

// storedNotRun is the warning for writers of workloads.
const storedNotRun = "stored, not run: this control plane has no nodes"

// checkHost answers only requests to a host name of the server. A web page whose name
// was made to resolve to loopback sends its own name, and is refused first.
func checkHost(allowed map[string]bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if allowed[hostPort(r.Host)] {
			next.ServeHTTP(w, r)
			return
		}
		body, err := json.Marshal(metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
			Status:   metav1.StatusFailure,
			Reason:   metav1.StatusReasonForbidden,
			Code:     http.StatusForbidden,
			Message:  fmt.Sprintf("the host %.100q is not this server: use the address in its kubeconfig", r.Host),
		})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write(body) // the caller may be gone
	})
}

func hostPort(host string) string {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name, port = strings.Trim(host, "[]"), "443"
	}
	return net.JoinHostPort(strings.ToLower(name), port)
}

// warnOfWorkloads has clients print that nothing will run what they store. It
// stands inside the server's chain, where the request is understood, allowed,
// and may carry warnings back.
func warnOfWorkloads(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if info, ok := request.RequestInfoFrom(r.Context()); ok && writesWorkload(info) {
			warning.AddWarning(r.Context(), "", storedNotRun)
		}
		next.ServeHTTP(w, r)
	})
}

func writesWorkload(r *request.RequestInfo) bool {
	if !r.IsResourceRequest || r.Subresource != "" {
		return false
	}
	switch r.Verb {
	case "create", "update", "patch":
	default:
		return false
	}
	switch r.APIGroup + "/" + r.Resource {
	case "/pods", "/replicationcontrollers",
		"apps/deployments", "apps/statefulsets", "apps/daemonsets", "apps/replicasets",
		"batch/jobs", "batch/cronjobs":
		return true
	default:
		return false
	}
}
