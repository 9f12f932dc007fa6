package protocol

import (
	"net/http"
	"time"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/registry"
	"github.com/terrier-iac/terrier/internal/registry/inspect"
)

// modules are the routes of modules.v1, and of uploads.
type modules struct{ *Server }

func (s modules) routes() {
	const one = "modules/{namespace}/{name}/{system}/"
	s.Handle("GET", one+"versions", Read, s.versions)
	s.Handle("GET", one+"{version}/download", Read, s.download)
	if s.Documents != nil {
		s.Handle("GET", one+"{version}", Read, s.document)
	}
	s.Handle("PUT", one+"{version}", Write, s.admitted(s.publish))
	s.Handle("POST", one+"{version}/retract", Write, s.retract)
	s.Handle("POST", one+"{version}/restore", Write, s.restore)
}

func moduleOf(r *http.Request) (address.Module, error) {
	return address.NewModule(r.PathValue("namespace"), r.PathValue("name"), r.PathValue("system"))
}

func moduleVersionOf(r *http.Request) (address.Module, address.Version, error) {
	m, err := moduleOf(r)
	if err != nil {
		return m, "", err
	}
	v, err := address.ParseVersion(r.PathValue("version"))
	return m, v, err
}

// retracted is a version that clients may not use, as a user reads about it.
type retracted struct {
	Version string `json:"version"`
	*registry.Retraction
}

// versions lists the versions that clients may use. Those that are retracted are
// beside them, where only users look.
func (s modules) versions(w http.ResponseWriter, r *http.Request, _ Caller) error {
	m, err := moduleOf(r)
	if err != nil {
		return missing(err)
	}
	all, err := s.Registry.ListedModule(r.Context(), m)
	if err != nil {
		return err
	}
	if detailed(r) {
		s.JSON(w, r, listOfModule(m, all.Versions, s.details(all.Versions)))
		return nil
	}
	return s.list(w, r, "modules/"+m.String(), all.Edition, func() (any, time.Time) { return listOfModule(m, all.Versions, nil), time.Time{} })
}

// listOfModule is the list of the versions of a module, in their order.
func listOfModule(m address.Module, all []registry.ModuleVersion, details map[address.Version]detail) any {
	type version struct {
		Version string `json:"version"`
	}
	type module struct {
		Source    string                     `json:"source"`
		Versions  []version                  `json:"versions"`
		Retracted []retracted                `json:"retracted,omitempty"`
		Details   map[address.Version]detail `json:"details,omitempty"`
	}
	open, gone := make([]version, 0, len(all)), []retracted(nil)
	for _, v := range all {
		if v.Retracted != nil {
			gone = append(gone, retracted{string(v.Version), v.Retracted})
			continue
		}
		open = append(open, version{string(v.Version)})
	}
	return map[string]any{"modules": []module{{m.String(), open, gone, details}}}
}

// download says where the archive of a version is, in the header, as older clients
// need it, and in the body. The address is signed: no client sends its token to it.
func (s modules) download(w http.ResponseWriter, r *http.Request, c Caller) error {
	m, v, err := moduleVersionOf(r)
	if err != nil {
		return missing(err)
	}
	found, err := s.Registry.ModuleVersion(r.Context(), m, v)
	if err != nil {
		return err
	}
	location := s.URL(r, Link{Key: registry.ModuleKey(m, found.File), SHA256: found.SHA256, Tenant: c.Tenant})
	w.Header().Set("X-Terraform-Get", location)
	s.JSON(w, r, map[string]any{"location": location, "use_registry_credentials": false})
	return nil
}

// ModuleDetail is a version of a module with its documentation.
type ModuleDetail struct {
	Address string          `json:"module"`
	Version address.Version `json:"version"`
	registry.ModuleVersion
	inspect.Module
}

// document answers with the documentation of a version, also of one that is retracted.
// "latest" is the newest one that clients may use.
func (s modules) document(w http.ResponseWriter, r *http.Request, _ Caller) error {
	m, err := moduleOf(r)
	if err != nil {
		return missing(err)
	}
	all, err := s.Registry.ModuleVersions(r.Context(), m)
	if err != nil {
		return err
	}
	v, err := registry.Choose(m, all, r.PathValue("version"))
	if err != nil {
		return err
	}
	d, err := s.Documents.Module(r.Context(), m, v)
	if err != nil {
		return err
	}
	s.JSON(w, r, ModuleDetail{m.String(), v.Version, v, d})
	return nil
}

func (s modules) publish(w http.ResponseWriter, r *http.Request, c Caller) error {
	m, v, err := moduleVersionOf(r)
	if err != nil {
		return err
	}
	made, err := s.Registry.PublishModule(r.Context(), m, v, registry.Upload{By: c.Name, Content: r.Body, Size: r.ContentLength})
	if err != nil {
		return err
	}
	answer := published{Version: string(v), SHA256: made.SHA256, Size: made.Size}
	if made.Unchanged {
		answer.Unchanged, answer.Published, answer.By = true, made.Published, made.By
		s.JSON(w, r, answer)
		return nil
	}
	s.Log.Info("module published", "module", m.String(), "version", string(v), "by", c.Name, "sha256", made.SHA256)
	s.json(w, r, http.StatusCreated, answer)
	return nil
}

// published is the answer to an upload.
type published struct {
	Version   string    `json:"version"`
	SHA256    string    `json:"sha256"`
	Size      int64     `json:"size"`
	Unchanged bool      `json:"unchanged,omitempty"` // the same bytes were published before
	Published time.Time `json:"published,omitzero"`  // first, if it is unchanged
	By        string    `json:"by,omitempty"`        // likewise
}

// reason is the body of a retraction.
type reason struct {
	Reason string `json:"reason"`
}

func (s modules) retract(w http.ResponseWriter, r *http.Request, c Caller) error {
	var why reason
	m, v, err := moduleVersionOf(r)
	if err == nil {
		err = body(r, &why)
	}
	if err == nil {
		err = s.Registry.RetractModule(r.Context(), m, v, c.Name, why.Reason)
	}
	if err != nil {
		return err
	}
	s.Log.Info("module retracted", "module", m.String(), "version", string(v), "by", c.Name, "reason", why.Reason)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s modules) restore(w http.ResponseWriter, r *http.Request, c Caller) error {
	m, v, err := moduleVersionOf(r)
	if err == nil {
		err = s.Registry.RestoreModule(r.Context(), m, v, c.Name)
	}
	if err != nil {
		return err
	}
	s.Log.Info("module restored", "module", m.String(), "version", string(v), "by", c.Name)
	w.WriteHeader(http.StatusNoContent)
	return nil
}
