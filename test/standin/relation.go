package main

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// relation is the resource of any relationKind.
type relation struct {
	relationKind
	server server
}

func (r *relation) Metadata(_ context.Context, _ resource.MetadataRequest, p *resource.MetadataResponse) {
	p.TypeName = r.name
}

func (r *relation) Schema(_ context.Context, _ resource.SchemaRequest, p *resource.SchemaResponse) {
	p.Schema = schema.Schema{Attributes: r.attributes}
}

func (r *relation) Configure(_ context.Context, q resource.ConfigureRequest, _ *resource.ConfigureResponse) {
	r.server, _ = q.ProviderData.(server) // none while the engine only validates
}

func (r *relation) Create(ctx context.Context, q resource.CreateRequest, p *resource.CreateResponse) {
	asked := plainObject(q.Plan.Raw)
	err := r.server.do(ctx, r.make(asked)...)
	var made tftypes.Value
	if err == nil {
		made, err = complete(q.Plan.Raw, map[string]any{"id": r.id(asked)})
	}
	if err != nil {
		p.Diagnostics.AddError("Creating "+r.name, err.Error())
		return
	}
	p.State.Raw = made
}

func (r *relation) Read(ctx context.Context, q resource.ReadRequest, p *resource.ReadResponse) {
	there, err := r.there(ctx, r.server, plainObject(q.State.Raw))
	if err != nil {
		p.Diagnostics.AddError("Reading "+r.name, err.Error())
	} else if !there {
		p.State.RemoveResource(ctx)
	}
}

// Update drops it and creates it again: the database has no other way that fits all
// of them.
func (r *relation) Update(ctx context.Context, q resource.UpdateRequest, p *resource.UpdateResponse) {
	if err := r.server.do(ctx, append(r.drop(plainObject(q.State.Raw)), r.make(plainObject(q.Plan.Raw))...)...); err != nil {
		p.Diagnostics.AddError("Updating "+r.name, err.Error())
		return
	}
	p.State.Raw = q.Plan.Raw
}

func (r *relation) Delete(ctx context.Context, q resource.DeleteRequest, p *resource.DeleteResponse) {
	if err := r.server.do(ctx, r.drop(plainObject(q.State.Raw))...); err != nil {
		p.Diagnostics.AddError("Deleting "+r.name, err.Error())
	}
}
