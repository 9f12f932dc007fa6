package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/package-url/packageurl-go"
)

// sbom lists what is in the image of one platform: programs, the Go modules that each is
// built of, and Debian packages.
func (b *builder) sbom(r recipe, image built) ([]byte, error) {
	digest, err := image.image.Digest()
	if err != nil {
		return nil, err
	}
	bom := cyclonedx.NewBOM()
	root := cyclonedx.Component{
		BOMRef: r.name, Type: cyclonedx.ComponentTypeContainer, Name: r.name, Version: b.version, Description: r.about,
		PackageURL: purl(packageurl.TypeOCI, "", r.name, digest.String(), "arch", image.platform.arch),
		Licenses:   &cyclonedx.Licenses{{Expression: r.licences}},
	}
	bom.Metadata = &cyclonedx.Metadata{Timestamp: b.created.Format(time.RFC3339), Component: &root}
	all := inventory{seen: map[string]bool{}}
	var direct []string
	for _, program := range image.programs {
		ref, err := all.program(program, b.version)
		if err != nil {
			return nil, fmt.Errorf("listing the modules of %s: %w", program, err)
		}
		direct = append(direct, ref)
	}
	for _, p := range image.packages {
		direct = append(direct, all.add(cyclonedx.Component{
			Type: cyclonedx.ComponentTypeLibrary, Name: p.name, Version: p.version, PackageURL: p.purl(),
			Hashes: &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: p.sha256}},
		}))
	}
	all.dependencies = append(all.dependencies, cyclonedx.Dependency{Ref: r.name, Dependencies: &direct})
	bom.Components, bom.Dependencies = &all.components, &all.dependencies
	var out bytes.Buffer
	if err := cyclonedx.NewBOMEncoder(&out, cyclonedx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cyclonedx.SpecVersion1_6); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// inventory collects components, each of them once.
type inventory struct {
	components   []cyclonedx.Component
	dependencies []cyclonedx.Dependency
	seen         map[string]bool
}

func (l *inventory) add(c cyclonedx.Component) (ref string) {
	if c.BOMRef == "" {
		c.BOMRef = c.PackageURL
	}
	if !l.seen[c.BOMRef] {
		l.seen[c.BOMRef] = true
		l.components = append(l.components, c)
	}
	return c.BOMRef
}

// program adds a program with its modules, as the linker wrote them into it.
func (l *inventory) program(file, version string) (ref string, err error) {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return "", err
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	sum, used := sha256.Sum256(data), modules(info, version)
	ref = l.add(cyclonedx.Component{
		BOMRef: "program:" + filepath.Base(file), Type: cyclonedx.ComponentTypeApplication, Name: filepath.Base(file), Version: used[0].Version,
		Hashes: &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}},
	})
	needs := []string{l.add(cyclonedx.Component{
		Type: cyclonedx.ComponentTypeLibrary, Name: "std", Version: toolchain(info), PackageURL: purl(packageurl.TypeGolang, "", "std", toolchain(info)),
	})}
	for _, m := range used {
		c := cyclonedx.Component{Type: cyclonedx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: modulePurl(m)}
		if digest := moduleDigest(m); digest != "" {
			c.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: digest}}
		}
		needs = append(needs, l.add(c))
	}
	l.dependencies = append(l.dependencies, cyclonedx.Dependency{Ref: ref, Dependencies: &needs})
	return ref, nil
}

// modules are those that were compiled, that of the program first: replacements in place of what they replace. The
// repository's own modules have the version of the image.
func modules(info *debug.BuildInfo, version string) []debug.Module {
	var all []debug.Module
	for _, m := range append([]*debug.Module{&info.Main}, info.Deps...) {
		if m.Replace != nil && !strings.HasPrefix(m.Replace.Path, ".") {
			m = m.Replace
		}
		one := *m
		if one.Version == "" || one.Version == "(devel)" {
			one.Version = version
		}
		all = append(all, one)
	}
	return all
}

// toolchain is the version of Go that built a program.
func toolchain(info *debug.BuildInfo) string {
	version, _, _ := strings.Cut(strings.TrimPrefix(info.GoVersion, "go"), " ")
	return version
}

// moduleDigest is the digest of go.sum, in the notation of everything else.
func moduleDigest(m debug.Module) string {
	sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:"))
	if err != nil || len(sum) != sha256.Size {
		return "" // a module of this repository has none
	}
	return hex.EncodeToString(sum)
}

func modulePurl(m debug.Module) string {
	return purl(packageurl.TypeGolang, path.Dir(m.Path), path.Base(m.Path), m.Version)
}

func (p pkg) purl() string {
	return purl(packageurl.TypeDebian, "debian", p.name, p.version, "arch", p.arch)
}

func purl(kind, namespace, name, version string, qualifiers ...string) string {
	values := map[string]string{}
	for i := 0; i < len(qualifiers); i += 2 {
		values[qualifiers[i]] = qualifiers[i+1]
	}
	if namespace == "." {
		namespace = ""
	}
	return packageurl.NewPackageURL(kind, namespace, name, version, packageurl.QualifiersFromMap(values), "").ToString()
}
