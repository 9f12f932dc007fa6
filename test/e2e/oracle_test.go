package e2e

import (
	"bytes"
	"compress/gzip"
	"io"
	"testing"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// verify is the oracle of every test that kills something: it compares what
// the world saw with what the stack says. The validators of its history are
// asked after every test, see testkit.Witness.
func verify(t *testing.T, c *testkit.Cluster, w *testkit.World, name string) {
	t.Helper()
	for _, problem := range c.Oracle(t, w, name) {
		t.Error(problem)
	}
}

// stateOf is the state of a stack as the cluster holds it, empty if there is
// none.
func stateOf(t *testing.T, c *testkit.Cluster, name string) []byte {
	t.Helper()
	return c.State(t, name)
}

// memoryOf is what a stack remembers.
func memoryOf(t *testing.T, s *v1alpha2.Terraform) stack.Status {
	t.Helper()
	m, err := testkit.StatusOf(s)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func gunzip(t *testing.T, packed []byte) string {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
