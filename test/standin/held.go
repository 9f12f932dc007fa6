package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// held is the resource of any vaultKind.
type held struct {
	vaultKind
	vault vault
}

func (r *held) Metadata(_ context.Context, _ resource.MetadataRequest, p *resource.MetadataResponse) {
	p.TypeName = r.name
}

func (r *held) Schema(_ context.Context, _ resource.SchemaRequest, p *resource.SchemaResponse) {
	p.Schema = schema.Schema{Attributes: r.attributes}
}

func (r *held) Configure(_ context.Context, q resource.ConfigureRequest, _ *resource.ConfigureResponse) {
	r.vault, _ = q.ProviderData.(vault) // none while the engine only validates
}

// write writes it, and returns the plan with what came of it.
func (r *held) write(ctx context.Context, plan tftypes.Value) (tftypes.Value, error) {
	asked := plainObject(plan)
	path := r.path(asked)
	if _, err := r.vault.ask(ctx, r.method, path, r.body(asked)); err != nil {
		return plan, err
	}
	data, err := r.vault.ask(ctx, http.MethodGet, path, nil)
	if err != nil {
		return plan, fmt.Errorf("reading what was written: %w", err)
	}
	values := map[string]any{"id": path}
	for name, v := range r.made(asked, data) {
		values[name] = v
	}
	return complete(plan, values)
}

func (r *held) Create(ctx context.Context, q resource.CreateRequest, p *resource.CreateResponse) {
	made, err := r.write(ctx, q.Plan.Raw)
	if err != nil {
		p.Diagnostics.AddError("Creating "+r.name, err.Error())
		return
	}
	p.State.Raw = made
}

func (r *held) Read(ctx context.Context, q resource.ReadRequest, p *resource.ReadResponse) {
	asked := plainObject(q.State.Raw)
	data, err := r.vault.ask(ctx, http.MethodGet, r.path(asked), nil)
	if errors.Is(err, errNone) {
		p.State.RemoveResource(ctx)
		return
	}
	var fields map[string]tftypes.Value
	if err == nil {
		err = q.State.Raw.As(&fields)
	}
	if err != nil {
		p.Diagnostics.AddError("Reading "+r.name, err.Error())
		return
	}
	for name, v := range r.read(asked, data) {
		if _, set := asked[name]; set {
			fields[name] = tftypes.NewValue(fields[name].Type(), v)
		}
	}
	p.State.Raw = tftypes.NewValue(q.State.Raw.Type(), fields)
}

func (r *held) Update(ctx context.Context, q resource.UpdateRequest, p *resource.UpdateResponse) {
	made, err := r.write(ctx, q.Plan.Raw)
	if err != nil {
		p.Diagnostics.AddError("Updating "+r.name, err.Error())
		return
	}
	p.State.Raw = made
}

func (r *held) Delete(ctx context.Context, q resource.DeleteRequest, p *resource.DeleteResponse) {
	asked := plainObject(q.State.Raw)
	path := r.path(asked)
	if r.remove != nil {
		path = r.remove(asked)
	}
	if path == "" {
		return
	}
	if _, err := r.vault.ask(ctx, http.MethodDelete, path, nil); err != nil && !errors.Is(err, errNone) {
		p.Diagnostics.AddError("Deleting "+r.name, err.Error())
	}
}
