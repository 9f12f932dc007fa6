package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// RegistryNamespace is a namespace as it is now. One that is deleted and created again has another
// UID. The zero RegistryNamespace does not exist.
type RegistryNamespace struct {
	UID     string
	Created time.Time
}

// fileNamespace is in the directory of a namespace, and holds its UID.
const fileNamespace = "_namespace"

// uncreated is in fileNamespace if there was no namespace of the name when the first content came:
// a user with the right in all namespaces pushed it, for the namespace that will be.
const uncreated = "none"

var uidGrammar = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// owners is the part of a Registry that tells namespaces of one name apart.
type owners struct{ *Registry }

// own has the repositories of a namespace be those of the namespace that has the name now. What a
// former one of its name left is moved to the name OWNER.UID, with the UID of the former one. No
// namespace has such a name, so that only a right in all namespaces is one to it. Nothing is moved
// because a namespace is not there.
func (g owners) own(ctx context.Context, repo string, writes bool) error {
	owner := ownerOf(repo)
	if g.Namespace == nil || strings.Contains(owner, ".") {
		return nil
	}
	now, err := g.Namespace(ctx, owner)
	if err != nil {
		return fmt.Errorf("finding out whose the repositories of the namespace %s are: %w", owner, err)
	}
	g.owning.Lock()
	defer g.owning.Unlock()
	was, err := g.ownedBy(owner, now)
	switch {
	case err != nil:
		return err
	case now.UID == "" && was == "" && writes:
		return g.mark(owner, uncreated)
	case now.UID == "", was == now.UID:
		return nil
	case !uidGrammar.MatchString(now.UID):
		return fmt.Errorf("the namespace %s has the UID %.40q, which cannot be part of a name", owner, now.UID)
	case was == uncreated:
		return g.mark(owner, now.UID)
	case was != "":
		if err := g.setAside(owner, was); err != nil {
			return err
		}
	}
	// A cluster that was restored may have a namespace again whose content was moved.
	switch err := os.Rename(g.at(owner+"."+now.UID), g.at(owner)); {
	case err == nil:
		return errors.Join(g.mark(owner, now.UID), syncDir(g.at("")))
	case !errors.Is(err, fs.ErrNotExist):
		return err
	case writes:
		return g.mark(owner, now.UID)
	}
	return nil
}

// ownedBy is the UID of the namespace whose the repositories of an owner are, uncreated, or empty
// if there are none. An earlier release wrote down no UID: then what is older than the namespace of
// now is a former one's.
func (g owners) ownedBy(owner string, now RegistryNamespace) (string, error) {
	uid, err := os.ReadFile(g.at(owner, fileNamespace))
	if err == nil && (string(uid) == uncreated || uidGrammar.Match(uid)) {
		return string(uid), nil
	}
	if err == nil {
		return "", fmt.Errorf("%s holds no UID of a namespace", g.at(owner, fileNamespace))
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if _, err := os.Lstat(g.at(owner)); err != nil {
		return "", absentIsNone(err)
	}
	if now.UID == "" {
		return uncreated, nil // nothing is written down before there is a namespace to compare with
	}
	older := false
	err = filepath.WalkDir(g.at(owner), func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return absentIsNone(err)
		}
		info, err := e.Info()
		if err != nil {
			return absentIsNone(err)
		}
		if older = info.ModTime().Before(now.Created); older {
			return fs.SkipAll
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	if older {
		return "before-" + now.UID, nil
	}
	return now.UID, g.mark(owner, now.UID)
}

// mark writes down of which namespace the repositories of an owner are.
func (g owners) mark(owner, uid string) error {
	f, err := os.CreateTemp(filepath.Join(g.dir, "uploads"), "namespace-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if _, err := f.WriteString(uid); err != nil {
		return err
	}
	return publish(f, g.at(owner, fileNamespace))
}

// setAside moves what a former namespace left to a name of its own.
func (g owners) setAside(owner, uid string) error {
	to := owner + "." + uid
	for n := 2; ; n++ {
		if _, err := os.Lstat(g.at(to)); errors.Is(err, fs.ErrNotExist) {
			break
		} else if err != nil {
			return err
		}
		to = fmt.Sprintf("%s.%s-%d", owner, uid, n)
	}
	if err := os.Rename(g.at(owner), g.at(to)); err != nil {
		return err
	}
	g.ledger.forget(owner)
	if g.Aside != nil {
		g.Aside(owner, to)
	}
	return syncDir(g.at(""))
}

// forget has what a namespace has counted again.
func (l *ledger) forget(owner string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.of, owner)
}

// catalog lists the repositories that have a manifest: those of namespaces, and those that former
// ones left.
func (g owners) catalog(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodGet {
		return notAllowed(w, "GET")
	}
	names := []string{}
	err := filepath.WalkDir(g.at(""), func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return absentIsNone(err)
		case !e.IsDir():
			return nil
		case e.Name() == "_manifests":
			repo, err := filepath.Rel(g.at(""), filepath.Dir(path))
			if err != nil {
				return err
			}
			if has, err := g.Pushed(filepath.ToSlash(repo)); err != nil {
				return err
			} else if has {
				names = append(names, filepath.ToSlash(repo))
			}
			return fs.SkipDir
		case strings.HasPrefix(e.Name(), "_"):
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		return err
	}
	slices.Sort(names)
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(map[string][]string{"repositories": names})
}
