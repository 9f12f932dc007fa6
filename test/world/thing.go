package main

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64default"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// thingResource is world_thing: one thing in the world.
type thingResource struct{ cloud *cloud }

var _ resource.ResourceWithImportState = (*thingResource)(nil)

// thingModel is a thing as the engine sees it, in the resource and in the data
// source alike.
type thingModel struct {
	ID     types.String `tfsdk:"id"`
	Name   types.String `tfsdk:"name"`
	Value  types.String `tfsdk:"value"`
	Size   types.Int64  `tfsdk:"size"`
	Secret types.String `tfsdk:"secret"`
	Tags   types.Map    `tfsdk:"tags"`
}

func (r *thingResource) Metadata(_ context.Context, q resource.MetadataRequest, p *resource.MetadataResponse) {
	p.TypeName = q.ProviderTypeName + "_thing"
}

func (r *thingResource) Schema(_ context.Context, _ resource.SchemaRequest, p *resource.SchemaResponse) {
	p.Schema = schema.Schema{
		Description: "A thing in the world.",
		Attributes: map[string]schema.Attribute{
			"id":     schema.StringAttribute{Computed: true, PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()}},
			"name":   schema.StringAttribute{Required: true, PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()}},
			"value":  schema.StringAttribute{Optional: true},
			"size":   schema.Int64Attribute{Optional: true, Computed: true, Default: int64default.StaticInt64(1)},
			"secret": schema.StringAttribute{Optional: true, Sensitive: true},
			"tags":   schema.MapAttribute{Optional: true, ElementType: types.StringType},
		},
	}
}

func (r *thingResource) Configure(_ context.Context, q resource.ConfigureRequest, p *resource.ConfigureResponse) {
	r.cloud = configured(q.ProviderData, &p.Diagnostics)
}

func (r *thingResource) Create(ctx context.Context, q resource.CreateRequest, p *resource.CreateResponse) {
	var m thingModel
	p.Diagnostics.Append(q.Plan.Get(ctx, &m)...)
	t, diags := m.thing(ctx)
	p.Diagnostics.Append(diags...)
	if p.Diagnostics.HasError() {
		return
	}
	err := r.cloud.do(ctx, callCreate, t.Name, "", func(w *world) (string, error) {
		t.ID = w.add(t)
		return t.ID, nil
	})
	if err != nil {
		p.Diagnostics.AddError("Creating a thing", err.Error())
		return
	}
	m.ID = types.StringValue(t.ID)
	p.Diagnostics.Append(p.State.Set(ctx, m)...)
}

func (r *thingResource) Read(ctx context.Context, q resource.ReadRequest, p *resource.ReadResponse) {
	var m thingModel
	p.Diagnostics.Append(q.State.Get(ctx, &m)...)
	if p.Diagnostics.HasError() {
		return
	}
	var t thing
	gone := false
	err := r.cloud.do(ctx, callRead, m.Name.ValueString(), m.ID.ValueString(), func(w *world) (string, error) {
		found, ok := w.Things[m.ID.ValueString()]
		t, gone = found, !ok
		return m.ID.ValueString(), nil
	})
	switch {
	case err != nil:
		p.Diagnostics.AddError("Reading a thing", err.Error())
	case gone:
		p.State.RemoveResource(ctx)
	default:
		p.Diagnostics.Append(m.fill(ctx, t)...)
		p.Diagnostics.Append(p.State.Set(ctx, m)...)
	}
}

func (r *thingResource) Update(ctx context.Context, q resource.UpdateRequest, p *resource.UpdateResponse) {
	var m thingModel
	p.Diagnostics.Append(q.Plan.Get(ctx, &m)...)
	t, diags := m.thing(ctx)
	p.Diagnostics.Append(diags...)
	if p.Diagnostics.HasError() {
		return
	}
	err := r.cloud.do(ctx, callUpdate, t.Name, t.ID, func(w *world) (string, error) {
		if _, ok := w.Things[t.ID]; !ok {
			return t.ID, fmt.Errorf("updating %s: %w", t.ID, errGone)
		}
		w.Things[t.ID] = t
		return t.ID, nil
	})
	if err != nil {
		p.Diagnostics.AddError("Updating a thing", err.Error())
		return
	}
	p.Diagnostics.Append(p.State.Set(ctx, m)...)
}

func (r *thingResource) Delete(ctx context.Context, q resource.DeleteRequest, p *resource.DeleteResponse) {
	var m thingModel
	p.Diagnostics.Append(q.State.Get(ctx, &m)...)
	if p.Diagnostics.HasError() {
		return
	}
	id := m.ID.ValueString()
	err := r.cloud.do(ctx, callDelete, m.Name.ValueString(), id, func(w *world) (string, error) {
		delete(w.Things, id) // gone already is as good
		return id, nil
	})
	if err != nil {
		p.Diagnostics.AddError("Deleting a thing", err.Error())
	}
}

func (r *thingResource) ImportState(ctx context.Context, q resource.ImportStateRequest, p *resource.ImportStateResponse) {
	resource.ImportStatePassthroughID(ctx, path.Root("id"), q, p)
}

// thing is m as the world stores it; its ID is empty before the create.
func (m thingModel) thing(ctx context.Context) (thing, diag.Diagnostics) {
	t := thing{
		ID: m.ID.ValueString(), Name: m.Name.ValueString(), Value: m.Value.ValueStringPointer(),
		Size: m.Size.ValueInt64(), Secret: m.Secret.ValueStringPointer(),
	}
	if m.Tags.IsNull() {
		return t, nil
	}
	return t, m.Tags.ElementsAs(ctx, &t.Tags, false)
}

// fill sets m to what the world says.
func (m *thingModel) fill(ctx context.Context, t thing) diag.Diagnostics {
	m.ID, m.Name, m.Size = types.StringValue(t.ID), types.StringValue(t.Name), types.Int64Value(t.Size)
	m.Value, m.Secret = types.StringPointerValue(t.Value), types.StringPointerValue(t.Secret)
	if len(t.Tags) == 0 && len(m.Tags.Elements()) == 0 {
		return nil // an empty map and none are one in the world; keep what was asked for
	}
	var diags diag.Diagnostics
	m.Tags, diags = types.MapValueFrom(ctx, types.StringType, t.Tags)
	return diags
}

// configured takes the cloud out of what the provider handed over: nothing,
// while the engine only validates.
func configured(data any, diags *diag.Diagnostics) *cloud {
	if data == nil {
		return nil
	}
	c, ok := data.(*cloud)
	if !ok {
		diags.AddError("Configuring", fmt.Sprintf("got %T in place of a cloud", data))
	}
	return c
}
