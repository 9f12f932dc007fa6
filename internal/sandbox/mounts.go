package sandbox

import (
	"fmt"
	"path"
	"strconv"

	"golang.org/x/sys/unix"
)

// build makes the tree and enters it. It is called in mount and process id
// namespaces of our own, with their capabilities.
//
//	open every mount in the host's tree      host paths mean what they mean on the host
//	mount an empty tmpfs, /proc on it        a new /proc is allowed only beside the old one
//	pivot into it, drop the host's tree
//	make directories, links, texts, mounts   no path can lead out any more
func (t *tree) build() error {
	fds, links, err := t.open()
	if err != nil {
		return err
	}
	if err := enterEmpty(t.Stage, t.Bytes); err != nil {
		return err
	}
	for _, d := range t.Scratch {
		if err := makeDir(d, 0o1777); err != nil {
			return err
		}
	}
	for _, l := range append(links, t.Links...) {
		if err := makeParents(l[1]); err != nil {
			return err
		}
		if err := unix.Symlink(l[0], l[1]); err != nil {
			return fmt.Errorf("linking %s: %w", l[1], err)
		}
	}
	for _, f := range t.Texts {
		if err := writeText(f); err != nil {
			return fmt.Errorf("writing %s: %w", f.Path, err)
		}
	}
	for i, fd := range fds {
		if fd < 0 {
			continue
		}
		if err := attach(fd, t.Mounts[i].Inside); err != nil {
			return fmt.Errorf("showing %s at %s: %w", t.Mounts[i].Host, t.Mounts[i].Inside, err)
		}
	}
	return nil
}

// open detaches a copy of every mount, with its attributes. An optional one
// that is a symbolic link on the host comes back as a link.
func (t *tree) open() (fds []int, links [][2]string, err error) {
	fds = make([]int, len(t.Mounts))
	for i, g := range t.Mounts {
		fds[i] = -1
		if g.Optional && path.Dir(g.Host) == "/" {
			if target, ok := linkAt(g.Host); ok {
				links = append(links, [2]string{target, g.Inside})
				continue
			}
		}
		// Recursive, for a namespace with fewer rights may not show what a mount
		// of one with more rights covers.
		fd, err := unix.OpenTree(unix.AT_FDCWD, g.Host, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
		if g.Optional && err == unix.ENOENT {
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("opening %s: %w", g.Host, err)
		}
		attr := unix.MountAttr{Attr_set: g.attributes()}
		if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
			return nil, nil, fmt.Errorf("restricting %s: %w", g.Host, err)
		}
		fds[i] = fd
	}
	return fds, links, nil
}

func (g mount) attributes() uint64 {
	switch {
	case g.Device:
		return unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC
	case g.ReadOnly:
		return unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_RDONLY
	default:
		return unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	}
}

func linkAt(p string) (string, bool) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlink(p, buf)
	if err != nil {
		return "", false
	}
	return string(buf[:n]), true
}

// enterEmpty makes an empty file system with a /proc the root, and unmounts the
// host's.
func enterEmpty(stage string, bytes int64) error {
	const flags = unix.MS_NOSUID | unix.MS_NODEV
	steps := []struct {
		doing string
		do    func() error
	}{
		{"keeping mounts to ourselves", func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") }},
		{"mounting the root", func() error {
			return unix.Mount("sandbox", stage, "tmpfs", flags, "mode=0755,nr_inodes=262144,size="+strconv.FormatInt(bytes, 10))
		}},
		{"entering the root", func() error { return unix.Chdir(stage) }},
		{"making /proc", func() error { return unix.Mkdir("proc", 0o555) }},
		// Read-only, as a whole: nothing in it is for a program to write but
		// switches of the kernel's.
		{"mounting /proc", func() error {
			return unix.Mount("proc", "proc", "proc", flags|unix.MS_NOEXEC|unix.MS_RDONLY, "")
		}},
		{"changing the root", func() error { return unix.PivotRoot(".", ".") }},
		{"dropping the host's tree", func() error { return unix.Unmount(".", unix.MNT_DETACH) }},
		{"entering the root", func() error { return unix.Chdir("/") }},
	}
	for _, s := range steps {
		if err := s.do(); err != nil {
			return fmt.Errorf("%s: %w", s.doing, err)
		}
	}
	return nil
}

// attach shows a detached tree at a path, making the place for it.
func attach(fd int, inside string) error {
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	make := makeFile
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		make = func(p string) error { return makeDir(p, 0o755) }
	}
	if err := make(inside); err != nil {
		return err
	}
	return unix.MoveMount(fd, "", unix.AT_FDCWD, inside, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// makeDir makes a directory and its parents. One that exists is left alone.
func makeDir(p string, mode uint32) error {
	err := unix.Mkdir(p, mode)
	if err == unix.ENOENT {
		if err := makeParents(p); err != nil {
			return err
		}
		err = unix.Mkdir(p, mode)
	}
	if err != nil && err != unix.EEXIST {
		return fmt.Errorf("making %s: %w", p, err)
	}
	return nil
}

func makeParents(p string) error {
	if parent := path.Dir(p); parent != "/" {
		return makeDir(parent, 0o755)
	}
	return nil
}

// makeFile makes an empty file. One that exists is left alone.
func makeFile(p string) error {
	if err := makeParents(p); err != nil {
		return err
	}
	if err := unix.Mknod(p, unix.S_IFREG|0o644, 0); err != nil && err != unix.EEXIST {
		return fmt.Errorf("making %s: %w", p, err)
	}
	return nil
}

func writeText(f text) error {
	if err := makeParents(f.Path); err != nil {
		return err
	}
	fd, err := unix.Open(f.Path, unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return fmt.Errorf("making %s: %w", f.Path, err)
	}
	defer func() { _ = unix.Close(fd) }()
	for content := f.Content; len(content) > 0; {
		n, err := unix.Write(fd, content)
		if err != nil {
			return err
		}
		content = content[n:]
	}
	return nil
}
