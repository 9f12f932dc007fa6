package main

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// thingSource is the data source world_thing: the one thing of a name.
type thingSource struct{ cloud *cloud }

var _ datasource.DataSourceWithConfigure = (*thingSource)(nil)

func (s *thingSource) Metadata(_ context.Context, q datasource.MetadataRequest, p *datasource.MetadataResponse) {
	p.TypeName = q.ProviderTypeName + "_thing"
}

func (s *thingSource) Schema(_ context.Context, _ datasource.SchemaRequest, p *datasource.SchemaResponse) {
	p.Schema = schema.Schema{
		Description: "The one thing of a name.",
		Attributes: map[string]schema.Attribute{
			"id":     schema.StringAttribute{Computed: true},
			"name":   schema.StringAttribute{Required: true},
			"value":  schema.StringAttribute{Computed: true},
			"size":   schema.Int64Attribute{Computed: true},
			"secret": schema.StringAttribute{Computed: true, Sensitive: true},
			"tags":   schema.MapAttribute{Computed: true, ElementType: types.StringType},
		},
	}
}

func (s *thingSource) Configure(_ context.Context, q datasource.ConfigureRequest, p *datasource.ConfigureResponse) {
	s.cloud = configured(q.ProviderData, &p.Diagnostics)
}

func (s *thingSource) Read(ctx context.Context, q datasource.ReadRequest, p *datasource.ReadResponse) {
	var m thingModel
	p.Diagnostics.Append(q.Config.Get(ctx, &m)...)
	if p.Diagnostics.HasError() {
		return
	}
	name := m.Name.ValueString()
	var t thing
	err := s.cloud.do(ctx, callLookup, name, "", func(w *world) (string, error) {
		found, err := w.named(name)
		if err != nil {
			return "", err
		}
		if len(found) > 1 {
			return "", fmt.Errorf("looking up %q: %d things bear the name", name, len(found))
		}
		t = found[0]
		return t.ID, nil
	})
	if err != nil {
		p.Diagnostics.AddError("Looking up a thing", err.Error())
		return
	}
	p.Diagnostics.Append(m.fill(ctx, t)...)
	p.Diagnostics.Append(p.State.Set(ctx, m)...)
}
