package web

var _ = addDoors(map[string]string{
	"GET /status": "known", "GET /queue": "known", "GET /tenants": "known", "GET /sources": "known", "GET /sources/:kind/:namespace/:name": "get sources apps/net", "GET /notifications": "known", "GET /about": "known", "GET /api": "known",
	"GET /retained": "known", "GET /retained/:namespace/:name/state": "get terraforms/state apps/net", "POST /retained/:namespace/:name/forget": "delete terraforms apps/net",
	"GET /audit": "known", "GET /audit/export": "known", "POST /audit/verify": "list terraforms/audit",

	"GET /tenants/:namespace/:name":             "get tenants apps/net",
	"GET /registries/:namespace/:name":          "get registries apps/net",
	"POST /registries/:namespace/:name/allow":   "patch registries apps/net",
	"POST /registries/:namespace/:name/read":    "patch registries apps/net",
	"POST /registries/:namespace/:name/suspend": "patch registries apps/net",
	"POST /registries/:namespace/:name/resume":  "patch registries apps/net",
	"GET /templates/:namespace/:name":           "get templates apps/net",
	"POST /templates/:namespace/:name/resume":   "patch templates apps/net",
	"POST /templates/:namespace/:name/undo":     "update templates apps/net",
})
