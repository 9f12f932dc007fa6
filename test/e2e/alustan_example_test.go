package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/terrier-iac/terrier/internal/testkit"
)

// The manifests of Alustan's documents become Success, against a git server and a registry
// of the same machine: the code comes over ssh and https, and runs from the image that was
// pushed. The commands that are printed, and those of the README, work as often as they are
// pasted. Another start goes on where the first one ended, and a deletion runs the destroy script.
func TestAlustanExample(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p, err := testkit.NewPlatform(testkit.PlatformOptions{Dir: filepath.Join(dir, "platform"), Flags: []string{"--example", "alustan"}, Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the platform said:\n%s", p.Log())
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	inlined := scripted{p.In(t, "alustan-inline"), "example-terraformconfig"}
	configured := scripted{p.In(t, "alustan-configmap"), "example-terraformconfig"}
	for _, s := range []scripted{inlined, configured} {
		s.await(t, "Success", "", "")
		if ignored := s.condition(t, "FieldsIgnored"); ignored != "" {
			t.Errorf("%s: FieldsIgnored says %q, want every field of the documents to work", s.Namespace, ignored)
		}
	}
	if state := string(inlined.State(t, "alustan-example-terraformconfig")); !strings.Contains(state, "value1 and value2") {
		t.Errorf("the state is %s, want the resource of the module with both variables", state)
	}

	tour := map[string]string{} // by the word that says which command it is
	testkit.Eventually(t, testkit.Patience, "the next steps are printed", func(context.Context) error {
		for _, line := range scriptedTour(p) {
			for _, word := range []string{" get ", " logs ", "curl ", "export GIT_SSH", "git clone ", " pull ", "sed ", " commit ", " push", " delete "} {
				if strings.Contains(line, word) && tour[word] == "" {
					tour[word] = line
				}
			}
		}
		if len(tour) < 10 {
			return fmt.Errorf("printed are %q", tour)
		}
		return nil
	})
	if out := inlined.Shell(t, tour[" get "]); strings.Count(out, "Success") != 2 {
		t.Errorf("%s shows\n%s", tour[" get "], out)
	}
	if out := inlined.Shell(t, tour[" logs "]); !strings.Contains(out, "Apply complete! Resources: 1 added") {
		t.Errorf("%s shows\n%s\nwant the log of the script", tour[" logs "], out)
	}
	images := func() int {
		return len(regexp.MustCompile(`"terrier-[0-9a-f]{32}"`).FindAllString(inlined.Shell(t, tour["curl "]), -1))
	}
	if n := images(); n != 2 {
		t.Errorf("the registry has %d images, want one for each namespace", n)
	}

	change := strings.Join([]string{"set -e", tour["export GIT_SSH"], tour["git clone "], tour[" pull "], tour["sed "], tour[" commit "], tour[" push"]}, "\n")
	pushed := func(between string) {
		t.Helper()
		inlined.Shell(t, change)
		head := strings.TrimSpace(inlined.Shell(t, "git -C "+filepath.Join(p.Dir, "terraform-repo")+" rev-parse HEAD"))
		inlined.lookNow(t)
		inlined.await(t, "Success", head, head)
		if state := string(inlined.State(t, "alustan-example-terraformconfig")); !strings.Contains(state, "value1 "+between+" value2") {
			t.Errorf("after a push the state is %s, want %q between the values", state, between)
		}
	}
	pushed("with")
	pushed("and")

	_, commands, _ := strings.Cut(read(t, filepath.Join(testkit.Repository(t), "examples", "alustan", "README.md")), "export KUBECONFIG=$PWD/.terrier/kubeconfig\n")
	commands, _, found := strings.Cut(commands, "```\n")
	if !found || strings.Count(commands, "create secret") != 2 {
		t.Fatalf("the commands of the README are %q, want one for each Secret", commands)
	}
	for _, name := range []string{"my-ssh-secret", "my-dockerhub-secret"} {
		before := inlined.Secret(t, name)
		inlined.Shell(t, "set -e\n"+strings.ReplaceAll(commands, ".terrier/", p.Dir+"/"))
		if after := inlined.Secret(t, name); !maps.Equal(after, before) {
			t.Errorf("the commands of the README make %s hold the keys %v, want %v as before, with the same values", name, slices.Sorted(maps.Keys(after)), slices.Sorted(maps.Keys(before)))
		}
	}

	before := images()
	if _, err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	pushed("with")
	if n := images(); n <= before {
		t.Errorf("the registry has %d images, want the %d of before the start and another one", n, before)
	}

	inlined.Shell(t, tour[" delete "])
	inlined.Shell(t, tour[" delete "])
	if _, err := inlined.object(t.Context(), "Terraform", "alustan.io/v1alpha1", inlined.name); !apierrors.IsNotFound(err) {
		t.Errorf("after the deletion the object is there: %v", err)
	}
	if state := string(inlined.State(t, "alustan-example-terraformconfig")); strings.Contains(state, "value1") {
		t.Errorf("after the deletion the state is %s, want the destroy script to have emptied it", state)
	}
}

// scriptedTour lists the commands that the example prints.
func scriptedTour(p *testkit.Platform) []string {
	_, printed, _ := strings.Cut(p.Log(), "Look at them in another terminal:")
	printed, _, ended := strings.Cut(printed, "To stop Terrier")
	var commands []string
	for line := range strings.Lines(printed) {
		if command, ok := strings.CutPrefix(line, "  "); ok && ended {
			commands = append(commands, strings.TrimSpace(command))
		}
	}
	return commands
}

// condition returns the message of a condition, empty without it.
func (s scripted) condition(t *testing.T, kind string) string {
	t.Helper()
	return s.Kubectl(t, "get", "terraforms.alustan.io", s.name, "-o", `jsonpath={.status.conditions[?(@.type=="`+kind+`")].message}`)
}

// The README of the example shows all lines in which its manifests differ from those of
// the documents.
func TestAlustanExampleSaysHowItDiffers(t *testing.T) {
	dir := filepath.Join(testkit.Repository(t), "examples", "alustan")
	readme := read(t, filepath.Join(dir, "README.md"))
	for _, name := range []string{"inline.yaml", "configmap.yaml"} {
		c := exec.CommandContext(t.Context(), "diff", name, filepath.Join("local", name))
		c.Dir, c.Env = dir, append(os.Environ(), "LC_ALL=C")
		out, err := c.Output()
		if ended, ok := errors.AsType[*exec.ExitError](err); !ok || ended.ExitCode() != 1 {
			t.Fatalf("diff: %v", err)
		}
		if want := "$ diff " + name + " local/" + name + "\n" + string(out) + "```"; !strings.Contains(readme, want) {
			t.Errorf("the README lacks\n%s", want)
		}
	}
}
