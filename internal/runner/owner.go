package runner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plural"
	"github.com/terrier-iac/terrier/internal/runner/disk"
)

// What carries the runs of a data directory out: the values of --runs-as.
const (
	AsProcesses = "processes"
	AsPods      = "pods"
)

// What package remote keeps in a data directory beside what Processes keeps. A directory
// of an earlier version is known by them.
const (
	FilePlace   = "place.json" // in RUN: where the run is carried out
	DirRemovals = "removals"   // in DIR: places that have to be removed
)

// fileOwner, in DIR, has the value of --runs-as that the directory is used with.
const fileOwner = "runs-as"

// OtherRunner is the reason of a directory that has runs of the other kind.
const OtherRunner = "OtherRunner"

// claim makes the directory one of runners of a kind. A runner takes what it does not know
// for what a crash left. So the kind changes only while nothing is there: no run, and no
// place that has to be removed.
func (s *Runs) claim(as string) error {
	path := filepath.Join(s.dir, fileOwner)
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	owner := strings.TrimSpace(string(data))
	if owner == as {
		return nil
	}
	left, places, err := s.left()
	if err != nil {
		return err
	}
	if owner == "" {
		owner = AsProcesses
		if places {
			owner = AsPods
		}
	}
	if owner != as && len(left) > 0 {
		return fault.New(fault.Denied, OtherRunner, fmt.Errorf(
			"--runs-as=%s: %s has %s of --runs-as=%s not ended or not recorded, such as %s: start with --runs-as=%s and suspend all stacks, and change the flag once the directories runs/*/ and %s/ there are empty",
			as, s.dir, plural.Count(len(left), "run"), owner, left[0], owner, DirRemovals))
	}
	return disk.Write(path, []byte(as+"\n"))
}

// left lists the runs and the removals in the directory, and reports whether any of them
// is of a place.
func (s *Runs) left() (left []string, places bool, err error) {
	keys, err := s.Keys()
	if err != nil {
		return nil, false, err
	}
	for _, key := range keys {
		ids, err := s.IDs(key)
		if err != nil {
			return nil, false, err
		}
		for _, id := range ids {
			_, err := os.Lstat(filepath.Join(s.run(key, id), FilePlace))
			places = places || err == nil
			left = append(left, filepath.Join("runs", key, id))
		}
	}
	entries, err := os.ReadDir(filepath.Join(s.dir, DirRemovals))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, false, err
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) == ".json" {
			places, left = true, append(left, filepath.Join(DirRemovals, e.Name()))
		}
	}
	return left, places, nil
}
