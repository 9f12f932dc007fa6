package testkit

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/terrier-iac/terrier/internal/sandbox"
)

// PodUser is the user of the containers of our images.
const PodUser = 65532

// podVolume is how pods have a directory of this machine: under a path of their own.
type podVolume struct {
	path string
	user int
}

// Installed is a controller that the test has not started, since it is a pod of a node
// on this machine: its data directory is at data. Its runs are pods that have the
// directory shared as the volume at path. It can be asked for what runs did, and cannot
// be started or killed.
func Installed(kubeconfig, data, shared, path string) (*Platform, error) {
	if err := own(shared, PodUser); err != nil {
		return nil, err
	}
	return &Platform{Kubeconfig: kubeconfig, Dir: data, shared: shared, volume: podVolume{path, PodUser}}, nil
}

// own gives a directory and all that is in it to a user; to that of sandboxed runs if
// user is 0. A file may go meanwhile, since runs rename theirs.
func own(dir string, user int) error {
	if user == 0 {
		return sandbox.ChownWork(dir)
	}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			err = os.Lchown(path, user, user)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
}
