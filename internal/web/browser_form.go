package web

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/web/pages"
)

// uploadParts bounds the parts of a form with a file.
const uploadParts = 32

// upload is the row of a form with a file.
func (p pageRows) upload(path string, d door, a requirement, do pages.Action) route {
	r := p.action(path, d, a, do)
	r.body, r.within = p.limits.File, func(l Limits) time.Duration { return l.Transfer }
	return r
}

// readForm reads a form. A file stays in memory, since it may contain
// secrets that must not be on a disk.
func readForm(r *http.Request, v *pages.Visit) error {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "multipart/form-data" {
		err := r.ParseForm()
		v.Form = r.PostForm
		return err
	}
	parts, err := r.MultipartReader()
	if err != nil {
		return errForm(err)
	}
	v.Form = url.Values{}
	for range uploadParts {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			return nil
		}
		var content []byte
		if err == nil {
			content, err = io.ReadAll(part)
		}
		if err != nil {
			return errForm(err)
		}
		if part.FileName() != "" {
			v.File = content
			continue
		}
		v.Form.Add(part.FormName(), string(content))
	}
	return errForm(errors.New("it has too many parts"))
}

func errForm(err error) error {
	return fault.New(fault.Invalid, "FormInvalid", fmt.Errorf("the form cannot be read: %w", err))
}

// asFile sends a state as a file.
func asFile(send gin.HandlerFunc) gin.HandlerFunc {
	return func(c *gin.Context) {
		c.Header("Content-Disposition", fmt.Sprintf(`attachment; filename="%s.tfstate"`, c.Param("name")))
		send(c)
	}
}
