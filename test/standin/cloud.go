package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// endpointVariable is where the real provider, too, is told of another cloud.
// Here it is a file: URL of the JSON file.
const endpointVariable = "AWS_ENDPOINT_URL"

// account is what the file holds.
type account struct {
	Next    int                `json:"next"`    // of the next id; never reused
	Holds   map[string]holding `json:"holds"`   // by kind and id
	Deleted []holding          `json:"deleted"` // in order
}

// holding is one resource, and with which access key it was made or deleted.
type holding struct {
	Kind       string         `json:"kind"`
	ID         string         `json:"id"`
	Attributes map[string]any `json:"attributes"`
	By         string         `json:"by"`
}

// cloud is the file, and who writes it.
type cloud struct {
	path, key string
}

// fromEnvironment is the cloud of an access key.
func fromEnvironment() (*cloud, error) {
	key := os.Getenv("AWS_ACCESS_KEY_ID")
	if key == "" || os.Getenv("AWS_SECRET_ACCESS_KEY") == "" {
		return nil, errors.New("no valid credential sources found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
	}
	path, ok := strings.CutPrefix(os.Getenv(endpointVariable), "file://")
	if !ok || !filepath.IsAbs(path) {
		return nil, fmt.Errorf("%s is not the file: URL of a cloud", endpointVariable)
	}
	return &cloud{path: path, key: key}, nil
}

// update changes the account, alone and all at once; change may only read it.
func (c *cloud) update(change func(*account) error) error {
	lock, err := os.OpenFile(c.path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("opening the cloud's lock: %w", err)
	}
	defer lock.Close() // releases it
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("locking the cloud: %w", err)
	}
	a := account{Holds: map[string]holding{}}
	text, err := os.ReadFile(c.path)
	if err == nil {
		err = json.Unmarshal(text, &a)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading the cloud %s: %w", c.path, err)
	}
	if err := change(&a); err != nil {
		return err
	}
	changed, err := json.MarshalIndent(a, "", "  ")
	if err != nil || string(changed) == string(text) {
		return err
	}
	// A reader without the lock sees the whole old or the whole new one.
	if err := os.WriteFile(c.path+".new", changed, 0o644); err != nil {
		return fmt.Errorf("writing the cloud: %w", err)
	}
	return os.Rename(c.path+".new", c.path)
}

func place(kind, id string) string { return kind + "/" + id }
