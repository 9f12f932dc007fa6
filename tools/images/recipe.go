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
		about:    "Supervisor of one run, with the engine OpenTofu and git",
		licences: "Apache-2.0 AND MPL-2.0 AND GPL-2.0-only AND LGPL-2.1-or-later AND BSD-3-Clause",
		packages: []string{"git", "openssh-client", "dash", "sed", "coreutils", "libc6"},
		keep: []string{
			// The engine downloads modules with git, over https and ssh.
			"usr/bin/git", "usr/bin/git-upload-pack", "usr/lib/git-core/git", "usr/lib/git-core/git-remote-http",
			"usr/lib/git-core/git-remote-https", "usr/bin/ssh",
			// The engine updates submodules of every module. This command of git is a
			// script, which includes two others, and calls the rest.
			"usr/lib/git-core/git-submodule", "usr/lib/git-core/git-sh-setup", "usr/lib/git-core/git-sh-i18n",
			"usr/lib/git-core/git-sh-i18n--envsubst",
			"usr/bin/sh", "usr/bin/sed", "usr/bin/basename", "usr/bin/uname",
			// The C library loads it when a thread ends early.
			"usr/lib/*/libgcc_s.so.1",
		},
		programs: []program{{"tofu", false}, {"terrier-runner", true}, {"terrier-backend", true}},
	},
}
