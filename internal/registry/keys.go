package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry/signature"
)

// mostKeys bounds the file of the keys of a namespace.
const mostKeys = 8 << 20

// keyFile is providers/NS/signing-keys.json.
type keyFile struct {
	Keys []keyEntry `json:"gpg_public_keys"`
}

// keyEntry is one key. What other programs say of it stays.
type keyEntry struct {
	signature.Key
	TrustSignature string `json:"trust_signature,omitempty"`
	Source         string `json:"source,omitempty"`
	SourceURL      string `json:"source_url,omitempty"`

	Added time.Time `json:"added,omitzero"` // zero if another program added it, or an older version of this one
	By    string    `json:"added_by,omitempty"`
}

// AddedKey is a key of a namespace, and who added it when, if that is known.
type AddedKey struct {
	signature.Key
	Added time.Time
	By    string
}

func keysKey(namespace string) string { return providersPrefix + namespace + "/signing-keys.json" }

// keys is the part of a registry that changes the keys of namespaces.
type keys struct {
	*common
	providers *providers // which they sign
}

// Keys are the public keys that a namespace signs its providers with.
func (c *common) Keys(ctx context.Context, namespace string) ([]signature.Key, error) {
	added, err := c.AddedKeys(ctx, namespace)
	var all []signature.Key
	for _, k := range added {
		all = append(all, k.Key)
	}
	return all, err
}

// AddedKeys are Keys with what is known about each.
func (c *common) AddedKeys(ctx context.Context, namespace string) ([]AddedKey, error) {
	b, err := c.whole(ctx, keysKey(namespace), mostKeys)
	if fault.Of(err) == fault.Missing {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	file, err := decodeKeys(namespace, b)
	if err != nil {
		return nil, err
	}
	var all []AddedKey
	for _, k := range file.Keys {
		all = append(all, AddedKey{k.Key, k.Added, k.By})
	}
	return all, nil
}

// KeyNamespaces are the namespaces that have keys, and those that have providers, sorted. They
// are found by one list of the store, at most once a minute.
func (c *common) KeyNamespaces(ctx context.Context) ([]string, error) {
	n, err := c.stored.Load(ctx, providersPrefix, c.listNames(providersPrefix, 1))
	return slices.Clone(n.Names), err
}

// decodeKeys reads the file, also in its older form: one key without a list.
func decodeKeys(namespace string, b []byte) (keyFile, error) {
	var file struct {
		keyFile
		keyEntry
	}
	if err := json.Unmarshal(b, &file); err != nil {
		return keyFile{}, fmt.Errorf("reading the keys of the namespace %s: %w", namespace, err)
	}
	if file.keyFile.Keys == nil && file.Armor != "" {
		file.Keys = []keyEntry{file.keyEntry}
	}
	return file.keyFile, nil
}

// AddKey adds a public key in ASCII armour. It takes the place of a key of the same ID,
// unless clients could not verify with it what that one signed.
func (k *keys) AddKey(ctx context.Context, namespace, armor, by string) (signature.Key, error) {
	if err := checkNamespace(namespace); err != nil {
		return signature.Key{}, err
	}
	key, err := signature.ParseKey(strings.TrimSpace(armor) + "\n")
	if err != nil {
		return signature.Key{}, fault.New(fault.Invalid, KeyInvalid, err)
	}
	deed := k.deed(KeyAdded, by, namespace, keyID(key.ID), "")
	return key, k.changeKeys(ctx, namespace, func(file *keyFile) error {
		for i, there := range file.Keys {
			if strings.EqualFold(there.ID, key.ID) {
				if err := k.verifiesToo(ctx, namespace, there.Key, key); err != nil {
					return err
				}
				if there.Key == key {
					return nil // it is there
				}
				file.Keys[i].Key = key
				return deed.done(ctx)
			}
		}
		file.Keys = append(file.Keys, keyEntry{Key: key, Added: k.o.Now().UTC().Truncate(time.Second), By: by})
		return deed.done(ctx)
	})
}

// RemoveKey removes a key by its ID. Clients cannot install what it signed from then on:
// unless this is forced, the key of a published version stays.
func (k *keys) RemoveKey(ctx context.Context, namespace, id, by string, force bool) error {
	if err := checkNamespace(namespace); err != nil {
		return err
	}
	if !force {
		if err := k.keyUnused(ctx, namespace, id); err != nil {
			return err
		}
	}
	deed := k.deed(KeyRemoved, by, namespace, keyID(strings.ToUpper(id)), "")
	if force {
		deed.Details = map[string]string{"force": "true"}
	}
	return k.changeKeys(ctx, namespace, func(file *keyFile) error {
		before := len(file.Keys)
		file.Keys = slices.DeleteFunc(file.Keys, func(e keyEntry) bool { return strings.EqualFold(e.ID, id) })
		if len(file.Keys) == before {
			return fault.New(fault.Missing, KeyInvalid, fmt.Errorf("the namespace %s has no key %.80q", namespace, id))
		}
		return deed.done(ctx)
	})
}

// keyUnused refuses a key that a published version needs, or may need.
func (k *keys) keyUnused(ctx context.Context, namespace, id string) error {
	return k.needing(ctx, namespace, id, func(p address.Provider, v address.Version) error {
		return fault.New(fault.Conflict, KeyInUse, fmt.Errorf("the key may have signed version %s of %s, and without it clients cannot install that version: retract the version, or remove the key by force", v, p))
	})
}

// verifiesToo refuses a newer form of a key, as one that was revoked, with which clients
// could not verify a published version that they can verify now.
func (k *keys) verifiesToo(ctx context.Context, namespace string, old, newer signature.Key) error {
	if old.Armor == newer.Armor {
		return nil
	}
	return k.needing(ctx, namespace, newer.ID, func(p address.Provider, v address.Version) error {
		sums, err := k.whole(ctx, ProviderKey(p, fileOf(p, v, sumsPart)), signature.MaxSums)
		var sig []byte
		if err == nil {
			sig, err = k.whole(ctx, ProviderKey(p, fileOf(p, v, signaturePart)), mostSignature)
		}
		if fault.Of(err) == fault.Missing {
			return nil // the store has lost it, and clients cannot install it with any key
		}
		if err != nil {
			return err
		}
		at := k.o.Now().Add(clockSkew)
		if _, err := signature.Verify(sums, sig, []signature.Key{old}, at); err != nil {
			return nil // this key did not sign it, or clients cannot verify it now either
		}
		if _, err := signature.Verify(sums, sig, []signature.Key{newer}, at); err != nil {
			return fault.New(fault.Conflict, KeyInUse, fmt.Errorf("with this form of the key %s clients cannot install version %s of %s, which it signed: %w: retract the version, or remove the key by force before you add it", newer.ID, v, p, err))
		}
		return nil
	})
}

// needing calls refuse for each published version that a key has signed, or may have.
func (k *keys) needing(ctx context.Context, namespace, id string, refuse func(address.Provider, address.Version) error) error {
	types, err := k.Names(ctx, Providers, namespace)
	if err != nil {
		return err
	}
	for _, typ := range types {
		p := address.Provider{Namespace: namespace, Type: typ}
		index, err := k.providers.index.read(ctx, providerIndexKey(p), k.providers.listProvider(p))
		if err != nil {
			return err
		}
		for v, there := range index.Versions {
			if there.Retracted == nil && (there.Key == "" || strings.EqualFold(there.Key, id)) {
				if err := refuse(p, v); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (c *common) changeKeys(ctx context.Context, namespace string, change func(*keyFile) error) error {
	defer c.stored.Delete(providersPrefix)
	return blob.Update(ctx, c.store, keysKey(namespace), mostKeys, func(old []byte) ([]byte, error) {
		var file keyFile
		if old != nil {
			var err error
			if file, err = decodeKeys(namespace, old); err != nil {
				return nil, err
			}
		}
		if err := change(&file); err != nil {
			return nil, err
		}
		return json.Marshal(file)
	})
}

// checkNamespace refuses what is no namespace of providers.
func checkNamespace(namespace string) error {
	_, err := address.NewProvider("", namespace, "any")
	return err
}
