package service

import (
	"context"
	"net/url"
)

// List implements TenantReader.
func (t *RemoteTenants) List(ctx context.Context, f TenantFilter) (TenantList, error) {
	query := url.Values{}
	text(query, "namespace", f.Namespace)
	text(query, "registry", f.Registry)
	text(query, "template", f.Template)
	text(query, "selector", f.Selector)
	flag(query, "notReady", f.NotReady)
	var list TenantList
	err := t.r.json(ctx, &list, t.r.at(query, "tenants"))
	return list, err
}

func (t *RemoteTenants) get(ctx context.Context, key Key, kind string, out any) error {
	if err := key.check(); err != nil {
		return err
	}
	return t.r.json(ctx, out, t.r.at(nil, object(key, kind)...))
}

// Describe implements TenantReader.
func (t *RemoteTenants) Describe(ctx context.Context, key Key) (TenantDetail, error) {
	var d TenantDetail
	err := t.get(ctx, key, "tenants", &d)
	return d, err
}

// Registry implements TenantReader.
func (t *RemoteTenants) Registry(ctx context.Context, key Key) (Registry, error) {
	var r Registry
	err := t.get(ctx, key, "registries", &r)
	return r, err
}

// Rollout implements TenantReader.
func (t *RemoteTenants) Rollout(ctx context.Context, key Key) (Rollout, error) {
	var r Rollout
	err := t.get(ctx, key, "templates", &r)
	return r, err
}

// do has one command carried out on a registry or a template.
func (t *RemoteTenants) do(ctx context.Context, key Key, in, out any, kind string, more ...string) error {
	if err := key.check(); err != nil {
		return err
	}
	return t.r.post(ctx, commandTime, in, out, object(key, kind, more...)...)
}

// Allow implements TenantCommands.
func (t *RemoteTenants) Allow(ctx context.Context, key Key, token string) error {
	return t.do(ctx, key, AllowedToken{token}, nil, "registries", "allow")
}

// ReadNow implements TenantCommands.
func (t *RemoteTenants) ReadNow(ctx context.Context, key Key) (request string, err error) {
	var asked Requested
	err = t.do(ctx, key, struct{}{}, &asked, "registries", "read-now")
	return asked.Request, err
}

// SuspendRegistry implements TenantCommands.
func (t *RemoteTenants) SuspendRegistry(ctx context.Context, key Key) error {
	return t.do(ctx, key, struct{}{}, nil, "registries", "suspend")
}

// ResumeRegistry implements TenantCommands.
func (t *RemoteTenants) ResumeRegistry(ctx context.Context, key Key) error {
	return t.do(ctx, key, struct{}{}, nil, "registries", "resume")
}

// ResumeRollout implements TenantCommands.
func (t *RemoteTenants) ResumeRollout(ctx context.Context, key Key) (int64, error) {
	var r Resumed
	err := t.do(ctx, key, struct{}{}, &r, "templates", "rollout", "resume")
	return r.Generation, err
}

// PlanUndo implements TenantCommands.
func (t *RemoteTenants) PlanUndo(ctx context.Context, key Key, to int64) (Undoing, error) {
	var v UndoView
	err := t.do(ctx, key, UndoOrder{To: to, Preview: true}, &v, "templates", "rollout", "undo")
	return Undoing{Key: key, From: v.From, To: v.To, Same: v.Same}, err
}

// Undo implements TenantCommands.
func (t *RemoteTenants) Undo(ctx context.Context, u Undoing) error {
	return t.do(ctx, u.Key, UndoOrder{To: u.To, From: u.From}, nil, "templates", "rollout", "undo")
}
