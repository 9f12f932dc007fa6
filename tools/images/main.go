// Command images assembles the container images of Terrier without a container
// engine: OCI layouts, archives that a node can import, SBOMs and provenance
// statements. Two builds of one commit have the same digests.
//
// It refuses what is not pinned: each Debian package is compared with debian.lock.
// It is a module of its own, so that none of this is linked into Terrier.
//
// Start reading at recipes, which say what is in each image, and at build.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	const usage = "usage: images build|push|lock [flags]"
	if len(args) == 0 {
		return errors.New(usage)
	}
	flags := flag.NewFlagSet("images "+args[0], flag.ContinueOnError)
	var (
		b        builder
		d        debian
		platform = flags.String("platforms", "linux/amd64,linux/arm64", "platforms of the images, separated by commas")
		registry = flags.String("registry", "", "registry and path that images are pushed to, as registry.example.com/team")
	)
	flags.StringVar(&d.cache, "cache", "../../bin/debian", "directory that keeps Debian packages between builds")
	flags.StringVar(&d.sources, "sources", "", "apt's list of Debian's mirrors; by default that of this machine")
	flags.StringVar(&b.lock, "lock", "debian.lock", "file with the versions and digests of Debian packages")
	flags.StringVar(&b.root, "root", "../..", "directory of the repository")
	flags.StringVar(&b.programs, "programs", "../../bin/images", "directory with the programs, by platform")
	flags.StringVar(&b.out, "out", "../../dist/images", "directory that images are written to")
	flags.StringVar(&b.version, "version", "v0.0.0-dev", "version of the images, and their tag")
	flags.StringVar(&b.by, "builder", home+"/tree/main/tools/images", "URI of the builder, for the provenance statement")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%q is not understood: %s", flags.Arg(0), usage)
	}
	platforms, err := parsePlatforms(*platform)
	if err != nil {
		return err
	}
	b.debian, b.platforms = &d, platforms
	switch args[0] {
	case "build":
		return b.build(ctx)
	case "push":
		return push(ctx, b.out, *registry)
	case "lock":
		return b.refresh(ctx)
	}
	return fmt.Errorf("%q is not a command: %s", args[0], usage)
}

// platform is what an image runs on, in Go's words, which are OCI's and Debian's.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

// dir is the platform as a part of a path.
func (p platform) dir() string { return p.os + "_" + p.arch }

func parsePlatforms(list string) ([]platform, error) {
	var all []platform
	for text := range strings.SplitSeq(list, ",") {
		p := platform{}
		p.os, p.arch, _ = strings.Cut(strings.TrimSpace(text), "/")
		if p.os != "linux" || (p.arch != "amd64" && p.arch != "arm64") {
			return nil, fmt.Errorf("-platforms: %q is none of linux/amd64, linux/arm64", text)
		}
		all = append(all, p)
	}
	return all, nil
}
