package web

import (
	"errors"
	"io"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
)

// errNoDetails is the answer of a server that was not told where they are.
var errNoDetails = fault.New(fault.Later, "NotReady", errors.New("this server does not answer that"))

// stackRoutes are the rows that read about one stack.
func (s *server) stackRoutes() []route {
	see, log, plan := right("get", access.ResourceStacks), right("get", access.ResourceLog), right("get", access.ResourcePlan)
	op := func(id, summary string, params ...parameter) operation {
		return operation{id: id, area: "stacks", summary: summary, query: params, fails: []fault.Kind{fault.Missing, fault.Later}}
	}
	run := func(c call) (query.Report, error) { return s.Stacks.Run(c.ctx(), c.key(), runOf(c.Context)) }
	text := op("getRunLog", "The log of a run, secrets masked. With Accept: text/event-stream one event a line, and a last one that says how the run ended.",
		yes("follow", "Go on until the run has ended."), number("after", "Bytes of the log to leave out; of events, and of a log that is followed."))
	text.as = "text/plain; charset=utf-8"
	document := op("getPlanDocument", "The plan as the engine's show -json has it, sensitive values masked.", word("digest", "Which plan; the one that waits if it is not there, or else the one that was applied last."))
	document.gives = anyType
	table := []route{
		asks(s, oneStack, guarded, see, op("getStack", "All there is to know of a stack without looking into its records."),
			func(c call) (query.Detail, error) { return s.Stacks.Describe(c.ctx(), c.key()) }),
		asks(s, oneStack+"/explain", guarded, see, op("explainStack", "Why a stack stands as it does: each rule, and the one that fired."),
			func(c call) (query.Explanation, error) { return s.Stacks.Explain(c.ctx(), c.key()) }),
		asks(s, oneStack+"/runs", guarded, log, op("listRuns", "What the runs of a stack say of themselves, newest first."),
			func(c call) (list[query.Report], error) { return listed(s.Stacks.Runs(c.ctx(), c.key())) }),
		asks(s, oneStack+"/runs/:run", guarded, log, op("getRun", "What one run says of itself; newest stands for the newest."), run),
		asks(s, oneStack+"/runs/:run/report", guarded, log, op("getRunReport", "The same as the run."), run),
		s.raw(oneStack+"/runs/:run/log", log, text, s.log),
		asks(s, oneStack+"/plan", guarded, plan, op("getPlan", "A plan of a stack with what it would do, sensitive values masked.",
			word("digest", "Which plan; the one that waits if it is not there, or else the one that was applied last.")),
			func(c call) (query.PlanDocument, error) {
				return s.Stacks.Plan(c.ctx(), c.key(), c.Query("digest"))
			}),
		s.raw(oneStack+"/plan/document", plan, document, s.planDocument),
	}
	table[5].within = streaming
	return append(table, s.detailRoutes(see, plan, op)...)
}

// detailRoutes are the rows of what a page of one stack shows beside its row.
func (s *server) detailRoutes(see, plan requirement, op func(string, string, ...parameter) operation) []route {
	return []route{
		asks(s, oneStack+"/inputs", guarded, see, op("listInputs", "What goes into the runs of a stack, by name and origin; values only of variables that stand in the object."),
			detail(func(d query.StackDetails, c call) (list[query.InputInfo], error) {
				return listed(d.Inputs(c.ctx(), c.key()))
			})),
		asks(s, oneStack+"/timeline", guarded, see, op("listMoments", "What happened to a stack, newest first; what people did is there for those who may list terraforms/audit."),
			detail(func(d query.StackDetails, c call) (list[query.Moment], error) {
				return listed(c.timeline(d))
			})),
		asks(s, oneStack+"/outputs", guarded, right("get", access.ResourceOutputs), op("listOutputs", "The outputs that the last apply left; sensitive ones have no value here."),
			detail(func(d query.StackDetails, c call) (list[query.Output], error) {
				return listed(d.OutputsKept(c.ctx(), c.key()))
			})),
		asks(s, oneStack+"/drift", guarded, plan, op("getDrift", "How the world differs from what was applied."),
			detail(func(d query.StackDetails, c call) (query.DriftDetail, error) {
				return d.DriftDetails(c.ctx(), c.key())
			})),
	}
}

// detail asks what this server may not have been given.
func detail[A any](f func(query.StackDetails, call) (A, error)) func(call) (A, error) {
	return func(c call) (A, error) {
		if c.server.Details == nil {
			var nothing A
			return nothing, errNoDetails
		}
		return f(c.server.Details, c)
	}
}

// timeline is what happened to a stack, and what people did as far as the caller
// may read the journal.
func (c call) timeline(d query.StackDetails) ([]query.Moment, error) {
	var sight query.AuditSight
	if c.server.Journal != nil {
		namespace := c.key().Namespace
		err := c.server.Auth.Authorize(c.ctx(), userOf(c.Context), access.Request{Verb: "list", Resource: access.ResourceAudit, Namespace: namespace})
		if err != nil && fault.Of(err) != fault.Denied {
			return nil, err
		}
		sight.In = func(in string) bool { return err == nil && in == namespace }
	}
	return query.ToldTimeline(c.ctx(), d, c.server.Journal, sight, c.key())
}

// runOf is the run that an address names: empty for the newest.
func runOf(c *gin.Context) string {
	if run := c.Param("run"); run != command.NewestRun {
		return run
	}
	return ""
}

// planDocument sends the document of a plan as it is kept.
func (s *server) planDocument(c *gin.Context) {
	doc, err := s.Stacks.Plan(c.Request.Context(), keyOf(c), c.Query("digest"))
	if err != nil {
		s.refuse(c, err)
		return
	}
	c.Data(http.StatusOK, "application/json; charset=utf-8", doc.Document)
}

// log sends a log: as it is now, or while it grows; as text, or as events.
func (s *server) log(c *gin.Context) {
	follow, err := call{c, s}.yes("follow")
	switch {
	case err != nil:
		s.refuse(c, err)
	case wantsEvents(c):
		s.logEvents(c)
	case follow:
		s.logText(c)
	default:
		s.logNow(c)
	}
}

func (s *server) logNow(c *gin.Context) {
	r, err := s.Stacks.Log(c.Request.Context(), keyOf(c), runOf(c), false)
	if err != nil {
		s.refuse(c, err)
		return
	}
	defer r.Close()
	c.Header("Content-Type", "text/plain; charset=utf-8")
	if _, err := io.Copy(c.Writer, r); err != nil {
		panic(http.ErrAbortHandler) // half a log must not look like a whole one
	}
}
