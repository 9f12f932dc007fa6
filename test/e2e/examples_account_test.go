package e2e

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"syscall"
	"testing"
)

// inCloud is what the file holds.
type inCloud struct {
	Holds   map[string]json.RawMessage
	Deleted []struct{ Kind, ID, By string }
}

func (e *example) account(t *testing.T) (account inCloud) {
	t.Helper()
	text, err := os.ReadFile(e.cloud)
	if err == nil {
		err = json.Unmarshal(text, &account)
	}
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return account
}

// holds are the resources in the cloud, by kind and id.
func (e *example) holds(t *testing.T) []string {
	t.Helper()
	return slices.Sorted(maps.Keys(e.account(t).Holds))
}

// slow makes the cloud wait with every change until release.
func (e *example) slow(t *testing.T) (release func()) {
	t.Helper()
	lock, err := os.OpenFile(e.cloud+".lock", os.O_CREATE|os.O_RDWR, 0o666)
	if err == nil {
		err = lock.Chmod(0o666) // whatever the umask: runs have a user of their own
	}
	if err == nil {
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lock.Close() })
	return func() { lock.Close() }
}

const accessKey, secretKey = "AKIAEXAMPLE", "canary-of-the-guide"

var awsCredentials = map[string]map[string]string{"aws-credentials": {
	"AWS_ACCESS_KEY_ID": accessKey, "AWS_SECRET_ACCESS_KEY": secretKey, "AWS_DEFAULT_REGION": "us-east-1",
}}
