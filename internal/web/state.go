package web

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/query"
)

// States are the states of stacks. They contain plain secrets, and have a permission
// of their own.
type States interface {
	StateVersions(ctx context.Context, key query.Key) (query.KeptStates, error)
	SecretPrints(ctx context.Context, key query.Key) (plan.Prints, error)
	ServerState(ctx context.Context, key query.Key, name string) (io.ReadCloser, error)
	ServerOutgrown(ctx context.Context, key query.Key, digest string) (io.ReadCloser, error)
	KeepOutgrown(ctx context.Context, key query.Key, state []byte) error
	ServerEncrypt(ctx context.Context, key query.Key, state []byte) ([]byte, error)
	ServerDecrypt(ctx context.Context, key query.Key, document []byte) ([]byte, error)
	ServerInGit(ctx context.Context, key query.Key) (query.StateInGit, error)
	ServerReplaceInGit(ctx context.Context, key query.Key, person, over string, state []byte) error
}

// stateAPI is the rows about the states of one stack.
type stateAPI struct {
	*gate
	stacks Stacks
	sender stateSender
}

func (a stateAPI) routes() []route {
	transfer := func(l Limits) time.Duration { return l.Transfer }
	read := right("get", access.ResourceState)
	op := func(id, summary string, params ...parameter) operation {
		return operation{id: id, area: "states", summary: summary, query: params, fails: []fault.Kind{fault.Missing, fault.Later}}
	}
	file := op("getStateVersion", "Returns one version of a state as it was stored, with all its secrets.")
	file.gives = anyType
	outgrown := op("getOutgrownState", "Returns a state that is too large for a Secret, by its digest.", word("digest", "The digest of its bytes."))
	outgrown.gives = anyType
	keep := op("keepOutgrownState", "Stores a state that is too large for a Secret.")
	keep.takes = anyType
	encrypt := op("encryptState", "Encrypts a state of a stack with a key of the platform, so that the caller can store it.")
	decrypt := op("decryptState", "Decrypts a state that was encrypted with a key of the platform for this stack.")
	for _, o := range []*operation{&encrypt, &decrypt} {
		o.takes, o.gives = anyType, anyType
	}
	inGit := op("getStateInGit", "Returns a state that Terrier keeps in a repository of git, with all its secrets, and who wrote it.")
	inGit.gives = reflect.TypeFor[query.StateInGit]()
	replaceInGit := op("replaceStateInGit", "Stores the state in the body in its repository of git. The caller has to hold the lock on the state.",
		word("over", "The digest of the stored state."))
	replaceInGit.takes, replaceInGit.fails = anyType, append(replaceInGit.fails, fault.Conflict)
	keys := op("getStateKeys", "Returns the keys that decrypt the state of a stack outside of Terrier. The audit log has the reason.")
	keys.takes, keys.gives = reflect.TypeFor[query.KeyReason](), reflect.TypeFor[query.StateKeys]()
	table := []route{
		reads(a.gate, oneStack+"/states", guarded, read, op("listStateVersions", "Lists the stored versions of a state."),
			func(c call) (query.KeptStates, error) { return a.stacks.StateVersions(c.ctx(), c.key()) }),
		reads(a.gate, oneStack+"/state", guarded, read, op("getState", "Returns the resources and outputs of a state.",
			word("version", "A serial, or the beginning of a digest; by default the current version."), yes("reveal", "Show sensitive values.")), a.view),
		reads(a.gate, oneStack+"/resources", guarded, read, op("listResources", "Lists the resource instances in the current state, with sensitive attributes masked."),
			func(c call) (list[plan.StateResource], error) {
				v, err := a.stacks.StateOf(c.ctx(), c.key(), "", false)
				return listed(v.Resources, err)
			}),
		reads(a.gate, oneStack+"/secret-prints", guarded, read, op("getSecretPrints", "Returns keyed hashes that recognise the values from Secrets which runs of the stack were given, to mask them in its state."),
			func(c call) (plan.Prints, error) { return a.stacks.SecretPrints(c.ctx(), c.key()) }),
		{method: http.MethodPost, path: oneStack + "/state/keys", door: guarded, access: right("get", access.ResourceStateKey), body: commandBytes, operation: keys, handle: a.keys},
		a.raw(oneStack+"/states/:version", read, file, a.version),
		a.raw(oneStack+"/outgrown", read, outgrown, a.outgrown),
		{method: http.MethodPut, path: oneStack + "/outgrown", door: guarded, access: right("update", access.ResourceState),
			body: stateBytes, operation: keep, handle: a.keepOutgrown},
		{method: http.MethodPost, path: oneStack + "/state/encrypt", door: guarded, access: right("update", access.ResourceState),
			body: stateBytes, operation: encrypt, handle: a.encrypt},
		{method: http.MethodPost, path: oneStack + "/state/decrypt", door: guarded, access: read,
			body: 2 * stateBytes, operation: decrypt, handle: a.decrypt},
		reads(a.gate, oneStack+"/state/git", guarded, read, inGit, a.inGit),
		{method: http.MethodPut, path: oneStack + "/state/git", door: guarded, access: right("update", access.ResourceState),
			body: stateBytes, operation: replaceInGit, handle: func(c *gin.Context) { a.replaceInGit(c, replaceInGit) }},
	}
	for i := range table {
		table[i].within, table[i].whole = transfer, !slices.Contains(withoutState, table[i].operation.id)
	}
	return table
}

// withoutState are the operations about a state that do not read it.
var withoutState = []string{"listStateVersions", "getSecretPrints", "getStateKeys"}

func (a stateAPI) view(c call) (plan.StateView, error) {
	reveal, err := c.yes("reveal")
	if err == nil && reveal {
		err = a.sender.read(c.Context, c.Query("version"))
	}
	if err != nil {
		return plan.StateView{}, err
	}
	return a.stacks.StateOf(c.ctx(), c.key(), c.Query("version"), reveal)
}

// anyType is the type of any JSON value in the document.
var anyType = reflect.TypeFor[any]()

// stateBytes bounds a state, as a run does.
const stateBytes = 256 << 20

func (a stateAPI) version(c *gin.Context) {
	r, err := a.stacks.ServerState(c.Request.Context(), keyOf(c), c.Param("version"))
	a.sender.send(c, c.Param("version"), r, err)
}

func (a stateAPI) outgrown(c *gin.Context) {
	r, err := a.stacks.ServerOutgrown(c.Request.Context(), keyOf(c), c.Query("digest"))
	a.sender.send(c, c.Query("digest"), r, err)
}

// stateSender sends states to users, and records who reads them.
type stateSender struct {
	audit   *auditor
	replies *replies
}

// read records that a user reads a state with its secrets.
func (s stateSender) read(c *gin.Context, version string) error {
	return s.audit.record(c, query.AuditEntry{
		What: query.AuditStateRead, Object: query.AuditObjectOf(keyOf(c)),
		Details: map[string]string{"version": cmp.Or(version, "newest")},
	})
}

// keys returns the keys of a state, after the access was recorded.
func (a stateAPI) keys(c *gin.Context) {
	var b query.KeyReason
	var keys query.StateKeys
	err := a.admitted(c, operation{takes: reflect.TypeFor[query.KeyReason]()})
	if err == nil {
		err = readBody(c.Request.Body, &b)
	}
	if err == nil {
		keys, err = a.stacks.StateKeys(c.Request.Context(), keyOf(c), b.Reason)
	}
	if err == nil {
		err = a.sender.audit.record(c, query.AuditEntry{What: query.AuditStateKeyRead, Object: query.AuditObjectOf(keyOf(c)), Why: b.Reason, Details: map[string]string{"place": keys.Place}})
	}
	if err != nil {
		keys = query.StateKeys{}
	}
	c.Header("Cache-Control", "no-store")
	answer(a.gate, c, keys, err)
}

// send sends a state, after the access was recorded.
func (s stateSender) send(c *gin.Context, version string, r io.ReadCloser, err error) {
	if err == nil {
		if err = s.read(c, version); err != nil {
			err = errors.Join(err, r.Close())
		}
	}
	if err != nil {
		s.replies.refuse(c, err)
		return
	}
	defer r.Close()
	c.Header("Content-Type", "application/json; charset=utf-8")
	c.Header("Cache-Control", "no-store")
	if _, err := io.Copy(c.Writer, r); err != nil {
		panic(http.ErrAbortHandler) // an incomplete state must not look complete
	}
}

func (a stateAPI) keepOutgrown(c *gin.Context) {
	state, err := a.body(c)
	if err == nil {
		err = a.stacks.KeepOutgrown(c.Request.Context(), keyOf(c), state)
	}
	if err != nil {
		a.replies.refuse(c, err)
		return
	}
	c.Status(http.StatusNoContent)
}

// encrypt encrypts the state in the body.
func (a stateAPI) encrypt(c *gin.Context) {
	var document []byte
	state, err := a.body(c)
	if err == nil {
		document, err = a.stacks.ServerEncrypt(c.Request.Context(), keyOf(c), state)
	}
	a.reply(c, document, err)
}

// decrypt decrypts the state in the body, after the access was recorded.
func (a stateAPI) decrypt(c *gin.Context) {
	var state []byte
	document, err := a.body(c)
	if err == nil {
		state, err = a.stacks.ServerDecrypt(c.Request.Context(), keyOf(c), document)
	}
	if err == nil {
		a.sender.send(c, "encrypted", io.NopCloser(bytes.NewReader(state)), nil)
		return
	}
	a.replies.refuse(c, err)
}

// inGit returns a state in git, after the access was recorded.
func (a stateAPI) inGit(c call) (query.StateInGit, error) {
	found, err := a.stacks.ServerInGit(c.ctx(), c.key())
	if err == nil && found.Digest != "" {
		err = a.sender.read(c.Context, "newest")
	}
	if err != nil {
		return query.StateInGit{}, err
	}
	c.Header("Cache-Control", "no-store")
	return found, nil
}

func (a stateAPI) replaceInGit(c *gin.Context, o operation) {
	var state []byte
	err := a.admitted(c, o)
	if err == nil {
		state, err = io.ReadAll(c.Request.Body)
	}
	if err == nil {
		err = a.stacks.ServerReplaceInGit(c.Request.Context(), keyOf(c), userOf(c).Name, c.Query("over"), state)
	}
	if err != nil {
		a.replies.refuse(c, err)
		return
	}
	c.Status(http.StatusNoContent)
}

func (a stateAPI) body(c *gin.Context) ([]byte, error) {
	if err := a.admitted(c, operation{takes: anyType}); err != nil {
		return nil, err
	}
	return io.ReadAll(c.Request.Body)
}

func (a stateAPI) reply(c *gin.Context, document []byte, err error) {
	if err != nil {
		a.replies.refuse(c, err)
		return
	}
	c.Header("Cache-Control", "no-store")
	c.Data(http.StatusOK, "application/json; charset=utf-8", document)
}
