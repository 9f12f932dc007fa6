package web

var _ = addDoors(map[string]string{
	"GET /":              "known",
	"GET /static/*path":  "open",
	"HEAD /static/*path": "open",
})
