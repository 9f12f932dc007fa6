// Package shared is one queue of runs for several controllers that share the stacks
// (package shard): the leader has the queue, and each member a Client of it, the
// leader's own controller too. It is a protocol and its two ends, without a network.
//
//	controller ── Admit, Leave ──▶ Client ── Report ──▶ Server ──▶ schedule.Queue
//	           ◀────── Wake ──────        ◀── Answer ──
//
// A Report has the records of a Client that the Server has not confirmed: what a stack
// asks for or holds, and which shards the Client claims. A record replaces the one
// before it. An Answer has what the Client has not seen: the requests that were granted,
// and what the others wait for. Both are repeated until the other side has them, so that
// a message may be lost, late, or delivered twice.
//
// No limit is exceeded, whatever happens to messages and members:
//
//   - The Server counts a slot until the owner of the stack says that it is free. It
//     takes no slot back by itself: a slot that is not taken in time is given back by its
//     Client.
//   - The next owner of a shard says which of its runs go on. Until then the Server counts
//     those that the last owner had. A claim has the generation of the shard.Map that gave
//     the shard away, so that a late message of the last owner counts for nothing.
//   - A new leader grants nothing before every shard was claimed from it. A Client that
//     has reported to it hears no other leader any more.
//   - A request has a ticket. A grant of an earlier request of the same stack counts for
//     nothing.
//
// It refuses to decide whose turn it is (package schedule), who owns a shard, and who is
// the leader (package kube/members).
//
// Start reading at Client.Admit and Server.Exchange.
package shared

import (
	"time"

	"github.com/terrier-iac/terrier/internal/schedule"
)

// Report is what a Client tells the leader.
type Report struct {
	Member string `json:"member"`           // whose Client it is
	Leader string `json:"leader"`           // the member that the report is for
	Number uint64 `json:"number,omitempty"` // of the reports of one Client; 0 if it has no records
	Seen   uint64 `json:"seen,omitempty"`   // the Version of the newest answer
	Wait   bool   `json:"wait,omitempty"`   // the answer may be late if there is nothing new

	Shards []ShardRecord `json:"shards,omitempty"`
	Stacks []StackRecord `json:"stacks,omitempty"`
}

// ShardRecord says whether a Client works on a shard.
type ShardRecord struct {
	Shard      int    `json:"shard"`
	Generation uint64 `json:"generation"`         // of the shard.Map that made it the owner
	Released   bool   `json:"released,omitempty"` // else the report has all records of the shard

	version uint64
}

// State is what a stack has in the queue.
type State string

// The states of stacks.
const (
	Waits State = "waits" // it asks for a slot
	Holds State = "holds" // it has one
	Free  State = "free"  // neither
)

// StackRecord is what a stack has in the queue, as its owner knows it.
type StackRecord struct {
	ID        string             `json:"id"`
	State     State              `json:"state"`
	Ticket    uint64             `json:"ticket,omitempty"` // of its request
	Keeps     bool               `json:"keeps,omitempty"`  // it waits, and has a slot that was for another class or tenant
	Found     bool               `json:"found,omitempty"`  // it runs, and was not reconciled yet
	Candidate schedule.Candidate `json:"candidate,omitzero"`

	version uint64
}

// Answer is what the leader tells a Client.
type Answer struct {
	Leader  string `json:"leader"`
	Applied bool   `json:"applied,omitempty"` // the leader has the records of the report
	Version uint64 `json:"version"`           // the Client has seen everything up to here
	Turns   []Turn `json:"turns,omitempty"`
}

// Turn is what became of a request.
type Turn struct {
	ID      string `json:"id"`
	Ticket  uint64 `json:"ticket"`
	Granted bool   `json:"granted,omitempty"`
	Why     string `json:"why,omitempty"` // it waits
}

// maxRecords bounds how many records of stacks a report has, and turns an answer: with
// names of the greatest length they are a quarter of what a call may have.
const maxRecords = 2000

// slotReservation is how long a granted slot is kept for a stack that does not take it.
const slotReservation = 30 * time.Second
