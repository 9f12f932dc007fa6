package chart

import (
	"crypto/tls"
	"net/http"
	"os"
	"testing"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// insecure is a client that trusts every certificate: the one of a controller is made
// when it starts.
var insecure = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // only tests

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // of the clients of tests
	os.Exit(m.Run())
}
