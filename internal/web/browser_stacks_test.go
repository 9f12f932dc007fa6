package web

var _ = addDoors(map[string]string{
	"GET /stacks": "known", "POST /stacks": "known", "GET /approvals": "known", "GET /drift": "known",
	"GET /stacks/:namespace/:name":                  "get terraforms apps/net",
	"GET /stacks/:namespace/:name/runs":             "get terraforms/log apps/net",
	"GET /stacks/:namespace/:name/resources":        "get terraforms/state apps/net",
	"GET /stacks/:namespace/:name/outputs":          "get terraforms/outputs apps/net",
	"GET /stacks/:namespace/:name/inputs":           "get terraforms apps/net",
	"GET /stacks/:namespace/:name/states":           "get terraforms/state apps/net",
	"GET /stacks/:namespace/:name/drift":            "get terraforms/plan apps/net",
	"GET /stacks/:namespace/:name/events":           "get terraforms apps/net",
	"GET /stacks/:namespace/:name/repair":           "patch terraforms apps/net",
	"POST /stacks/:namespace/:name/approve":         "patch terraforms apps/net",
	"POST /stacks/:namespace/:name/reject":          "patch terraforms apps/net",
	"POST /stacks/:namespace/:name/replan":          "patch terraforms apps/net",
	"POST /stacks/:namespace/:name/suspend":         "patch terraforms apps/net",
	"POST /stacks/:namespace/:name/resume":          "patch terraforms apps/net",
	"POST /stacks/:namespace/:name/unlock":          "patch terraforms apps/net",
	"POST /stacks/:namespace/:name/preview-destroy": "patch terraforms apps/net",
	"POST /stacks/:namespace/:name/repair":          "patch terraforms apps/net",
	"POST /stacks/:namespace/:name/states/rollback": "update terraforms/state apps/net",
})
