package web

var _ = addDoors(map[string]string{
	"GET /stacks/:namespace/:name/runs/:run":     "get terraforms/log apps/net",
	"GET /stacks/:namespace/:name/runs/:run/log": "get terraforms/log apps/net",
	"GET /stacks/:namespace/:name/plan":          "get terraforms/plan apps/net",
	"GET /stacks/:namespace/:name/graph":         "get terraforms apps/net",
})
