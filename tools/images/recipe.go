package main

// home is where the source code is, for people and for provenance statements.
const home = "https://github.com/terrier-iac/terrier"

// user is the numeric user and group of both images. A number lets Kubernetes see
// that it is not root.
const user = 65532

// recipe says what is in an image.
type recipe struct {
	name, title, about string
	licences           string // of the programs and of the packages, as an SPDX expression
	packages           []string
	keep               []string  // patterns of files of the packages; what these need is added
	programs           []program // each is a layer; the one that changes most often is last
	ports              []string
}

// program is a program that this repository builds.
type program struct {
	name string
	ours bool // under the licence of this repository
}

// foundation is the first layer of all images: trust, names, and what a scanner needs to
// recognise Debian.
var foundation = recipe{
	name:     "foundation",
	packages: []string{"base-files", "ca-certificates"},
	keep: []string{
		"etc/debian_version", "etc/os-release", "usr/lib/os-release",
		"usr/share/common-licenses/*",
		"usr/share/ca-certificates/mozilla/*.crt", // become one bundle, see bundleAuthorities
	},
}

// tools are the programs that a script of a stack may expect beside its shell, most of those
// of POSIX. A script that needs more has an image of its own.
var tools = []string{
	"usr/bin/mawk", "usr/bin/find", "usr/bin/grep", "usr/bin/sed", "usr/bin/xargs",
	"usr/bin/[[]", "usr/bin/base64", "usr/bin/basename", "usr/bin/cat", "usr/bin/chmod", "usr/bin/cksum", "usr/bin/comm", "usr/bin/cp",
	"usr/bin/cut", "usr/bin/date", "usr/bin/df", "usr/bin/dirname", "usr/bin/du", "usr/bin/echo", "usr/bin/env", "usr/bin/expr",
	"usr/bin/false", "usr/bin/head", "usr/bin/id", "usr/bin/join", "usr/bin/ln", "usr/bin/ls", "usr/bin/mkdir", "usr/bin/mkfifo",
	"usr/bin/mktemp", "usr/bin/mv", "usr/bin/nl", "usr/bin/nproc", "usr/bin/od", "usr/bin/paste", "usr/bin/printenv", "usr/bin/printf",
	"usr/bin/pwd", "usr/bin/readlink", "usr/bin/realpath", "usr/bin/rm", "usr/bin/rmdir", "usr/bin/seq", "usr/bin/sha256sum",
	"usr/bin/sleep", "usr/bin/sort", "usr/bin/split", "usr/bin/stat", "usr/bin/tail", "usr/bin/tee", "usr/bin/test", "usr/bin/timeout",
	"usr/bin/touch", "usr/bin/tr", "usr/bin/true", "usr/bin/uname", "usr/bin/uniq", "usr/bin/wc", "usr/bin/whoami",
}

// recipes are the images.
var recipes = []recipe{
	{
		name: "terrier", title: "Terrier",
		about:    "Controller and command line of Terrier, for a cluster that has an API server",
		licences: "Apache-2.0 AND MPL-2.0",
		programs: []program{{"terrier", true}},
		ports:    []string{"8443/tcp", "9090/tcp"},
	},
	{
		name: "terrier-runner", title: "Terrier runner",
		about:    "Supervisor of one run, with the engine OpenTofu, git and a shell for scripts",
		licences: "Apache-2.0 AND MPL-2.0 AND GPL-2.0-only AND GPL-3.0-or-later AND LGPL-2.1-or-later AND BSD-3-Clause",
		packages: []string{"git", "openssh-client", "dash", "bash", "sed", "grep", "mawk", "findutils", "coreutils", "libc6"},
		keep: append([]string{
			// The engine downloads modules with git, over https and ssh.
			"usr/bin/git", "usr/bin/git-upload-pack", "usr/lib/git-core/git", "usr/lib/git-core/git-remote-http",
			"usr/lib/git-core/git-remote-https", "usr/bin/ssh",
			// The engine updates submodules of every module. This command of git is a
			// script, which includes two others, and calls the rest.
			"usr/lib/git-core/git-submodule", "usr/lib/git-core/git-sh-setup", "usr/lib/git-core/git-sh-i18n",
			"usr/lib/git-core/git-sh-i18n--envsubst",
			"usr/bin/sh", "usr/bin/bash",
			// The C library loads it when a thread ends early.
			"usr/lib/*/libgcc_s.so.1",
		}, tools...),
		programs: []program{{"tofu", false}, {"terrier-runner", true}, {"terrier-backend", true}},
	},
}
