package main

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/go-containerregistry/pkg/v1/partial"
	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
)

const (
	slsaType  = "https://slsa.dev/provenance/v1"
	buildType = home + "/blob/main/docs/images.md#how-they-are-built"
)

// provenance states how an image was made, and of what. The statement is not signed:
// the key of a signature belongs to the operator of the builder. It has no time and
// no name of a run, so that the same commit makes the same statement.
func (b *builder) provenance(r recipe, images []built, subjects []named) ([]byte, error) {
	definition, err := b.definition(r, images)
	if err != nil {
		return nil, err
	}
	made := &slsa.Provenance{
		BuildDefinition: definition,
		RunDetails:      &slsa.RunDetails{Builder: &slsa.Builder{Id: b.by}},
	}
	if err := made.Validate(); err != nil {
		return nil, fmt.Errorf("stating the provenance: %w", err)
	}
	text, err := protojson.Marshal(made)
	if err != nil {
		return nil, err
	}
	predicate := new(structpb.Struct)
	if err := protojson.Unmarshal(text, predicate); err != nil {
		return nil, err
	}
	statement := &intoto.Statement{Type: intoto.StatementTypeUri, PredicateType: slsaType, Predicate: predicate}
	for _, s := range subjects {
		d, err := partial.Descriptor(s.manifest)
		if err != nil {
			return nil, err
		}
		statement.Subject = append(statement.Subject, &intoto.ResourceDescriptor{Name: s.name, Digest: map[string]string{d.Digest.Algorithm: d.Digest.Hex}})
	}
	if err := statement.Validate(); err != nil {
		return nil, fmt.Errorf("stating the provenance: %w", err)
	}
	if text, err = protojson.Marshal(statement); err != nil {
		return nil, err
	}
	// The encoder of protobuf varies its white space.
	var out bytes.Buffer
	if err := json.Indent(&out, text, "", "  "); err != nil {
		return nil, err
	}
	return append(out.Bytes(), '\n'), nil
}

// definition says what was asked of the builder, and what it took.
func (b *builder) definition(r recipe, images []built) (*slsa.BuildDefinition, error) {
	platforms := make([]any, len(images))
	for i, one := range images {
		platforms[i] = one.platform.String()
	}
	asked, err := structpb.NewStruct(map[string]any{"image": r.name, "version": b.version, "platforms": platforms})
	if err != nil {
		return nil, err
	}
	materials, err := b.materials(images)
	if err != nil {
		return nil, err
	}
	return &slsa.BuildDefinition{BuildType: buildType, ExternalParameters: asked, ResolvedDependencies: materials}, nil
}

// materials are the commit, Go, its modules, and Debian packages, with their digests.
func (b *builder) materials(images []built) ([]*intoto.ResourceDescriptor, error) {
	commit := b.revision[:min(len(b.revision), 40)]
	source := &intoto.ResourceDescriptor{Name: "source", Uri: "git+" + home, Digest: map[string]string{"gitCommit": commit}}
	if commit != b.revision {
		notes, err := structpb.NewStruct(map[string]any{"modified": true})
		if err != nil {
			return nil, err
		}
		source.Annotations = notes
	}
	found := map[string]*intoto.ResourceDescriptor{}
	add := func(uri, algorithm, digest string) {
		d := &intoto.ResourceDescriptor{Uri: uri}
		if digest != "" {
			d.Digest = map[string]string{algorithm: digest}
		}
		found[uri] = d
	}
	for _, one := range images {
		for _, file := range one.programs {
			info, err := buildinfo.ReadFile(file)
			if err != nil {
				return nil, err
			}
			add("pkg:generic/go@"+toolchain(info), "", "")
			for _, m := range modules(info, b.version) {
				if digest := moduleDigest(m); digest != "" { // the others are of the commit
					add(modulePurl(m), "dirHash", digest)
				}
			}
		}
		for _, p := range one.packages {
			add(p.purl(), "sha256", p.sha256)
		}
	}
	all := []*intoto.ResourceDescriptor{}
	for _, d := range found {
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b *intoto.ResourceDescriptor) int { return cmp.Compare(a.Uri, b.Uri) })
	return append([]*intoto.ResourceDescriptor{source}, all...), nil
}
