package encryption

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Variable is the environment variable with the configuration of OpenTofu's encryption. It
// wins over what the module says.
const Variable = "TF_ENCRYPTION"

// KeyFile is what a key provider of the type external answers with k, as
// internal/encryption/keyprovider/external of OpenTofu has it. So a file with it, and a
// program that prints the file, are all that the plain engine needs.
func KeyFile(k Key) ([]byte, error) {
	var answer struct {
		Keys struct {
			Encryption []byte `json:"encryption_key"`
			Decryption []byte `json:"decryption_key"`
		} `json:"keys"`
		Meta metadata `json:"meta"`
	}
	answer.Keys.Encryption, answer.Keys.Decryption, answer.Meta.External.Key = k.Bytes, k.Bytes, k.ID
	line, err := json.Marshal(answer)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "{\"magic\":\"OpenTofu-External-Key-Provider\",\"version\":1}\n%s\n", line), nil
}

// block is the configuration of the engine in JSON.
type block map[string]any

// ConfigWithFiles is the configuration by which the plain engine reads encrypted states with
// the keys in files, and writes them with the first one. It also reads one that is not
// encrypted.
func ConfigWithFiles(paths ...string) (string, error) {
	providers, methods := block{}, block{}
	order := []string{}
	for i, path := range paths {
		name := providerName
		if i > 0 {
			name = fmt.Sprintf("%s_%d", providerName, i+1)
		}
		providers[name] = block{"command": []string{"cat", path}}
		methods[name] = block{"keys": "${key_provider.external." + name + "}"}
		order = append(order, "method.aes_gcm."+name)
	}
	return config(block{
		"key_provider": block{"external": providers},
		"method":       block{"aes_gcm": methods, "unencrypted": block{"none": block{}}},
		"state":        inOrder(append(order, "method.unencrypted.none")),
	})
}

// Methods are commands of the external encryption method of OpenTofu.
type Methods struct {
	Encrypt, Decrypt []string
	DecryptOlder     []string // what an older key encrypted
}

// State says how the state of a run is found and stored.
type State struct {
	Encrypt bool // it is encrypted when it is written; else it becomes a plain one again
	Plain   bool // it may be found plain. OpenTofu warns of that
	Older   bool // it may be found encrypted with an older key
}

// Config is the configuration of an engine that has no key. One that finds a state in another
// form than it writes stores it again with the next write.
func (m Methods) Config(s State) (string, error) {
	const plain, ours, older = "method.unencrypted.none", "method.external." + providerName, "method.external." + providerName + "_older"
	external := block{providerName: block{"encrypt_command": m.Encrypt, "decrypt_command": m.Decrypt}}
	methods, order := block{"external": external}, []string{ours}
	if s.Older {
		external[providerName+"_older"] = block{"encrypt_command": m.Encrypt, "decrypt_command": m.DecryptOlder}
		order = append(order, older)
	}
	if s.Plain || !s.Encrypt {
		methods["unencrypted"] = block{"none": block{}}
		order = append(order, plain)
	}
	if !s.Encrypt {
		order = append(order[len(order)-1:], order[:len(order)-1]...)
	}
	return config(block{"method": methods, "state": inOrder(order)})
}

// inOrder is a target of methods: the first one encrypts, and each decrypts what those before
// it do not.
func inOrder(methods []string) block {
	var target block
	for _, m := range slices.Backward(methods) {
		next := block{"method": m}
		if target != nil {
			next["fallback"] = target
		}
		target = next
	}
	return target
}

func config(b block) (string, error) {
	text, err := json.Marshal(b)
	return string(text), err
}
