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

// errNoDetails is the answer of a server without details of stacks.
var errNoDetails = fault.New(fault.Later, "NotReady", errors.New("this server has no details of stacks"))

// stackRoutes are the rows that read one stack.
func (s *server) stackRoutes() []route {
	see, log, plan := right("get", access.ResourceStacks), right("get", access.ResourceLog), right("get", access.ResourcePlan)
	op := func(id, summary string, params ...parameter) operation {
		return operation{id: id, area: "stacks", summary: summary, query: params, fails: []fault.Kind{fault.Missing, fault.Later}}
	}
	run := func(c call) (query.Report, error) { return s.Stacks.Run(c.ctx(), c.key(), runOf(c.Context)) }
	text := op("getRunLog", "Returns the log of a run, with secrets masked. With Accept: text/event-stream, each line is an event, and the last event has the outcome of the run.",
		yes("follow", "Follow the log until the run has ended."), number("after", "Bytes of the log to skip; for events, and for a followed log."))
	text.as = "text/plain; charset=utf-8"
	document := op("getPlanDocument", "Returns the plan in the format of show -json of the engine, with sensitive values masked.", word("digest", "The digest of a plan; by default the pending plan, or else the plan that was applied last."))
	document.gives = anyType
	table := []route{
		asks(s, oneStack, guarded, see, op("getStack", "Returns the details of a stack, without its records."),
			func(c call) (query.Detail, error) { return s.Stacks.Describe(c.ctx(), c.key()) }),
		asks(s, oneStack+"/explain", guarded, see, op("explainStack", "Explains the status of a stack: all rules, and the rule that decides."),
			func(c call) (query.Explanation, error) { return s.Stacks.Explain(c.ctx(), c.key()) }),
		asks(s, oneStack+"/runs", guarded, log, op("listRuns", "Lists the runs of a stack, newest first."),
			func(c call) (list[query.Report], error) { return listed(s.Stacks.Runs(c.ctx(), c.key())) }),
		asks(s, oneStack+"/runs/:run", guarded, log, op("getRun", "Returns one run; the name newest selects the newest run."), run),
		asks(s, oneStack+"/runs/:run/report", guarded, log, op("getRunReport", "The same as getRun."), run),
		s.raw(oneStack+"/runs/:run/log", log, text, s.log),
		asks(s, oneStack+"/plan", guarded, plan, op("getPlan", "Returns a plan of a stack with its changes, with sensitive values masked.",
			word("digest", "The digest of a plan; by default the pending plan, or else the plan that was applied last.")),
			func(c call) (query.PlanDocument, error) {
				return s.Stacks.Plan(c.ctx(), c.key(), c.Query("digest"))
			}),
		s.raw(oneStack+"/plan/document", plan, document, s.planDocument),
	}
	table[5].within = streaming
	return append(table, s.detailRoutes(see, plan, op)...)
}

// detailRoutes are the rows of the details on the pages of one stack.
func (s *server) detailRoutes(see, plan requirement, op func(string, string, ...parameter) operation) []route {
	return []route{
		asks(s, oneStack+"/inputs", guarded, see, op("listInputs", "Lists the inputs of the runs of a stack with their names and origins. Only variables from the object itself have values."),
			detail(func(d query.StackDetails, c call) (list[query.InputInfo], error) {
				return listed(d.Inputs(c.ctx(), c.key()))
			})),
		asks(s, oneStack+"/timeline", guarded, see, op("listMoments", "Lists the timeline of a stack, newest first. The actions of users are included if the caller may list terraforms/audit."),
			detail(func(d query.StackDetails, c call) (list[query.Moment], error) {
				return listed(c.timeline(d))
			})),
		asks(s, oneStack+"/outputs", guarded, right("get", access.ResourceOutputs), op("listOutputs", "Lists the outputs of the last apply. Sensitive outputs have no value."),
			detail(func(d query.StackDetails, c call) (list[query.Output], error) {
				return listed(d.OutputsKept(c.ctx(), c.key()))
			})),
		asks(s, oneStack+"/drift", guarded, plan, op("getDrift", "Returns the drifted resources of a stack."),
			detail(func(d query.StackDetails, c call) (query.DriftDetail, error) {
				return d.DriftDetails(c.ctx(), c.key())
			})),
	}
}

// detail calls the details, which a server may lack.
func detail[A any](f func(query.StackDetails, call) (A, error)) func(call) (A, error) {
	return func(c call) (A, error) {
		if c.server.Details == nil {
			var nothing A
			return nothing, errNoDetails
		}
		return f(c.server.Details, c)
	}
}

// timeline is the history of a stack, with the actions of users if the caller
// may read the audit log.
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

// runOf is the run in the address: empty for the newest.
func runOf(c *gin.Context) string {
	if run := c.Param("run"); run != command.NewestRun {
		return run
	}
	return ""
}

// planDocument sends the document of a plan as it is stored.
func (s *server) planDocument(c *gin.Context) {
	doc, err := s.Stacks.Plan(c.Request.Context(), keyOf(c), c.Query("digest"))
	if err != nil {
		s.refuse(c, err)
		return
	}
	c.Data(http.StatusOK, "application/json; charset=utf-8", doc.Document)
}

// log sends a log: as it is now, or followed; as text, or as events.
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
		panic(http.ErrAbortHandler) // an incomplete log must not look complete
	}
}
