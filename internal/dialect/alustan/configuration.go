package alustan

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/Masterminds/semver/v3"
	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/alustan/v1alpha1"
	"github.com/terrier-iac/terrier/internal/backend"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/location"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// configuration reads how obj is run. It reads all that it can, and returns the first
// error.
func configuration(obj *v1alpha1.Terraform) (stack.Configuration, error) {
	c := stack.Configuration{Script: &stack.Script{}, Upgrade: true}
	c.Engine, c.Network = obj.Annotations[dialect.Engine], obj.Annotations[dialect.Network]
	c.SourcePaths = dialect.SelectedPaths(obj)
	var first error
	c.Identity, first = dialect.Identity(obj)
	c.Encrypted = dialect.Encrypted(obj)
	var err error
	if c.Prerequisites, err = dialect.Prerequisites(obj); first == nil {
		first = err
	}
	if c.AfterApply, err = dialect.AfterApply(obj); first == nil {
		first = err
	}
	for _, step := range []func(*stack.Configuration, *v1alpha1.Terraform) error{scripts, sourceOf, variables, postDeployOf, stateOf, imageOf} {
		if err := step(&c, obj); first == nil {
			first = err
		}
	}
	return c, first
}

// scripts reads what the stack is applied and destroyed by. Beside deploy, a text in
// destroy is the name of a file, as in the later lives of the kind.
func scripts(c *stack.Configuration, obj *v1alpha1.Terraform) error {
	s := obj.Spec.Scripts
	files := isSet(s.Deploy)
	apply, field := s.Apply, "spec.scripts.apply"
	if files {
		if isSet(s.Apply) {
			return invalid("spec.scripts.deploy", "is set beside spec.scripts.apply: remove one of them")
		}
		apply, field = s.Deploy, "spec.scripts.deploy"
	}
	var err error
	if c.Script.Destroy, err = scriptOf("spec.scripts.destroy", s.Destroy, files); err != nil {
		return err
	}
	if c.Script.Apply, err = scriptOf(field, apply, files); err != nil {
		return err
	}
	if c.Script.Apply.IsZero() {
		return invalid(field, "has no script: set inline or configMapRef in it, or set spec.scripts.deploy to the name of a file in the repository")
	}
	return nil
}

func isSet(raw *apiextensionsv1.JSON) bool {
	return raw != nil && len(raw.Raw) > 0 && string(raw.Raw) != "null" && string(raw.Raw) != `""`
}

// scriptOf reads one script. A text is the script itself, or the name of its file.
func scriptOf(field string, raw *apiextensionsv1.JSON, file bool) (stack.ScriptText, error) {
	if !isSet(raw) {
		return stack.ScriptText{}, nil
	}
	var text string
	if json.Unmarshal(raw.Raw, &text) == nil {
		if !file {
			return stack.ScriptText{Text: text}, nil
		}
		name, args, err := command(field, text)
		return stack.ScriptText{Path: name, Args: args}, err
	}
	s, err := inObject(field, raw)
	switch ref := s.ConfigMapRef; {
	case err != nil:
		return stack.ScriptText{}, err
	case s.Inline != "":
		return stack.ScriptText{Text: s.Inline}, nil
	case ref == nil:
		return stack.ScriptText{}, nil
	case ref.Name == "" || ref.Key == "":
		return stack.ScriptText{}, invalid(field+".configMapRef", "needs a name and a key")
	default:
		return stack.ScriptText{Config: &stack.KeyRef{Name: ref.Name, Key: ref.Key}}, nil
	}
}

// command reads the name of a file of the source, and arguments for it: deploy -c. No
// shell sees them.
func command(field, text string) (file string, args []string, err error) {
	words := strings.Fields(text)
	if len(words) == 0 || within(words[0]) == "" {
		return "", nil, invalid(field, "is %.80q, which names no file", text)
	}
	if i := strings.IndexAny(text, "'\"`\\$;|&<>()"); i >= 0 {
		return "", nil, invalid(field, "is %.80q, and no shell reads it: a file of the source and its arguments must not contain %q. Put the command into a script", text, text[i])
	}
	if len(words) > 1 {
		args = words[1:]
	}
	return within(words[0]), args, nil
}

// postDeployOf reads the script that runs after the one that applies. Its arguments have
// the form of the former controller: -flag=value.
func postDeployOf(c *stack.Configuration, obj *v1alpha1.Terraform) error {
	const field = "spec.postDeploy"
	p := obj.Spec.PostDeploy
	if p == nil || p.Script == "" {
		return nil
	}
	file, args, err := command(field+".script", p.Script)
	if err != nil {
		return err
	}
	named := map[string]string{}
	if isSet(p.Args) {
		if err := json.Unmarshal(p.Args.Raw, &named); err != nil {
			return invalid(field+".args", "is no map from the name of a flag to the name of a variable: %v", err)
		}
	}
	for _, flag := range slices.Sorted(maps.Keys(named)) {
		if flag == "" || strings.ContainsFunc(flag, func(r rune) bool { return r == '=' || unicode.IsSpace(r) || unicode.IsControl(r) }) {
			return invalid(field+".args", "has %.80q, which is not the name of a flag", flag)
		}
		value, ok := "", false
		for _, v := range c.Env { // the last one counts, as for the script
			if v.Name == named[flag] {
				value, ok = v.Value, true
			}
		}
		if !ok {
			return invalid(field+".args."+flag, "names the variable %.80q, which spec.variables does not have", named[flag])
		}
		args = append(args, "-"+flag+"="+value)
	}
	c.Script.PostDeploy = &stack.PostDeploy{Path: file, Args: args}
	return nil
}

// inObject reads a script that is an object.
func inObject(field string, raw *apiextensionsv1.JSON) (v1alpha1.Script, error) {
	var s v1alpha1.Script
	if err := json.Unmarshal(raw.Raw, &s); err != nil {
		return s, invalid(field, "is neither a text nor an object with inline or configMapRef: %v", err)
	}
	return s, nil
}

// passedOver names the scripts whose configMapRef does not count, since they have an
// inline text as well.
func passedOver(s *v1alpha1.TerraformSpec) []string {
	var all []string
	for field, raw := range map[string]*apiextensionsv1.JSON{"apply": s.Scripts.Apply, "deploy": s.Scripts.Deploy, "destroy": s.Scripts.Destroy} {
		if !isSet(raw) {
			continue
		}
		if both, err := inObject(field, raw); err == nil && both.Inline != "" && both.ConfigMapRef != nil {
			all = append(all, "spec.scripts."+field+".configMapRef")
		}
	}
	slices.Sort(all)
	return all
}

// within reads a path as one below a root that it cannot leave; "" is the root itself.
func within(p string) string { return strings.TrimPrefix(path.Clean("/"+p), "/") }

// variables makes each variable one of the environment, under its own name and under the
// one by which the engine takes it for a variable of the module.
func variables(c *stack.Configuration, obj *v1alpha1.Terraform) error {
	var first error
	for _, name := range slices.Sorted(maps.Keys(obj.Spec.Variables)) {
		value, ok := textOf(obj.Spec.Variables[name])
		if !ok {
			continue
		}
		if err := workdir.CheckEnvironment(name); err != nil && !workdir.IsProxy(name) {
			if r, ok := errors.AsType[workdir.ReservedName](err); ok {
				err = fault.New(fault.Denied, "", inScript(r))
			}
			if first == nil {
				first = fault.New(fault.Of(err), string(stack.SpecInvalid), fmt.Errorf("spec.variables: %w", err))
			}
			continue
		}
		c.Env = append(c.Env, stack.EnvVar{Name: name, Value: value, Literal: true})
		if !strings.HasPrefix(name, engineVariable) {
			c.Env = append(c.Env, stack.EnvVar{Name: engineVariable + name, Value: value, Literal: true})
		}
	}
	return first
}

// inScript is r with the way that a stack of this kind has: it has none of the fields by
// which others configure the engine.
func inScript(r workdir.ReservedName) workdir.ReservedName {
	switch upper := strings.ToUpper(r.Name); {
	case strings.HasPrefix(upper, "TF_CLI_ARGS"):
		r.Way = "give the arguments to terraform in the script"
	case strings.HasPrefix(upper, "TF_HTTP_"):
		r.Way = "name the plug-in that keeps the state in spec.backend.provider"
	case strings.Contains(r.Way, "spec."):
		r.Way = ""
	}
	return r
}

// engineVariable begins the environment variables that are variables of a module.
const engineVariable = "TF_VAR_"

// textOf is a value as a text: a text is itself, and anything else is its JSON. Null is
// none.
func textOf(v apiextensionsv1.JSON) (string, bool) {
	var text string
	switch {
	case len(v.Raw) == 0 || string(v.Raw) == "null":
		return "", false
	case json.Unmarshal(v.Raw, &text) == nil:
		return text, true
	default:
		return string(v.Raw), true
	}
}

// stateOf reads where the state is. Terrier keeps it in a Secret that no stack of another
// kind has by default, unless a plug-in is named.
func stateOf(c *stack.Configuration, obj *v1alpha1.Terraform) error {
	settings := map[string]string{}
	for name, v := range obj.Spec.Backend {
		if text, ok := textOf(v); ok && name != "provider" {
			settings[name] = text
		}
	}
	plugin, _ := textOf(obj.Spec.Backend["provider"])
	if plugin == "" {
		c.Backend = stack.Backend{Kind: stack.Managed, Suffix: ownName(obj.Name), InCluster: true}
		return nil
	}
	var err error
	if c.Backend, err = backend.Of(plugin, settings, obj.Namespace, ownName(obj.Name)); err != nil {
		return invalid("spec.backend:", "%v", err)
	}
	return nil
}

// ownName is the name of what Terrier makes for a stack of this kind.
func ownName(stack string) string { return "alustan-" + stack }

// repository is where the code is, and which directory of it the address names.
func repository(g *v1alpha1.GitRepo) (location.Git, error) {
	const field = "spec.gitRepo.url"
	if g == nil || strings.TrimSpace(g.URL) == "" {
		return location.Git{}, invalid(field, "is missing: it names the git repository with the code. If the code is in an image, set spec.containerRegistry.semanticVersion")
	}
	at, err := location.ParseGit(strings.TrimSpace(g.URL))
	if err != nil {
		return location.Git{}, invalid(field+":", "%v", err)
	}
	return at, nil
}

// sourceOf reads where the code is: in the GitRepository or the OCIRepository that the stack
// owns.
func sourceOf(c *stack.Configuration, obj *v1alpha1.Terraform) error {
	if fromImage(obj) {
		if _, err := codeImage(obj); err != nil {
			return err
		}
		c.Source = &stack.Ref{Kind: sourcev1.OCIRepositoryKind, Name: ownName(obj.Name)}
		return nil
	}
	g := obj.Spec.GitRepo
	at, err := repository(g)
	if err != nil {
		return err
	}
	c.Path = path.Join(at.Directory, within(g.Path))
	if g.SSHKey != "" {
		return invalid("spec.gitRepo.sshKey", "holds a private key, which every reader of the object can see: put it into a Secret, and name that in spec.gitRepo.sshKeySecret")
	}
	if ref := g.SSHKeySecret; ref != nil && ref.Name == "" {
		return invalid("spec.gitRepo.sshKeySecret.name", "is empty")
	}
	c.Source = &stack.Ref{Kind: sourcev1.GitRepositoryKind, Name: ownName(obj.Name)}
	return nil
}

// fromImage reports whether a user has made an image that holds the code.
func fromImage(obj *v1alpha1.Terraform) bool {
	r := obj.Spec.ContainerRegistry
	return r != nil && r.SemanticVersion != ""
}

// codeImage is the repository of the images that hold the code.
func codeImage(obj *v1alpha1.Terraform) (string, error) {
	const field = "spec.containerRegistry.semanticVersion"
	r := obj.Spec.ContainerRegistry
	if obj.Spec.GitRepo != nil {
		return "", invalid(field, "selects an image that holds the code, and spec.gitRepo says that the code is in git: remove one of the two")
	}
	if _, err := semver.NewConstraint(r.SemanticVersion); err != nil {
		return "", invalid(field, "is %.80q, which is no constraint of versions such as ~1.0.0: %v", r.SemanticVersion, err)
	}
	name, _, err := imageName(r)
	return name, err
}

// registries are those that spec.containerRegistry.provider names.
var registries = map[string]string{"": "docker.io", "docker": "docker.io", "ghcr": "ghcr.io"}

// imageName reads the name of an image, and the Secret with the credentials for it.
func imageName(r *v1alpha1.ContainerRegistry) (string, *v1alpha1.KeyReference, error) {
	const field = "spec.containerRegistry"
	registry, known := registries[r.Provider]
	if !known {
		return "", nil, invalid(field+".provider", "is %.40q; it may be docker or ghcr. The name of another registry belongs in imageName", r.Provider)
	}
	name, _, err := location.ParseImageAt(registry, r.ImageName)
	if err != nil {
		return "", nil, invalid(field+".imageName:", "%v", err)
	}
	if ref := r.SecretRef; ref != nil && ref.Name == "" {
		return "", nil, invalid(field+".secretRef.name", "is empty")
	}
	return name, r.SecretRef, nil
}

// imageOf reads the image that is to be made of the code.
func imageOf(c *stack.Configuration, obj *v1alpha1.Terraform) error {
	r := obj.Spec.ContainerRegistry
	if r == nil || r.ImageName == "" || fromImage(obj) {
		return nil
	}
	name, ref, err := imageName(r)
	if err != nil {
		return err
	}
	c.Image = &stack.Image{Name: name}
	if ref != nil {
		c.Image.Login = &stack.KeyRef{Name: ref.Name, Key: ref.Key}
	}
	return nil
}

// ownedBy is what the sources that obj owns have in common. They go with it.
func ownedBy(obj *v1alpha1.Terraform) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: ownName(obj.Name), Namespace: obj.Namespace,
		Labels:          map[string]string{"app.kubernetes.io/managed-by": "terrier"},
		Annotations:     map[string]string{},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(obj, v1alpha1.GroupVersion.WithKind(v1alpha1.Kind))},
	}
}

// sourceFor is the source of a valid stack, whose drift is checked this often.
func sourceFor(obj *v1alpha1.Terraform, every time.Duration) client.Object {
	if fromImage(obj) {
		return ociRepository(obj, every)
	}
	if g := gitRepository(obj); g != nil {
		return g
	}
	return nil
}

// ociRepository is the source of a stack whose code is in an image. Registries limit how
// often they are asked, so it is asked as often as drift is checked, as upstream does it.
func ociRepository(obj *v1alpha1.Terraform, every time.Duration) client.Object {
	name, err := codeImage(obj)
	if err != nil {
		return nil
	}
	if every >= dialect.Never {
		every = DefaultInterval
	}
	ignore := "/.git/" // and nothing that is left out of a git repository by default: the build chose the files
	out := &sourcev1.OCIRepository{
		TypeMeta:   metav1.TypeMeta{APIVersion: sourcev1.GroupVersion.String(), Kind: sourcev1.OCIRepositoryKind},
		ObjectMeta: ownedBy(obj),
		Spec: sourcev1.OCIRepositorySpec{
			URL: sourcev1.OCIRepositoryPrefix + name, Interval: metav1.Duration{Duration: max(every, time.Minute)}, Timeout: &metav1.Duration{Duration: 10 * time.Minute},
			Reference:     &sourcev1.OCIRepositoryRef{SemVer: obj.Spec.ContainerRegistry.SemanticVersion},
			LayerSelector: &sourcev1.OCILayerSelector{MediaType: location.CodeOfImage, Operation: sourcev1.OCILayerExtract},
			Ignore:        &ignore,
		},
	}
	if ref := obj.Spec.ContainerRegistry.SecretRef; ref != nil {
		out.Spec.SecretRef = &fluxmeta.LocalObjectReference{Name: ref.Name}
		if ref.Key != "" {
			out.Annotations[location.DockerConfigAnnotation] = ref.Key
		}
	}
	return out
}

// gitRepository is the source of a valid stack. It goes with its owner.
func gitRepository(obj *v1alpha1.Terraform) *sourcev1.GitRepository {
	g := obj.Spec.GitRepo
	from, err := repository(g)
	if err != nil {
		return nil
	}
	out := &sourcev1.GitRepository{
		TypeMeta:   metav1.TypeMeta{APIVersion: sourcev1.GroupVersion.String(), Kind: sourcev1.GitRepositoryKind},
		ObjectMeta: ownedBy(obj),
		Spec:       sourcev1.GitRepositorySpec{URL: from.Repository, Interval: metav1.Duration{Duration: time.Minute}},
	}
	if from.Search {
		out.Annotations[location.SearchAnnotation] = "true"
	}
	if g.Branch != "" {
		out.Spec.Reference = &sourcev1.GitRepositoryRef{Branch: g.Branch}
	}
	if ref := g.SSHKeySecret; ref != nil {
		out.Spec.SecretRef = &fluxmeta.LocalObjectReference{Name: ref.Name}
		if ref.Key != "" {
			out.Annotations[location.SSHKeyAnnotation] = ref.Key
		}
	}
	return out
}

// withoutEffect is a field that is accepted and has no effect.
type withoutEffect struct {
	path, why string // path as in docs/alustan.md
	set       func(*v1alpha1.TerraformSpec) bool
}

// fieldsWithoutEffect lists what has no effect in Terrier.
func fieldsWithoutEffect() []withoutEffect {
	type spec = v1alpha1.TerraformSpec
	return []withoutEffect{
		{"spec.environment", "Terrier writes no label of Argo CD", func(s *spec) bool { return s.Environment != "" }},
		{"spec.provider", "spec.postDeploy takes its place", func(s *spec) bool { return s.Provider != "" }},
	}
}

// ignored returns the paths of the fields that s sets and that have no effect, and those of
// the settings of a backend that has no provider.
func ignored(s *v1alpha1.TerraformSpec) []string {
	var paths []string
	for _, f := range fieldsWithoutEffect() {
		if f.set(s) {
			paths = append(paths, f.path+" ("+f.why+")")
		}
	}
	if plugin, _ := textOf(s.Backend["provider"]); plugin == "" {
		for _, name := range slices.Sorted(maps.Keys(s.Backend)) {
			if name != "provider" {
				paths = append(paths, "spec.backend."+name+" (needs spec.backend.provider)")
			}
		}
	}
	return paths
}
