// Command gen writes everything in the repository that follows from the wire
// types: their deepcopy methods, and the CRDs under config/crd.
//
// It is controller-gen's libraries and not its command, for three reasons: the
// CRDs of the Flux sources come out of another module and must not be written
// back into it; a deprecated version of a source must accept everything that
// either version accepts; and the descriptions of Kubernetes' own types are
// left out, so that a CRD stays small enough for a client-side kubectl apply.
//
// It is a module of its own, so that none of this is linked into Terrier, and
// refuses to guess: any error of a type or a marker fails the run.
//
// Start reading at main.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"

	"golang.org/x/tools/go/packages"
	"sigs.k8s.io/controller-tools/pkg/crd"
	"sigs.k8s.io/controller-tools/pkg/deepcopy"
	"sigs.k8s.io/controller-tools/pkg/genall"
)

const module = "github.com/terrier-iac/terrier"

func main() {
	root := flag.String("root", "../..", "directory of the repository")
	flag.Parse()
	if err := generate(*root); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func generate(root string) error {
	var methods genall.Generator = deepcopy.Generator{}
	if err := run(methods, root, module+"/api/..."); err != nil {
		return fmt.Errorf("generating deepcopy methods: %w", err)
	}
	var crds genall.Generator = definitions{dir: root + "/config/crd", Generator: crd.Generator{}}
	if err := run(crds, root, module+"/api/...", fluxAPI+"/v1", fluxAPI+"/v1beta2", noticesAPI+"/v1beta3"); err != nil {
		return fmt.Errorf("generating CRDs: %w", err)
	}
	return nil
}

// run runs one generator over the packages as the repository's module sees
// them; code is written beside its package.
func run(g genall.Generator, root string, paths ...string) error {
	rt, err := genall.Generators{&g}.ForRootsWithConfig(&packages.Config{Dir: root}, paths...)
	if err != nil {
		return err
	}
	rt.OutputRules = genall.OutputRules{Default: genall.OutputArtifacts{}}
	if rt.Run() {
		return errors.New("there were errors, see above")
	}
	return nil
}
