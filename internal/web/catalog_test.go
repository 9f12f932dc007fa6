package web

// A server without a registry says so. With one, package browse and internal/app/packages
// test what these routes answer.
var _ = addDoors(map[string]string{
	"GET /registry": "known, then 404",
	"GET /registry/modules/:namespace/:name/:system":                   "get terraforms/registry apps",
	"GET /registry/modules/:namespace/:name/:system/:version/archive":  "get terraforms/registry apps",
	"GET /registry/providers/:namespace/:name":                         "get terraforms/registry apps",
	"GET /registry/keys/:namespace":                                    "get terraforms/registry apps",
	"GET /registry/mirror":                                             "known, then 404",
	"GET /registry/repositories":                                       "known, then 404",
	"GET /registry/repositories/:namespace/:name":                      "get terraforms/registry apps",
	"GET /registry/ca.crt":                                             "known, then 404",
	"GET /registry/mirror/:host/:namespace/:name":                      "known, then 404",
	"GET /api/v1/registry":                                             "known, then 404",
	"GET /api/v1/registry/mirror":                                      "known, then 404",
	"GET /api/v1/namespaces/:namespace/registry/modules/:name/:system": "get terraforms/registry apps",
	"GET /api/v1/namespaces/:namespace/registry/providers/:name":       "get terraforms/registry apps",
	"GET /api/v1/namespaces/:namespace/registry/keys":                  "get terraforms/registry apps",
})
