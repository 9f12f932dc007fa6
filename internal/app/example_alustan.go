package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/examples/alustan"
	"github.com/terrier-iac/terrier/internal/app/forge"
	"github.com/terrier-iac/terrier/internal/kube"
)

// The namespaces of the stacks of scripts, which have one name.
const (
	inlineNamespace    = "alustan-inline"
	configMapNamespace = "alustan-configmap"
	scriptedStack      = "example-terraformconfig"
)

// scriptedRepository is the git repository of both.
const scriptedRepository = "example/terraform-repo"

// openForge starts the git server and the registry of the example with scripts; it returns
// nil if the user does not ask for it. Their files are in the directory example of the data
// directory, and their ports are those of the last start.
func openForge(p *parts) (*forge.Forge, error) {
	if p.Cluster != nil || !slices.Contains(p.Config.examples(), exampleAlustan) {
		return nil, nil
	}
	dir := p.dir("example")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("starting the git server of the example: %w", err)
	}
	f, err := forge.Open(forge.Options{
		Dir: dir, Certificate: p.http.cert.Get, Authority: p.http.ca, Now: p.Now, Log: p.log,
		Listen: func(name string) (net.Listener, error) {
			return listen("127.0.0.1:0", filepath.Join(dir, name+"-port"), false)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("starting the git server of the example: %w", err)
	}
	module, err := fs.Sub(alustan.Files, "local/repository")
	if err == nil {
		err = f.Seed(scriptedRepository, module)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making the repository of the example: %w", err), f.Close())
	}
	return f, nil
}

// applyScripted applies the manifests of the documents of Alustan
// with the addresses of the servers.
func (q example) applyScripted(ctx context.Context, r Ready, c client.Client) error {
	q.say("applying two stacks of scripts, from a git server and with a registry on this machine")
	fill := strings.NewReplacer("HTTPS", r.Example.HTTPS, "SSH", r.Example.SSH)
	for _, ns := range []string{inlineNamespace, configMapNamespace} {
		if err := createNamespace(ctx, c, ns); err != nil {
			return fmt.Errorf("applying the stacks of scripts: %w", err)
		}
		if err := q.applyLogins(ctx, c, r.Example, ns); err != nil {
			return fmt.Errorf("applying the stacks of scripts: %w", err)
		}
	}
	if err := create(ctx, c, alustan.Files, fill, "local/inline.yaml", "local/configmap.yaml"); err != nil {
		return fmt.Errorf("applying the stacks of scripts: %w", err)
	}
	return nil
}

// applyLogins applies the Secrets that the manifests name. They are of the servers as they
// are now.
func (q example) applyLogins(ctx context.Context, c client.Client, at *forge.Info, namespace string) error {
	for secret, keys := range map[string]map[string]string{
		"my-ssh-secret":       {"ssh-privatekey": forge.IdentityFile, "known_hosts": forge.KnownHostsFile},
		"my-dockerhub-secret": {"dockerhub-cred": forge.DockerFile},
	} {
		s := &corev1.Secret{TypeMeta: typeMeta("v1", "Secret"), Data: map[string][]byte{}}
		s.Namespace, s.Name = namespace, secret
		for key, file := range keys {
			b, err := os.ReadFile(filepath.Join(at.Dir, file))
			if err != nil {
				return err
			}
			s.Data[key] = b
		}
		u, err := toUnstructured(s)
		if err != nil {
			return err
		}
		if err := kube.Apply(ctx, c, u); err != nil {
			return err
		}
	}
	return nil
}

// scriptedStacks are the stacks of scripts.
func scriptedStacks() []*exampleStack {
	kind := schema.GroupVersionKind{Group: "alustan.io", Version: "v1alpha1", Kind: "Terraform"}
	var all []*exampleStack
	for _, ns := range []string{inlineNamespace, configMapNamespace} {
		all = append(all, &exampleStack{kind: kind, namespace: ns, name: scriptedStack, shown: ns, command: "terraform." + kind.Group + "/" + scriptedStack})
	}
	return all
}

// tellScripted is what to try with the stacks of scripts.
func (q example) tellScripted(r Ready) string {
	at := func(name string) string { return filepath.Join(r.Example.Dir, name) }
	return fmt.Sprintf(`
Two stacks of scripts were applied as the documents of Alustan have them, with the
addresses of this machine:

  git and the registry  https://%[1]s
  git over ssh          ssh://git@%[2]s/%[3]s
  keys and passwords    %[4]s

Look at them in another terminal:

  export KUBECONFIG=%[5]s
  %[6]s get terraforms.alustan.io -A
  %[7]s logs %[8]s -n %[9]s
  curl --silent --cacert %[10]s --user "$(cat %[11]s)" https://%[1]s/v2/alustan/terrform/tags/list

Change the module and push it. The stacks follow within a minute:
  export GIT_SSH_COMMAND="ssh -i %[12]s -o IdentitiesOnly=yes -o UserKnownHostsFile=%[13]s"
  test -d %[14]s || git clone ssh://git@%[2]s/%[3]s %[14]s
  git -C %[14]s pull --quiet
  sed -i 's/ and / with /;t;s/ with / and /' %[14]s/terraform/main.tf
  git -C %[14]s -c user.name=me -c user.email=me@example.com commit --all --message change
  git -C %[14]s push

Delete a stack, which runs its destroy script. The next start creates it again:
  %[6]s -n %[9]s delete terraforms.alustan.io %[15]s --ignore-not-found
`, r.Example.HTTPS, r.Example.SSH, scriptedRepository, r.Example.Dir, r.Kubeconfig, kubectl(q.program), q.program, scriptedStacks()[0].command, inlineNamespace,
		at(forge.AuthorityFile), at(forge.LoginFile), at(forge.IdentityFile), at(forge.KnownHostsFile), filepath.Join(r.DataDir, "terraform-repo"), scriptedStack)
}
