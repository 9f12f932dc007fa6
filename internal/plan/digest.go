package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/terrier-iac/terrier/internal/stack"
)

// Parts are all that a plan's digest covers. An approval is of this digest: a
// plan that differs in any part was not approved.
type Parts struct {
	PlanInputs  stack.PlanInputs `json:"Basis"` // under the name that digests made before have
	LockHash    string           // of .terraform.lock.hcl after init
	Backend     string           // digest of the backend's configuration
	Lineage     string           // of the state it was made against
	Serial      uint64
	ChangesHash string // Document.Hash
	Destroy     bool
	// After names the last run that changed resources. State and effect can be what
	// they were before: the same drift comes again after it was repaired, and a
	// foreign state has no serial that is known. What was approved then was approved
	// once.
	After string `json:",omitempty"`
}

// Digest returns the digest of a plan as "sha256:…". The revision is left out:
// it is a name for the source, and the source's own digest is in it.
func Digest(p Parts) string {
	p.PlanInputs.Revision = ""
	// Marshalling a struct of strings, numbers and booleans cannot fail, keeps
	// the order of its fields and quotes every string, so no two values of
	// Parts share an encoding.
	canonical, err := json.Marshal(struct {
		Format string
		Parts
	}{"terrier.plan/1", p})
	if err != nil {
		panic(fmt.Sprintf("plan: encoding parts: %v", err))
	}
	return sum(canonical)
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(h[:])
}
