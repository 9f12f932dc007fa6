package client

import (
	"context"
	"net/url"

	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/query"
)

// Tenants are the registries, templates and tenants of a server.
type Tenants struct{ *conn }

func (t *Tenants) List(ctx context.Context, f query.TenantFilter) (query.TenantList, error) {
	params := url.Values{}
	text(params, "namespace", f.Namespace)
	text(params, "registry", f.Registry)
	text(params, "template", f.Template)
	text(params, "selector", f.Selector)
	flag(params, "notReady", f.NotReady)
	return get[query.TenantList](ctx, t.conn, t.at(params, "tenants"))
}

func tenantsGet[T any](ctx context.Context, t *Tenants, key query.Key, kind string) (out T, err error) {
	if err := key.Check(); err != nil {
		return out, err
	}
	return get[T](ctx, t.conn, t.at(nil, object(key, kind)...))
}

func (t *Tenants) Describe(ctx context.Context, key query.Key) (query.TenantDetail, error) {
	return tenantsGet[query.TenantDetail](ctx, t, key, "tenants")
}

func (t *Tenants) Registry(ctx context.Context, key query.Key) (query.Registry, error) {
	return tenantsGet[query.Registry](ctx, t, key, "registries")
}

func (t *Tenants) Rollout(ctx context.Context, key query.Key) (query.Rollout, error) {
	return tenantsGet[query.Rollout](ctx, t, key, "templates")
}

// do has one command carried out on a registry or a template.
func (t *Tenants) do(ctx context.Context, key query.Key, in, out any, kind string, more ...string) error {
	if err := key.Check(); err != nil {
		return err
	}
	return t.post(ctx, requestTime, in, out, object(key, kind, more...)...)
}

func (t *Tenants) Allow(ctx context.Context, key query.Key, token string) error {
	return t.do(ctx, key, command.AllowedToken{Token: token}, nil, "registries", "allow")
}

func (t *Tenants) ReadNow(ctx context.Context, key query.Key) (request string, err error) {
	var asked command.Requested
	err = t.do(ctx, key, struct{}{}, &asked, "registries", "read-now")
	return asked.Request, err
}

func (t *Tenants) SuspendRegistry(ctx context.Context, key query.Key) error {
	return t.do(ctx, key, struct{}{}, nil, "registries", "suspend")
}

func (t *Tenants) ResumeRegistry(ctx context.Context, key query.Key) error {
	return t.do(ctx, key, struct{}{}, nil, "registries", "resume")
}

func (t *Tenants) ResumeRollout(ctx context.Context, key query.Key) (int64, error) {
	var r command.Resumed
	err := t.do(ctx, key, struct{}{}, &r, "templates", "rollout", "resume")
	return r.Generation, err
}

func (t *Tenants) PlanUndo(ctx context.Context, key query.Key, to int64) (command.Undoing, error) {
	var v command.UndoView
	err := t.do(ctx, key, command.UndoOrder{To: to, Preview: true}, &v, "templates", "rollout", "undo")
	return command.Undoing{Key: key, From: v.From, To: v.To, Same: v.Same}, err
}

func (t *Tenants) Undo(ctx context.Context, u command.Undoing) error {
	return t.do(ctx, u.Key, command.UndoOrder{To: u.To, From: u.From}, nil, "templates", "rollout", "undo")
}

func (t *Tenants) Render(ctx context.Context, key query.Key, row query.RowText, uid string) (query.Rendering, error) {
	var r query.Rendering
	err := t.do(ctx, key, command.RenderOrder{Row: row, UID: uid}, &r, "templates", "render")
	return r, err
}
