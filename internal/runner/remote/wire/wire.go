// Package wire is what an agent and the controller say to each other: the addresses,
// the headers and the texts of the HTTP API below Prefix. The agent asks, the controller
// answers, and nothing listens beside an agent.
//
// A request says which run it is about by its credential alone: the token of the place
// that the run is carried out in, and the proof that came with the order. Fields are
// added and never change their meaning: an agent may be older or newer than the
// controller.
//
// It opens nothing and sends nothing. Start reading at Prefix.
package wire

import "encoding/json"

// The addresses, all below Prefix.
//
//	POST  order        the runner.Order as its Write sends it, and the proof in a header; until the first report. HeaderWaits
//	POST  next         the same for the next run of a place, after a run that was forgotten, by the proof of that; 204 if the agent has to ask again, 409 if the controller was replaced meanwhile
//	GET   archive      the archive that the order names
//	GET   prepared     what an earlier run prepared and the order names; 422 if it is not here any more
//	PATCH file/{name}  appends to a file at HeaderOffset
//	PUT   file/{name}  replaces a file; HeaderDigest is that of the body
//	PUT   report       a Delivery
//	GET   registry/…   what the registry of the platform answers to the rest of the path; HEAD, too
//	POST  identity/…   the tokens by which the run signs in elsewhere: an identity.Answer
//	GET   wish         a Wish, once it differs from the one in the query, or after a while
//
// Every refusal is a Refusal.
const (
	Prefix   = "/runs/v1/"
	Order    = Prefix + "order"
	Next     = Prefix + "next"
	Archive  = Prefix + "archive"
	Prepared = Prefix + "prepared"
	File     = Prefix + "file/" // then the name
	Report   = Prefix + "report"
	AskWish  = Prefix + "wish"
	Registry = Prefix + "registry" // then the path of the registry: /v1/modules/…
	Identity = Prefix + "identity" // then identity.PathTokens
)

// The headers of requests beside Authorization.
const (
	HeaderStack  = "Terrier-Run-Stack"  // the key of the run; says which of several controllers is asked, and nothing else
	HeaderProof  = "Terrier-Run-Proof"  // all but the order; the answer to the order has it
	HeaderOffset = "Terrier-Run-Offset" // where the body begins in the file
	HeaderDigest = "Terrier-Run-Digest" // sha256:… of the body
	HeaderTurn   = "Terrier-Run-Turn"   // grows from PUT to PUT, so that one which comes late changes nothing
	HeaderNext   = "Terrier-Run-Next"   // true with the request for an order: the agent can ask for another one after it; true with the order: it may
	HeaderWaits  = "Terrier-Run-Waits"  // true with the request for the order: the agent begins the run only after its first report was taken
)

// The queries of a request for a Wish: the one that the agent knows.
const (
	QueryCancel = "cancel"
	QueryReport = "report"
)

// MaxAppend bounds the body of a PATCH, and MaxReport that of a report, in bytes.
const (
	MaxAppend = 1 << 20
	MaxReport = 8 << 20
)

// Held are files of a run that the controller has, by name.
type Held map[string]HeldFile

// HeldFile is one of them: its size, and its digest unless the file is appended to.
type HeldFile struct {
	Size   int64  `json:"size"`
	Digest string `json:"digest,omitempty"`
}

// Delivery is a report with the files that the run had left by then. The controller
// takes the report only if it has all of them.
type Delivery struct {
	Report json.RawMessage `json:"report"`
	Files  Held            `json:"files"`
}

// Wish is what the controller wants of a run.
type Wish struct {
	Cancel bool   `json:"cancel,omitempty"` // stop politely
	Report string `json:"report,omitempty"` // the digest of the last report that the controller took since it started; empty if there is none
}

// Refusal is the body of every answer that is no success. The status says the rest:
//
//	401  the token is not accepted
//	403  the proof is not accepted
//	409  what the agent assumes about the files is not so; Held says what is
//	410  the controller knows no such run, or forgot it, or its end is known
//	413  the file is full
//	422  the body is not what it should be
//	503  later
//	507  there is no space
type Refusal struct {
	Error string `json:"error"`
	Held  Held   `json:"held,omitempty"`
}

// The exit codes of an agent.
const (
	ExitForgotten = 0 // the controller forgot the run, which had ended
	ExitFailed    = 1
	ExitNoOrder   = 3 // the controller has no order for it, or withdrew the run before it began; nothing ran
	ExitTold      = 4 // it was told to stop, and everything is delivered
	ExitTired     = 5 // the run had ended, and the controller did not forget it for too long
)
