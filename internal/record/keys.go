package record

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/plan/usage"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Names of files that are not those of a run's directory.
const (
	ReportFile        = "report.json"  // of a run
	PlanFile          = "plan.json"    // of a plan: what it does, masked
	UsesFile          = "uses.json"    // of a plan
	VerdictFile       = "verdict.json" // of a plan
	RetainedFile      = "record.json"  // of a deleted stack
	RetainedStateFile = "state.json"
	ForgottenFile     = "forgotten.json" // of a stack that exists or is deleted

	// QuietRun is the name of the newest check that found nothing: such checks
	// share one place.
	QuietRun = "check"
)

// Stacks is what the keys of all records of all stacks begin with.
const Stacks = "stacks/"

// Stack is what the keys of all records of a stack begin with.
func Stack(uid string) string { return Stacks + uid + "/" }

// StackOf returns the UID of the stack that a key belongs to.
func StackOf(key string) (uid string, ok bool) {
	rest, ok := strings.CutPrefix(key, Stacks)
	if !ok {
		return "", false
	}
	uid, _, ok = strings.Cut(rest, "/")
	return uid, ok
}

// Runs is what the keys of all runs of a stack begin with.
func Runs(uid string) string { return runFile.key(uid) }

// Run is the key of one file of a run.
func Run(uid, run, file string) string { return runFile.key(uid, run, file) }

// RunOf returns the run and the file of a key below Runs(uid).
func RunOf(uid, key string) (run, file string, ok bool) {
	rest, ok := strings.CutPrefix(key, Runs(uid))
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, "/")
}

// HandedOut is the key of what a run of a stack was handed out by OpenBao or Vault.
func HandedOut(uid string) string { return handedOut.key(uid) }

// AllSecretLeases is what the keys of all records of SecretLeases begin with.
func AllSecretLeases() string { return secretLeases.key() }

// SecretLeases is the key of what the Secret of an ExternalSecret was handed out by OpenBao or
// Vault.
func SecretLeases(uid string) string { return secretLeases.key(uid) }

// SecretLeasesOf returns the UID of the object of such a key.
func SecretLeasesOf(key string) (uid string, ok bool) {
	rest, ok := strings.CutPrefix(key, AllSecretLeases())
	if !ok {
		return "", false
	}
	uid, _, ok = strings.Cut(rest, "/")
	return uid, ok
}

// Plans is what the keys of all plans of a stack begin with.
func Plans(uid string) string { return planFile.key(uid) }

// Plan is the key of one file of a plan.
func Plan(uid, digest, file string) string { return planFile.key(uid, Hex(digest), file) }

// Verdict is what policies said of a plan.
func Verdict(uid, digest string) Of[policy.Judgement] {
	return At[policy.Judgement](Plan(uid, digest, VerdictFile))
}

// Snapshots is what the keys of all snapshots of a stack begin with.
func Snapshots(uid string) string { return snapshot.key(uid) }

// Snapshot is the key of what a destroy is made from.
func Snapshot(uid, digest string) string { return snapshot.key(uid, Hex(digest)) }

// SnapshotNamed is the snapshot of a stack that its status names. Users may have the right to
// write a status: one that names a record of another stack, or another kind of record, names
// none. Such a record has credentials, and says where the state is.
func SnapshotNamed[T any](uid, key string) Of[T] {
	if !strings.HasPrefix(key, Snapshots(uid)) {
		key = Snapshot(uid, "of-another-stack")
	}
	return At[T](key)
}

// IsSnapshot reports whether a key is that of a snapshot, of any stack.
func IsSnapshot(key string) bool {
	uid, ok := StackOf(key)
	return ok && strings.HasPrefix(key, Snapshots(uid))
}

// Rescued is the key of a state that a backend refused during a run.
func Rescued(uid, run string) string { return rescued.key(uid, run) }

// RescuedRuns is what the keys of such states begin with, and RescuedRun the run
// of one.
func RescuedRuns(uid string) string { return rescued.key(uid) }

// RescuedRun returns the run of a key of Rescued.
func RescuedRun(uid, key string) string {
	return strings.TrimSuffix(strings.TrimPrefix(key, RescuedRuns(uid)), ".tfstate")
}

// State is the key of the copy of the newest state.
func State(uid string) string { return state.key(uid) }

// Outputs is the key of the outputs of the newest state.
func Outputs(uid string) string { return outputs.key(uid) }

// StateVersions is what the keys of all versions of a state begin with.
func StateVersions(uid string) string { return stateVersion.key(uid) }

// StateVersion is the key of one version, by stack.StateVersion.Key.
func StateVersion(uid, version string) string { return stateVersion.key(uid, version) }

// StateIndex is the list of the versions of a state.
func StateIndex(uid string) Of[stack.StateVersions] {
	return At[stack.StateVersions](stateIndex.key(uid))
}

// Decisions are the last decisions about a stack, the newest last.
func Decisions(uid string) Of[[]stack.Decided] { return At[[]stack.Decided](decisions.key(uid)) }

// Secrets is the key of the prints of secret values that runs were given.
func Secrets(uid string) string { return secrets.key(uid) }

// SecretsBeside is the key of the same for the runs since the key of Secrets is lost.
func SecretsBeside(uid string) string { return secretsBeside.key(uid) }

// Checkpoint is what must outlast the status.
func Checkpoint(uid string) Of[stack.Checkpoint] { return At[stack.Checkpoint](lasting.key(uid)) }

// Audited is the key of the requests of users that are in the audit log.
func Audited(uid string) string { return audited.key(uid) }

// Approvers is what is kept of the approvals and changes of a stack.
func Approvers(uid string) Of[stack.Approvers] { return At[stack.Approvers](approvers.key(uid)) }

// Check is what drift checks leave of a stack.
type Check struct {
	At time.Time `json:"at,omitzero"`

	Drifted time.Time `json:"drifted,omitzero"` // the last check that found drift
	Next    time.Time `json:"next,omitzero"`    // when the next check is due, as far as the last one knew
	Why     string    `json:"why,omitempty"`    // why it is then, for people; empty if it is the interval of the stack

	CPU    time.Duration `json:"cpu,omitempty"`    // that the last check took; 0 if unknown
	Memory int64         `json:"memory,omitempty"` // bytes that runs take; 0 if unknown

	StepsMemory int64 `json:"stepsMemory,omitempty"` // the same of runs of the steps after an apply, whose programs are others
}

// Checked is what the last drift check left.
func Checked(uid string) Of[Check] { return Of[Check]{checked.key(uid), parseCheck} }

// parseCheck also reads a record of the time alone, as releases wrote it that did
// not measure memory.
func parseCheck(b []byte) (Check, error) {
	if len(b) > 0 && b[0] == '{' {
		var c Check
		err := json.Unmarshal(b, &c)
		return c, err
	}
	at, err := time.Parse(time.RFC3339Nano, string(b))
	return Check{At: at}, err
}

// Uses are the modules and providers that a stack uses.
func Uses(uid string) Of[usage.Record] { return At[usage.Record](uses.key(uid)) }

// AllRetained is what the keys of all deleted stacks begin with.
func AllRetained() string { return retained.key() }

// Retained is the key of one file of retained resources: RetainedFile or
// RetainedStateFile of a deleted stack, or ForgottenFile of any stack. With an empty file it is what both begin with.
func Retained(uid, file string) string { return retained.key(uid, file) }

// RetainedOf returns the UID and the file of a key below AllRetained.
func RetainedOf(key string) (uid, file string, ok bool) {
	rest, ok := strings.CutPrefix(key, AllRetained())
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, "/")
}

// AllGone is what the keys of the last runs of all deleted stacks begin with.
func AllGone() string { return goneRun.key() }

// GoneStack is what the keys of the last runs of all deleted stacks of one kind and name begin
// with. The kind is as users call it, and empty for the first one.
func GoneStack(kind, namespace, name string) string {
	return goneRun.key(goneDigest(kind, namespace, name))
}

// Gone is the key of one file of the last run of a deleted stack: ReportFile, or its log. With
// an empty file it is what both begin with.
func Gone(kind, namespace, name, uid, file string) string {
	return goneRun.key(goneDigest(kind, namespace, name), uid, file)
}

// A name may be longer than a part of a key.
func goneDigest(kind, namespace, name string) string {
	return Hex(stack.Digest([]string{kind, namespace, name}))
}

// IsGoneReport reports whether a key is that of the report of such a run, and what the keys
// of all of its files begin with.
func IsGoneReport(key string) (files string, ok bool) {
	if !strings.HasPrefix(key, AllGone()) {
		return "", false
	}
	return strings.CutSuffix(key, ReportFile)
}

// Trees is what the keys of all archives of sources begin with.
func Trees() string { return tree.key() }

// Tree is the key of the archive of a source.
func Tree(digest string) string { return tree.key(Hex(digest)) }

// SweptTrees is what the keys of all archives begin with that were removed and may have to
// be put back.
func SweptTrees() string { return sweptTree.key() }

// SweptTree is the key of such an archive, by its key among Trees.
func SweptTree(tree string) string { return sweptTree.key(strings.TrimPrefix(tree, Trees())) }

// TreeOfSwept is the inverse of SweptTree.
func TreeOfSwept(key string) string { return tree.key(strings.TrimPrefix(key, SweptTrees())) }

// Outgrown is the key of a state that is larger than a Secret. The place names
// the Secret and not the stack: a state that is retained outlives its stack.
func Outgrown(place, digest string) string { return outgrown.key(place, Hex(digest)) }

// OutgrownOf is what the keys of all versions of one place begin with.
func OutgrownOf(place string) string { return outgrown.key(place) }

// Outbox is what the keys of all messages begin with that are not delivered.
func Outbox() string { return outboxMessage.key() }

// OutboxMessage is the key of one of them.
func OutboxMessage(id string) string { return outboxMessage.key(id) }

// AllDeliveries is what the keys of the deliveries of all namespaces begin with.
func AllDeliveries() string { return deliveries.key() }

// Deliveries is the key of the deliveries of a namespace.
func Deliveries(namespace string) string { return deliveries.key(namespace) }

// AuditLog is what the keys of all parts of the audit log begin with.
func AuditLog() string { return auditSegment.key() }

// AuditSegment is the key of a part of the audit log.
func AuditSegment(name string) string { return auditSegment.key(name) }

// AllFigures is what the keys of all figures of runs begin with.
func AllFigures() string { return figures.key() }

// Figures is the key of the figures of one bucket of a period.
func Figures(period, start string) string { return figures.key(period, start) }

// FiguresOf returns the period and the start of a key below AllFigures.
func FiguresOf(key string) (period, start string, ok bool) {
	rest, ok := strings.CutPrefix(key, AllFigures())
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, "/")
}

// SignOuts is what the keys of all sessions begin with that were ended.
func SignOuts() string { return signOut.key() }

// SignOut is the key of one of them.
func SignOut(id string) string { return signOut.key(id) }

// RegistryTokens is what the keys of all tokens for the registry begin with.
func RegistryTokens() string { return registryToken.key() }

// RegistryToken is the key of one of them.
func RegistryToken(id string) string { return registryToken.key(id) }

// IdentityKeys is what the keys of all records of keys begin with that sign tokens of runs.
func IdentityKeys() string { return identityKey.key() }

// LoggedIn is the key of the session of a run that is signed in to OpenBao or Vault by its identity.
func LoggedIn(uid string) string { return loggedIn.key(uid) }

// IdentityKey is the key of one of them.
func IdentityKey(id string) string { return identityKey.key(id) }

// Installation says whose records these are.
type Installation struct {
	Cluster string    `json:"cluster"`         // the UID of its namespace kube-system
	Lease   string    `json:"lease,omitempty"` // namespace/name of the Lease of its controller
	Since   time.Time `json:"since"`

	// Formerly are the clusters whose records this one adopted. It takes their place in
	// backends, too.
	Formerly []string `json:"formerly,omitempty"`
}

// Witness is the key of a record that a key of records encrypted: the record shows later
// whether that key is still there. ID is the name of the key.
func Witness(id string) string { return witness.key(id) }

// Witnesses is what the keys of all such records begin with.
func Witnesses() string { return witness.key() }

// Resealing is how far records are encrypted again with a newer key.
type Resealing struct {
	Key      string    `json:"key"`   // the ID of the newer one
	After    string    `json:"after"` // records up to this key are done
	Records  int       `json:"records"`
	Done     int       `json:"done"`             // of these, the ones that were looked at
	Resealed int       `json:"resealed"`         // and the ones that another key encrypted
	Failed   int       `json:"failed,omitempty"` // no key opens them
	Began    time.Time `json:"began"`            // when the first record was looked at
	Ended    time.Time `json:"ended,omitzero"`   // when the last one was

	// All of them are looked at a second time, since another controller may have written some
	// with an older key meanwhile.
	Again   time.Time `json:"again,omitzero"`   // when that began: no controller had an older key by then
	Certain time.Time `json:"certain,omitzero"` // when it ended: nothing needs an older key from then on
}

// Reseal is the record of it.
func Reseal() Of[Resealing] { return At[Resealing](resealing.key()) }

// Marker says to which cluster the records belong.
func Marker() Of[Installation] { return At[Installation](marker.key()) }

// Hex is a digest without its algorithm, as keys have it.
func Hex(digest string) string {
	if _, hex, found := strings.Cut(digest, ":"); found {
		return hex
	}
	return digest
}
