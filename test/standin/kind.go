package main

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// kind is a resource type: what can be asked for, and what comes back.
type kind struct {
	name       string // aws_s3_bucket
	attributes map[string]schema.Attribute
	blocks     map[string]schema.Block
	// id names a new one. It is the n-th that the cloud makes.
	id func(asked map[string]any, n int) string
	// computed are the values of attributes that a configuration cannot set, beside
	// id.
	computed func(asked map[string]any, id, region string) map[string]any
}

// session is a provider that was configured.
type session struct {
	cloud  *cloud
	region string
}

// thing is the resource of any kind.
type thing struct {
	kind
	session *session
}

func (r *thing) Metadata(_ context.Context, _ resource.MetadataRequest, p *resource.MetadataResponse) {
	p.TypeName = r.name
}

func (r *thing) Schema(_ context.Context, _ resource.SchemaRequest, p *resource.SchemaResponse) {
	p.Schema = schema.Schema{Attributes: r.attributes, Blocks: r.blocks}
}

func (r *thing) Configure(_ context.Context, q resource.ConfigureRequest, _ *resource.ConfigureResponse) {
	r.session, _ = q.ProviderData.(*session) // none while the engine only validates
}

func (r *thing) Create(_ context.Context, q resource.CreateRequest, p *resource.CreateResponse) {
	asked := plainObject(q.Plan.Raw)
	err := r.session.cloud.update(func(a *account) error {
		a.Next++
		id := r.id(asked, a.Next)
		if _, taken := a.Holds[place(r.name, id)]; taken {
			return fmt.Errorf("%s %s already exists", r.name, id)
		}
		var values map[string]any
		if r.computed != nil {
			values = r.computed(asked, id, r.session.region)
		}
		if values == nil {
			values = map[string]any{}
		}
		values["id"] = id
		made, err := complete(q.Plan.Raw, values)
		if err != nil {
			return err
		}
		p.State.Raw = made
		a.Holds[place(r.name, id)] = holding{Kind: r.name, ID: id, Attributes: plainObject(made), By: r.session.cloud.key}
		return nil
	})
	if err != nil {
		p.Diagnostics.AddError("Creating "+r.name, err.Error())
	}
}

func (r *thing) Read(ctx context.Context, q resource.ReadRequest, p *resource.ReadResponse) {
	err := r.session.cloud.update(func(a *account) error {
		if _, ok := a.Holds[r.place(q.State.Raw)]; !ok {
			p.State.RemoveResource(ctx)
		}
		return nil
	})
	if err != nil {
		p.Diagnostics.AddError("Reading "+r.name, err.Error())
	}
}

func (r *thing) Update(_ context.Context, q resource.UpdateRequest, p *resource.UpdateResponse) {
	at := r.place(q.State.Raw)
	err := r.session.cloud.update(func(a *account) error {
		h, ok := a.Holds[at]
		if !ok {
			return fmt.Errorf("%s does not exist", at)
		}
		h.Attributes, h.By = plainObject(q.Plan.Raw), r.session.cloud.key
		a.Holds[at] = h
		p.State.Raw = q.Plan.Raw
		return nil
	})
	if err != nil {
		p.Diagnostics.AddError("Updating "+r.name, err.Error())
	}
}

func (r *thing) Delete(_ context.Context, q resource.DeleteRequest, p *resource.DeleteResponse) {
	at := r.place(q.State.Raw)
	err := r.session.cloud.update(func(a *account) error {
		if h, ok := a.Holds[at]; ok {
			h.By = r.session.cloud.key
			a.Deleted = append(a.Deleted, h)
			delete(a.Holds, at)
		}
		return nil
	})
	if err != nil {
		p.Diagnostics.AddError("Deleting "+r.name, err.Error())
	}
}

// place is where the cloud holds what a state is of.
func (r *thing) place(state tftypes.Value) string {
	id, _ := plainObject(state)["id"].(string)
	return place(r.name, id)
}
