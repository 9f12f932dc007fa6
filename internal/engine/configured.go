package engine

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
)

// Configured says which providers a configuration configures in more than one
// way, by their source, hashicorp/aws. An engine gives every configuration a
// process of its own, because most providers hold one configuration by process.
type Configured map[string]bool

// Once reports whether a provider has one configuration, so that one process
// can serve it.
func (c Configured) Once(l Locked) bool { return !c[l.Source()] }

// maxConfiguration bounds what is read of all modules together.
const maxConfiguration = 64 << 20

// Configurations looks for provider blocks in the root module and the modules
// that it calls, one entry by call. A provider has one configuration if at most
// one block is about it, in the root module and without an alias. When in doubt
// it is said to have more; what cannot be read is an error.
func Configurations(root fs.FS, calls []fs.FS) (Configured, error) {
	r := &configReader{left: maxConfiguration, more: Configured{}}
	if err := r.module(root, true); err != nil {
		return nil, err
	}
	for _, m := range calls {
		if err := r.module(m, false); err != nil {
			return nil, err
		}
	}
	return r.more, nil
}

type configReader struct {
	left int64
	more Configured
}

// module adds what one module says.
func (r *configReader) module(dir fs.FS, root bool) error {
	files, err := r.files(dir)
	if err != nil {
		return err
	}
	blocks := map[string]int{} // by local name
	for name, src := range files {
		if !hasProvider(name, src) {
			continue
		}
		found, err := providerBlocks(name, src)
		if err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		for _, b := range found {
			blocks[b.local]++
			if b.several || !root {
				blocks[b.local]++
			}
		}
	}
	var sources map[string]string
	for local, n := range blocks {
		if n <= 1 {
			continue
		}
		if sources == nil {
			if sources, err = sourcesOf(files); err != nil {
				return err
			}
		}
		source, ok := sources[local]
		if !ok {
			source = "hashicorp/" + local
		}
		r.more[strings.ToLower(source)] = true
	}
	return nil
}

// files reads the configuration files of a module. What one engine ignores and
// another reads is read.
func (r *configReader) files(dir fs.FS) (map[string][]byte, error) {
	entries, err := fs.ReadDir(dir, ".")
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, e := range entries {
		name := e.Name()
		plain := strings.TrimSuffix(name, ".json")
		if e.IsDir() || strings.HasPrefix(name, ".") || !strings.HasSuffix(plain, ".tf") && !strings.HasSuffix(plain, ".tofu") {
			continue
		}
		// Opening what is not a file could wait for ever.
		if info, err := fs.Stat(dir, name); err != nil || !info.Mode().IsRegular() {
			return nil, fmt.Errorf("%s is not a regular file", name)
		}
		f, err := dir.Open(name)
		if err != nil {
			return nil, err
		}
		files[name], err = io.ReadAll(io.LimitReader(f, r.left+1))
		f.Close()
		if err != nil {
			return nil, err
		}
		if r.left -= int64(len(files[name])); r.left < 0 {
			return nil, errors.New("the configuration is too large to look for providers")
		}
	}
	return files, nil
}

// hasProvider spares most files the closer look: they have no word "provider"
// but in front of an equals sign, where it chooses one.
func hasProvider(name string, src []byte) bool {
	if strings.HasSuffix(name, ".json") {
		return bytes.Contains(src, []byte(`"provider"`))
	}
	for {
		_, after, found := bytes.Cut(src, []byte("provider"))
		if !found {
			return false
		}
		src = after
		if rest := bytes.TrimLeft(after, " \t"); len(rest) > 0 && !isWord(after[0]) && after[0] != '-' && rest[0] != '=' {
			return true
		}
	}
}

// providerBlock is a block that configures a provider.
type providerBlock struct {
	local   string // its name in the module
	several bool   // it has an alias, or stands for several
}

func providerBlocks(name string, src []byte) ([]providerBlock, error) {
	if strings.HasSuffix(name, ".json") {
		return providersInJSON(src)
	}
	items, err := parseSyntax(src)
	if err != nil {
		return nil, err
	}
	var blocks []providerBlock
	for _, i := range items {
		if !i.block || i.name != "provider" {
			continue
		}
		if len(i.labels) != 1 {
			return nil, errors.New("a provider block without a name")
		}
		b := providerBlock{local: i.labels[0]}
		for _, a := range i.body {
			b.several = b.several || a.name == "alias" || a.name == "for_each"
		}
		blocks = append(blocks, b)
	}
	return blocks, nil
}

// sourcesOf reads the required providers of a module: local name → source,
// without a registry.
func sourcesOf(files map[string][]byte) (map[string]string, error) {
	sources := map[string]string{}
	for name, src := range files {
		if !bytes.Contains(src, []byte("required_providers")) {
			continue
		}
		if strings.HasSuffix(name, ".json") {
			if err := requiredInJSON(src, sources); err != nil {
				return nil, fmt.Errorf("reading %s: %w", name, err)
			}
			continue
		}
		items, err := parseSyntax(src)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		for _, i := range items {
			for _, b := range i.body {
				if i.name == "terraform" && b.name == "required_providers" && b.block {
					required(b.body, sources)
				}
			}
		}
	}
	return sources, nil
}

func required(entries []item, sources map[string]string) {
	for _, e := range entries {
		fields, err := e.object()
		if err != nil {
			continue // only a version: the source is the default one
		}
		for _, f := range fields {
			if source, ok := f.literal(); ok && f.name == "source" {
				sources[e.name] = withoutRegistry(source)
			}
		}
	}
}

// withoutRegistry is the namespace and type of a source as people write it.
func withoutRegistry(source string) string {
	parts := strings.Split(source, "/")
	if len(parts) == 1 {
		return "hashicorp/" + source
	}
	return strings.Join(parts[max(0, len(parts)-2):], "/")
}
