package web

import (
	"errors"
	"net/http"
	"slices"

	"github.com/gin-gonic/gin"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan/usage"
	"github.com/terrier-iac/terrier/internal/query"
)

// errNoDetails is the answer of a server without details of stacks.
var errNoDetails = fault.New(fault.Later, "NotReady", errors.New("this server has no details of stacks"))

// stackAPI is the rows that read one stack.
type stackAPI struct {
	*gate
	stacks   Stacks
	details  query.StackDetails // nil if the server has none
	auditLog query.AuditLog     // nil without an audit log
	logs     *logs
}

func (a stackAPI) routes() []route {
	see, log, plan := right("get", access.ResourceStacks), right("get", access.ResourceLog), right("get", access.ResourcePlan)
	op := func(id, summary string, params ...parameter) operation {
		return operation{id: id, area: "stacks", summary: summary, query: params, fails: []fault.Kind{fault.Missing, fault.Later}}
	}
	run := func(c call) (query.Report, error) {
		return recorded(a.logs, c.Context, func(s query.StackReader) (query.Report, error) { return s.Run(c.ctx(), c.key(), runOf(c.Context)) })
	}
	runs := func(c call) ([]query.Report, error) {
		return recorded(a.logs, c.Context, func(s query.StackReader) ([]query.Report, error) { return s.Runs(c.ctx(), c.key()) })
	}
	text := op("getRunLog", "Returns the log of a run, with secrets masked. Of a deleted stack the last run is kept for 30 days, and its field gone says since when there is no stack. If its namespace was deleted, too, the caller needs the permission in all namespaces. With Accept: text/event-stream, each line is an event, and the last event has the outcome of the run.",
		yes("follow", "Follow the log until the run has ended."), number("after", "Bytes of the log to skip, with timestamps or without as requested; for events, and for a followed log."),
		yes("timestamps", "Begin each line with its time (RFC 3339, UTC, with milliseconds) and a space. A hyphen takes the place of the time in logs of earlier releases."))
	text.as = "text/plain; charset=utf-8"
	document := op("getPlanDocument", "Returns the plan in the format of show -json of the engine, with sensitive values masked.", word("digest", "The digest of a plan; by default the pending plan, or else the plan that was applied last."))
	document.gives = anyType
	table := []route{
		reads(a.gate, oneStack, guarded, see, op("getStack", "Returns the details of a stack, without its records."),
			func(c call) (query.Detail, error) { return a.stacks.Describe(c.ctx(), c.key()) }),
		reads(a.gate, oneStack+"/explain", guarded, see, op("explainStack", "Explains the status of a stack: all rules, and the rule that decides."),
			func(c call) (query.Explanation, error) { return a.stacks.Explain(c.ctx(), c.key()) }),
		reads(a.gate, oneStack+"/runs", guarded, log, op("listRuns", "Lists the runs of a stack, newest first."),
			func(c call) (list[query.Report], error) { return listed(runs(c)) }),
		reads(a.gate, oneStack+"/runs/:run", guarded, log, op("getRun", "Returns one run; the name newest selects the newest run."), run),
		reads(a.gate, oneStack+"/runs/:run/report", guarded, log, op("getRunReport", "The same as getRun."), run),
		a.raw(oneStack+"/runs/:run/log", log, text, a.logs.serve),
		reads(a.gate, oneStack+"/plan", guarded, plan, op("getPlan", "Returns a plan of a stack with its changes, with sensitive values masked.",
			word("digest", "The digest of a plan; by default the pending plan, or else the plan that was applied last.")),
			func(c call) (query.PlanDocument, error) {
				return a.stacks.Plan(c.ctx(), c.key(), c.Query("digest"))
			}),
		a.raw(oneStack+"/plan/document", plan, document, a.planDocument),
		reads(a.gate, oneStack+"/plan/verdict", guarded, plan, op("getVerdict", "Returns what policies find in the pending plan, or found in a plan before it was applied; null if they found nothing.",
			word("digest", "The digest of a plan.")),
			func(c call) (*query.Verdict, error) { return a.stacks.Verdict(c.ctx(), c.key(), c.Query("digest")) }),
		reads(a.gate, oneStack+"/applied", guarded, plan, op("listAppliedPlans", "Lists the plans that a stack applied last and whose documents are kept, newest first, with the modules and providers of each."),
			func(c call) (list[query.AppliedPlan], error) { return listed(a.stacks.Applied(c.ctx(), c.key())) }),
	}
	table[5].within = streaming
	table = append(table, a.detailRoutes(see, plan, op)...)
	for i := range table { // the document of a plan may be as large as a state
		table[i].whole = slices.Contains(withDocument, table[i].operation.id)
	}
	return table
}

// withDocument are the operations that read the whole document of a plan.
var withDocument = []string{"getPlan", "getPlanDocument", "listInputs", "getDrift", "getDriftPatch"}

// detailRoutes are the rows of the details on the pages of one stack.
func (a stackAPI) detailRoutes(see, plan requirement, op func(string, string, ...parameter) operation) []route {
	return []route{
		reads(a.gate, oneStack+"/inputs", guarded, see, op("listInputs", "Lists the inputs of the runs of a stack with their names and origins. Only variables from the object itself have values."),
			detail(a, func(d query.StackDetails, c call) (list[query.InputInfo], error) {
				return listed(d.Inputs(c.ctx(), c.key()))
			})),
		reads(a.gate, oneStack+"/uses", guarded, see, op("getUses", "Returns the modules and providers that a stack uses, as declared and as the last init resolved them."),
			func(c call) (usage.Record, error) { return a.stacks.Uses(c.ctx(), c.key()) }),
		reads(a.gate, oneStack+"/timeline", guarded, see, op("listMoments", "Lists the timeline of a stack, newest first. The actions of users are included if the caller may list terraforms/audit."),
			detail(a, func(d query.StackDetails, c call) (list[query.Moment], error) {
				return listed(a.timeline(c, d))
			})),
		reads(a.gate, oneStack+"/outputs", guarded, right("get", access.ResourceOutputs), op("listOutputs", "Lists the outputs of the last apply. Sensitive outputs have no value."),
			detail(a, func(d query.StackDetails, c call) (list[query.Output], error) {
				return listed(d.OutputsKept(c.ctx(), c.key()))
			})),
		reads(a.gate, oneStack+"/drift", guarded, plan, op("getDrift", "Returns the drifted resources of a stack."),
			detail(a, func(d query.StackDetails, c call) (query.DriftDetail, error) {
				return d.DriftDetails(c.ctx(), c.key())
			})),
		reads(a.gate, oneStack+"/drift/next", guarded, see, op("getNextDriftCheck", "Returns when drift of a stack was checked last, and when it is checked next and why."),
			func(c call) (query.DriftCheck, error) { return a.stacks.NextCheck(c.ctx(), c.key()) }),
		reads(a.gate, oneStack+"/drift/patch", guarded, plan, op("getDriftPatch", "Returns a change of the configuration that accepts drift: a unified diff, as git apply takes it, and what no edit accepts.",
			word("address", "The address of a resource; may be repeated. All drifted resources if there is none."),
			word("attribute", "The path of an attribute; may be repeated. All drifted attributes if there is none."),
			yes("ignoreChanges", "Have the engine ignore the attributes in place of setting them.")),
			func(c call) (query.DriftPatch, error) {
				return a.stacks.ProposeDrift(c.ctx(), c.key(), query.DriftOrder{
					Addresses: c.QueryArray("address"), Attributes: c.QueryArray("attribute"), IgnoreChanges: c.Query("ignoreChanges") == "true",
				})
			}),
	}
}

// detail calls the details, which a server may lack.
func detail[A any](a stackAPI, f func(query.StackDetails, call) (A, error)) func(call) (A, error) {
	return func(c call) (A, error) {
		if a.details == nil {
			var nothing A
			return nothing, errNoDetails
		}
		return f(a.details, c)
	}
}

// timeline is the history of a stack, with the actions of users if the caller
// may read the audit log.
func (a stackAPI) timeline(c call, d query.StackDetails) ([]query.Moment, error) {
	var sight query.AuditSight
	if a.auditLog != nil {
		namespace := c.key().Namespace
		err := a.auth.Authorize(c.ctx(), userOf(c.Context), access.Request{Verb: "list", Resource: access.ResourceAudit, Namespace: namespace})
		if err != nil && fault.Of(err) != fault.Denied {
			return nil, err
		}
		sight.In = func(in string) bool { return err == nil && in == namespace }
	}
	return query.ToldTimeline(c.ctx(), d, a.auditLog, sight, c.key())
}

// runOf is the run in the address: empty for the newest.
func runOf(c *gin.Context) string {
	if run := c.Param("run"); run != command.NewestRun {
		return run
	}
	return ""
}

// planDocument sends the document of a plan as it is stored.
func (a stackAPI) planDocument(c *gin.Context) {
	doc, err := a.stacks.Plan(c.Request.Context(), keyOf(c), c.Query("digest"))
	if err != nil {
		a.replies.refuse(c, err)
		return
	}
	c.Data(http.StatusOK, "application/json; charset=utf-8", doc.Document)
}
